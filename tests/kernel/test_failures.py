"""Programs that fail in every way there is: the call, and the file or the server, that their end is blamed on.

And programs that meet errors all the time and end for other reasons: none is blamed.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ground import Ground, Slot

from condor_joblens.agent.lifecycle.death import causes_of
from condor_joblens.tracer import map_layout

pytestmark = pytest.mark.guest

MIB = 1 << 20
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}


@pytest.fixture
def io_slot(ground: Ground) -> Slot:
    slot = ground.slot()
    slot.start_io()
    return slot


def blamed(
    slot: Slot,
    *arguments: str,
    before_exec: Callable[[], object] = lambda: None,
    environment: dict[str, str] = PLAIN,
) -> list[str]:
    """What the ends of a program and of its children are blamed on: of those that ended otherwise than well."""

    def act() -> None:
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        before_exec()
        os.execve(arguments[0], list(arguments), environment)

    os.waitpid(slot.fork(act), 0)
    found = slot.tracer.processes.take()
    ended = found[(found["kind"] == map_layout.PROCESS_EXIT) & (found["exit_code"] != 0)]
    assert len(ended), f"{arguments} ended well"
    return [cause for cause in causes_of(slot.tracer, slot.index, ended).values() if cause]


def shell(slot: Slot, text: str, **how: object) -> list[str]:
    return blamed(slot, "/bin/bash", "-c", text, **how)  # type: ignore[arg-type]


def python(slot: Slot, text: str, **how: object) -> list[str]:
    return blamed(slot, "/usr/bin/python3", "-c", text, **how)  # type: ignore[arg-type]


# -- no space -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system with room for 64 KiB, whose path is short enough to be shown whole."""
    where = Path(tempfile.mkdtemp(prefix="small-", dir="/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", where], check=True)
    yield where
    subprocess.run(["umount", "-l", where], check=True)
    where.rmdir()


def test_dd_on_a_full_file_system(io_slot: Slot, small: Path) -> None:
    assert shell(io_slot, f"dd if=/dev/zero of={small}/data bs=1k count=1000") == [
        f"no space left on {small}: {small}/data"
    ]


def test_a_program_that_says_nothing_of_a_full_file_system(io_slot: Slot, small: Path) -> None:
    text = (
        f"import os\nfile = os.open('{small}/a', os.O_WRONLY | os.O_CREAT)\n"
        "try:\n while os.write(file, bytes(4096)): pass\nexcept OSError: os._exit(4)"
    )
    assert python(io_slot, text) == [f"no space left on {small}: {small}/a"]


def test_a_device_that_is_always_full(io_slot: Slot) -> None:
    assert shell(io_slot, "echo x >/dev/full") == ["no space left on /dev/full"]


# -- paths --------------------------------------------------------------------------------------------------------


def test_a_missing_file_that_a_shell_reads(io_slot: Slot, tmp_path: Path) -> None:
    missing = tmp_path / "cvmfs" / "setup.sh"
    assert shell(io_slot, f"set -e; . {missing}; echo") == [f"no such file: {missing}"]


def test_a_missing_file_that_python_opens(io_slot: Slot, tmp_path: Path) -> None:
    script = tmp_path / "payload.py"
    script.write_text(f"import json\nopen('{tmp_path}/conditions.json')\n")
    assert blamed(io_slot, "/usr/bin/python3", str(script)) == [f"no such file: {tmp_path}/conditions.json"]


def test_a_command_that_is_nowhere(io_slot: Slot) -> None:
    assert shell(io_slot, "reconstruct --all") == ["no such file: reconstruct"]


def test_a_command_that_a_shell_has_a_child_for_and_does_not_find(io_slot: Slot) -> None:
    assert shell(io_slot, "reconstruct --all; exit $?") == ["no such command: reconstruct"]


def test_a_file_that_may_not_be_read(io_slot: Slot, tmp_path: Path) -> None:
    secret = tmp_path / "closed"
    secret.touch(0o600)
    os.chmod(tmp_path, 0o755)

    def as_nobody() -> None:
        os.setgid(65534)
        os.setuid(65534)

    folder = tmp_path
    while folder != folder.parent:
        if folder.stat().st_mode & 0o5 != 0o5:
            os.chmod(folder, 0o755)
        folder = folder.parent
    assert shell(io_slot, f"cat {secret}", before_exec=as_nobody) == [f"permission denied: {secret}"]


