"""The reader of samples, once it is confined, has its sockets and what it was handed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from profile_samples import profile

from condor_joblens.profiles.report import report
from condor_joblens.profiling import look, sample_reader


def refused(act: Callable[[], object]) -> bool:
    """Whether a confined process gets EPERM or ENOSYS for it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            sample_reader.confine()
            act()
        except OSError as error:
            code = 0 if error.errno in (1, 38) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return status == 0


@pytest.mark.parametrize(
    "act",
    [
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        lambda: os.fork(),
        lambda: os.kill(os.getppid(), signal.SIGCONT),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.setresuid(0, 0, 0),
        lambda: os.unlink("/tmp/there-is-no-such-file"),
    ],
    ids=["open", "socket", "fork", "kill", "exec", "become root", "unlink"],
)
def test_the_reader_of_samples_can_do_no_more_than_read_and_tell(act: Callable[[], object]) -> None:
    assert refused(act)


def test_it_draws_without_opening_a_file() -> None:
    sample_reader.finisher()
    assert not refused(lambda: report(profile(), 1 << 20))


def test_what_it_reads_it_reads_still() -> None:
    with open("/etc/passwd", "rb") as file, contextlib.closing(socket.socketpair()[0]):
        assert not refused(lambda: os.pread(file.fileno(), 10, 0))


@pytest.mark.parametrize("module", [sample_reader.__name__, look.__name__])
def test_what_it_loads_is_small(module: str) -> None:
    """Each is on every node: numpy alone would be half of its memory, and the first look would wait for it."""
    code = f"import sys, {module}; sys.exit(bool(sys.modules.keys() & {{'numpy', 'ssl', 'asyncio'}}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
