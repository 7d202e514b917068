"""What jobs say of themselves in a file of their scratch folder (owner_files/progress.py), as `joblens say` does.

A job in a container reaches no socket of ours. The file is read before an ad of the job is written. It counts when it
has changed: what the job has said by the socket since then stays.
"""

from __future__ import annotations

import re

from condor_joblens.agent.node import Node
from condor_joblens.commands import say

_SHARE = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%(?:\s+|$)")


class JobWords:
    """The files as they were read last."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._heard: dict[int, tuple[int, bytes]] = {}  # by run's index: the run's number, and what its file had

    def hear(self, runs: list[int]) -> None:
        """Reads the files of `runs`, in one exchange. A failure costs their progress alone."""
        handles, rows = self._node.handles, self._node.runs.rows
        folders = {
            run: sandbox.scratch
            for run in runs
            if run in handles and (sandbox := handles[run].sandbox) is not None
            if not rows["final"][run]
        }
        if not folders:
            return
        try:
            said = self._node.files.progress(list(folders.values()))
        except OSError as error:
            self._node.log_once(f"what jobs say of themselves can't be read: {error.strerror}")
            return
        for run, each in zip(folders, said):
            self._node.guard(run, "progress", self._take, run, each)

    def _take(self, run: int, said: bytes) -> None:
        number = int(self._node.runs.rows["run_number"][run])
        known, before = self._heard.get(run, (number, b""))
        if said == (before if known == number else b""):
            return
        self._heard[run] = number, said
        share, words = understood(said)
        say.keep(self._node.runs.rows, run, share, words)


def understood(said: bytes) -> tuple[float | None, str]:
    """Share and words of the first line: `30 % step 3 of 10`. A share is a number up to 100 with a percent sign."""
    line = said.decode("utf-8", "replace").partition("\n")[0].strip()
    found = _SHARE.match(line)
    if found is None or float(found[1]) > 100:
        return None, line
    return float(found[1]) / 100, line[found.end() :]