def test_a_read_only_file_system(io_slot: Slot, small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    assert shell(io_slot, f"touch {small}/new") == [f"read-only file system: {small}/new"]


def test_a_path_with_what_a_terminal_takes_for_more(io_slot: Slot) -> None:
    assert shell(io_slot, "set -e; . $'/x/\\e[31mred'; echo") == ["no such file: /x/\\x1b[31mred"]


# -- limits -------------------------------------------------------------------------------------------------------


def test_a_limit_of_memory(io_slot: Slot) -> None:
    limit = 256 * MIB
    causes = python(
        io_slot, "kept = [bytearray(32 << 20) for _ in range(100)]",
        before_exec=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert causes == ["not allowed to allocate more memory: limit 256 MiB"]


def test_a_limit_of_open_files(io_slot: Slot) -> None:
    causes = python(
        io_slot, "kept = [open('/dev/null') for _ in range(100)]",
        before_exec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
    )  # fmt: skip
    assert causes == ["too many open files: limit 40"]


# -- sound programs -----------------------------------------------------------------------------------------------

HEALTHY = {
    "bash": "bash -c 'exit 3'",
    "bash that finds": "PATH=/nowhere:/else:$PATH ls / >/dev/null; exit 3",
    "bash with words": "[ -e /nowhere/n ]; echo 'nothing to do with n' >&2; exit 3",
    "a word that is not found": "(echo 'the key: not found' >&2; exit 5)",
    "sh": "sh -c 'test -f /nowhere/n; exit 4'",
    "test": "test -f /nowhere/n",
    "python": "python3 -c 'import sys; sys.exit(3)'",
    "python that imports": "python3 -c 'import json, socket, ctypes, sqlite3; raise SystemExit(\"wrong\")'",
    "python that raises": "python3 -c 'raise ValueError(\"3 events\")'",
    "python that tries": 'python3 -c \'import os, sys; os.path.exists("/nowhere/n"); sys.exit("bad: n")\'',
    "perl": "perl -e 'use POSIX; exit 3'",
    "perl that dies": "perl -e 'use strict; die \"wrong\"'",
    "gcc": "printf 'int main(void) { return x; }' | gcc -x c -o /dev/null -",
    "gcc with headers": "printf '#include <stdio.h>\\n#include <string.h>\\nint main(' | gcc -x c -o /dev/null -",
    "make": "printf 'all: ; @false\\n' | make -f -",
    "make without a target": "printf 'a: b\\nb:\\n\\t@exit 3\\n' | make -f -",
    "git": "git -C / log",
    "ls": "ls --no-such-option",
    "tar": "printf x | tar xf -",
    "grep": "grep -q nothing /etc/hostname",
    "awk": "awk 'BEGIN { exit 5 }'",
    "sort": "sort --no-such-option",
    "diff": "diff /etc/hostname /etc/fstab",
    "find": "find / -maxdepth 0 -nothing",
    "env": "env -i PATH=/x:$PATH sh -c 'exit 6'",
    "timeout": "timeout 0.05 sleep 60",
    "a library that is found": "LD_LIBRARY_PATH=/nowhere:/else ls / >/dev/null; exit 3",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_a_sound_program_meets_is_not_blamed(io_slot: Slot, tmp_path: Path, name: str) -> None:
    assert shell(io_slot, f"cd {tmp_path}; {HEALTHY[name]}") == []


def test_a_program_that_ends_well_leaves_its_room_to_others(io_slot: Slot) -> None:
    missing = "/nowhere/setup.sh"
    many = "for i in $(seq 60); do bash -c true; done"
    assert shell(io_slot, f". {missing}; {many}; exit 5") == [f"no such file: {missing}"]


# -- connections, at level basic as well ---------------------------------------------------------------------------

CLOSED = """
import socket, sys, time
closed = socket.create_server(("127.0.0.1", 0))
port = closed.getsockname()[1]
closed.close()
"""
"""A port at which nobody listens."""


@pytest.fixture
def slot(ground: Ground) -> Slot:
    return ground.slot()


def connects(slot: Slot, text: str) -> list[str]:
    return [re.sub(r":\d+$", ":PORT", cause) for cause in python(slot, CLOSED + text)]


def test_a_refused_connection_at_level_basic(slot: Slot) -> None:
    assert connects(slot, "socket.create_connection(('127.0.0.1', port))") == ["connection refused by 127.0.0.1:PORT"]


def test_a_refused_connection_that_does_not_block(slot: Slot) -> None:
    text = """
import select
asking = socket.socket()
asking.setblocking(False)
asking.connect_ex(("127.0.0.1", port))
select.select([], [asking], [])
sys.exit(7)
"""
    assert connects(slot, text) == ["connection refused by 127.0.0.1:PORT"]


def test_a_connection_that_nobody_answers(slot: Slot) -> None:
    """A listener's queue is full, so that what asks for a connection is dropped."""
    text = """
deaf = socket.socket()
deaf.bind(("127.0.0.1", 0))
deaf.listen(0)
asked = []
while True:
    asking = socket.socket()
    asking.settimeout(1.5)
    asked.append(asking)
    asking.connect(deaf.getsockname())
"""
    assert connects(slot, f"try:{textwrap.indent(text, ' ')}\nexcept TimeoutError: asking.close(); sys.exit(28)") == [
        "no answer from 127.0.0.1:PORT"
    ]


def test_a_refused_connection_at_level_io_is_said_once(io_slot: Slot) -> None:
    causes = connects(io_slot, "socket.create_connection(('127.0.0.1', port))")
    assert causes == ["connection refused by 127.0.0.1:PORT"]


def test_of_many_processes_each_has_its_own(slot: Slot) -> None:
    """More than a slot keeps: the last ones are known."""
    text = """
import os
for number in range(20):
    if not os.fork():
        socket.socket().connect(("127.0.0.1", port))
    os.wait()
sys.exit(3)
"""
    causes = connects(slot, text)
    assert 1 <= len(causes) <= 20 and set(causes) == {"connection refused by 127.0.0.1:PORT"}


CONNECTED = """
open_one = socket.create_server(("127.0.0.1", 0))
def refused():
    socket.socket().connect_ex(("127.0.0.1", port))
def connected():
    socket.create_connection(open_one.getsockname())
"""

HEALTHY_CONNECTIONS = {
    "the second address answers": "refused(); connected(); sys.exit(3)",
    "many refuse before one answers": "[refused() for _ in range(9)]; connected(); sys.exit(3)",
    "the end is much later": "refused(); time.sleep(2.5); sys.exit(3)",
    "one is still asked for": "refused(); connected(); socket.socket().connect_ex(open_one.getsockname()); sys.exit(3)",
    "a thread has an answer": "import threading; refused(); other = threading.Thread(target=connected); other.start(); "
    "other.join(); sys.exit(3)",
    "the parent was refused": "import os; refused(); os.fork() or os._exit(3); os.wait(); connected(); sys.exit(4)",
    "given up at once": "asking = socket.socket(); asking.setblocking(False); asking.connect_ex(('10.255.255.1', 9)); "
    "asking.close(); sys.exit(3)",
    "ended by a signal": "import os; refused(); os.kill(os.getpid(), 15)",
    "datagrams": "asking = socket.socket(type=socket.SOCK_DGRAM); asking.connect(('127.0.0.1', port)); "
    "asking.send(b'x'); time.sleep(0.1); sys.exit(3)",
}


@pytest.mark.parametrize("name", HEALTHY_CONNECTIONS)
def test_a_connection_that_is_not_why_a_program_ends_is_not_blamed(slot: Slot, name: str) -> None:
    assert connects(slot, CONNECTED + HEALTHY_CONNECTIONS[name]) == []


def test_what_sound_programs_meet_is_not_blamed_at_level_basic(slot: Slot, tmp_path: Path) -> None:
    found = {name: shell(slot, f"cd {tmp_path}; {command}") for name, command in HEALTHY.items()}
    assert {name: causes for name, causes in found.items() if causes} == {}
