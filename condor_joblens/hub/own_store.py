"""The store of a folder, for a command: that of the hub that runs, or one that is started for as long as it takes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.store.client import Store, socket_of
from condor_joblens.hub.store.server import answers

PATIENCE = 300.0
"""Seconds for a store to begin: it reads what it keeps first."""


@contextlib.contextmanager
def own_store(folder: Path, is_to_be_alone: bool = False) -> Iterator[Store]:
    """is_to_be_alone: no hub may use the folder meanwhile. Raises JobLensError."""
    if answers(folder):
        if is_to_be_alone:
            raise JobLensError(f"a hub runs on {folder}: stop it first")
        yield Store(socket_of(str(folder)))
        return
    command = [sys.executable, "-m", "condor_joblens.hub", "store", "--folder", str(folder), "--tokens", "/dev/null"]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        started = subprocess.Popen(command, stderr=log)
        try:
            _wait(started, log, folder)
            yield Store(socket_of(str(folder)))
        finally:
            started.terminate()
            started.wait()


def _wait(started: subprocess.Popen[bytes], log: IO[str], folder: Path) -> None:
    """Until it answers. Raises JobLensError."""
    end = time.monotonic() + PATIENCE
    while not answers(folder):
        if started.poll() is not None:
            log.seek(0)
            said = log.read().strip().splitlines() or ["the store has ended without a word"]
            raise JobLensError(said[-1].removeprefix("joblens-hub: "))
        if time.monotonic() > end:
            raise JobLensError(f"the store of {folder} does not answer after {PATIENCE:.0f} s")
        time.sleep(0.1)
