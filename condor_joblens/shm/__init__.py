"""What joblensd shares with its readers: rows (a double buffer), events (a ring) and artifacts (files). Knows bytes.

For programs of others too: `rows()`, `events()` and `artifact()`, documented in docs/shared-memory.md. They are the
only names here that stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from condor_joblens.shm.artifact_header import Artifact
    from condor_joblens.shm.ring import Position

RUN_DIR = "/run/joblens"


def rows(run_dir: str = RUN_DIR) -> np.ndarray:
    """What every watched job of this machine has used so far: metrics.ROW, shape (n,), a row a run.

    Columns are those of docs/metrics.md; text is bytes, what is absent -1 or NaN. Raises JobLensError where joblensd
    does not run, this user may not read, or joblensd is of another version.
    """
    from condor_joblens.shm.reader import Reader

    return Reader(f"{run_dir}/rows").rows()[0]


def events(
    since: Position | None = None, run_dir: str = RUN_DIR, seconds: float | None = None
) -> Iterator[tuple[np.ndarray, int, Position]]:
    """What happens, as it happens: batches of events (events.EVENT, shape (n,)), for ever or so many seconds.

    With each batch comes how many events were overwritten before they could be read, and the position behind it. A
    reader that hands this in again as `since` goes on there. Without it the oldest that there are come first. Waiting
    costs nothing. Raises JobLensError as `rows` does; root and the user joblens may read.
    """
    import time

    from condor_joblens.shm.ring import EventReader

    reader = EventReader(f"{run_dir}/events", since)
    end = None if seconds is None else time.monotonic() + seconds
    missed = 0
    while end is None or time.monotonic() < end:
        seen = reader.wake_word()
        found = reader.read()
        if len(found) or reader.missed > missed:
            yield found, reader.missed - missed, reader.position
            missed = reader.missed
        else:
            reader.wait(seen, 1.0 if end is None else max(0.0, min(1.0, end - time.monotonic())))


def artifact(name: str, run_dir: str = RUN_DIR) -> tuple[Artifact, bytes]:
    """An artifact's header and content, by the name that its event has as `text`.

    Raises ArtifactGone (a JobLensError) if it has been deleted, JobLensError if it may not be read or is damaged.
    """
    from condor_joblens.shm.artifacts import FOLDER, ArtifactReader

    return ArtifactReader(f"{run_dir}/{FOLDER}").read(name)
