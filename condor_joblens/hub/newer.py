"""What was kept by a newer hub."""

from __future__ import annotations

from condor_joblens.common.errors import JobLensError


class Newer(JobLensError):
    """An older hub can't read it, and whoever waits for another answer waits for ever."""


def refuse_newer(what: str, version: int, known: int) -> None:
    """Raises Newer. what: its name, for the one line that people read."""
    if version > known:
        raise Newer(
            f"{what} is of version {version}, made by a newer hub, and this one knows {known}: install the newer one, "
            "or restore a backup"
        )
