"""What /proc tells of a process is told by the kernel: its name, which can be any text, tells nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from condor_joblens.tracer.process_stat import FIELDS, Process

NAMED = (
    "import sys; open('/proc/self/comm', 'wb').write(bytes.fromhex(sys.argv[1])); print(flush=True); sys.stdin.read()"
)


class NoFiles:
    """Nothing is read as their owner."""

    def process_io(self, pid: int) -> bytes:
        raise PermissionError


@pytest.mark.parametrize(
    ("name", "field", "most"), [(b"\rVmSwap:999 kB", "swap_pages", 200), (b"Threads:\t777", "threads", 1)]
)
def test_the_name_of_a_process_can_not_pass_for_a_number(name: bytes, field: str, most: int) -> None:
    files: Any = NoFiles()
    command = [sys.executable, "-S", "-c", NAMED, name.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"\n"
        look = Process(process.pid, files).look()
        process.stdin.close()
    assert look is not None
    numbers = dict(zip(FIELDS, look))
    assert numbers[field] <= most and numbers["threads"] == 1
