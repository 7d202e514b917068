"""The flame graph that comes back with a job's output: as `joblens flame` draws it, of bounded size."""

from __future__ import annotations

from condor_joblens.profiles.flame_graph import MOST_NODES, flame_graph
from condor_joblens.profiles.profile import Profile

HEAD = "<!-- written by JobLens: +JobLensReport -->\n"
"""A file that begins so may be replaced by a newer one (owner_files/reports.py)."""


def report(profile: Profile, most_bytes: int) -> bytes:
    """The SVG file, with fewer of its lower rows if it would be larger."""
    most = MOST_NODES
    while True:
        content = (HEAD + flame_graph(profile, most=most)).encode("utf-8", "replace")
        if len(content) <= most_bytes or most <= 1:
            return content[:most_bytes]
        most //= 2
