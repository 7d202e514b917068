"""What HTCondor's own commands print, in bounds of time and size."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading

from condor_joblens.common.errors import JobLensError, printable

ANSWER_SECONDS = 120.0
MOST_BYTES = 64 << 20
"""Of an answer: half a million jobs, or slots."""


def output(command: list[str]) -> str:
    """Raises JobLensError, OSError."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert child.stdout
        too_late = threading.Timer(ANSWER_SECONDS, _kill, [child.pid])
        too_late.start()
        try:
            with child.stdout:
                said = child.stdout.read(MOST_BYTES + 1)
            if len(said) > MOST_BYTES:
                raise JobLensError(f"{command[0]} says more than {MOST_BYTES >> 20} MiB")
            code = child.wait()
        finally:
            too_late.cancel()
            if child.returncode is None:
                _kill(child.pid)
                child.wait()
        if code != 0:
            errors.seek(0)
            why = printable(errors.read(500).decode("utf-8", "replace").strip(), 300)
            raise JobLensError(f"{command[0]} ended with {code}: {why}")
    return said.decode("utf-8", "replace")


def _kill(pid: int) -> None:
    """It, and what it has started. It is not waited for yet, so the number is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
