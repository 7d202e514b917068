"""The process that makes records of profiles: what is in them is a job's, and may take long or much memory to read.

So it has less weight than joblens-export, the kernel bounds its memory, and joblens-export ends it if it takes too
long. Nothing else waits for it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import time
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.privilege import end_with_parent
from condor_joblens.export import profile_records
from condor_joblens.shm.artifacts import ArtifactGone
from condor_joblens.sinks import child_frames

MOST_MEMORY_BYTES = 256 << 20
"""Of data in memory. With a profile of some thousand stacks the process has 40 MiB in all."""

_MOST_ASKED_BYTES = 64 << 10
_NICE = 10


def main() -> None:
    """Answers for one profile after another, until joblens-export ends the connection."""
    end_with_parent(signal.SIGKILL)
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    exporter = socket.socket(fileno=os.dup(0))
    with contextlib.suppress(child_frames.BadFrame, OSError):  # joblens-export has ended
        while True:
            asked, _ = child_frames.receive(exporter, _MOST_ASKED_BYTES)
            before = time.process_time()
            answer = _answer(**asked)
            child_frames.send(exporter, {**answer, "seconds": time.process_time() - before})


def _answer(folder: str, name: str, node: str) -> dict[str, Any]:
    """The record as a dictionary, or why there is none; `gone` if that is because it has been deleted."""
    try:
        return {"record": profile_records.read(folder, name, node)}
    except ArtifactGone as error:
        return {"gone": str(error)}
    except (JobLensError, MemoryError, OSError) as error:
        return {"error": printable(str(error) or "it takes too much memory", 300)}


if __name__ == "__main__":
    main()
