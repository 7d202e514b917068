"""A job that waits for a file system whose server does not answer: it is told so, and nobody else is held up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import Ground, Slot, fuse_program, until
from test_evidence import Look, look, lookers, program, seen, start, start_command, summary_of, thread_of
from test_ways_to_hang import folder

from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.profiles import evidence as told
from condor_joblens.profiling.starter import LOOK_SECONDS

__all__ = ["folder", "look", "lookers", "program"]

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")


def state_of(task: Path) -> str:
    """A letter, as in ps(1)."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


class Mount:
    """Our own FUSE file system, until its server stands still."""

    def __init__(self, where: Path) -> None:
        self.where = where
        where.mkdir()
        options = "subtype=cvmfs2,allow_other,attr_timeout=3600,entry_timeout=3600"
        self._server = subprocess.Popen([fuse_program(), where, "-f", "-o", options])
        until(where.is_mount)

    def dies(self) -> None:
        """Its server does not answer from now on, and takes no request: one that it has taken no kill would end."""
        self._server.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._server.pid}/task")
        until(lambda: all(state_of(task) == "T" for task in tasks.iterdir()))

    def close(self) -> None:
        self._server.kill()
        self._server.wait(10)
        subprocess.run(["umount", "-l", str(self.where)], check=True)


@pytest.fixture
def mount(folder: Path) -> Iterator[Mount]:
    found = Mount(folder / "mounted")
    yield found
    found.close()


@pytest.mark.parametrize(
    ("way", "file", "cause", "call", "states"),
    [
        ("read_file", "slow", "file", "pread64", "S"),
        ("touch_file", "data", "page", "", "D"),
        ("write_from_file", "data", "page", "pwrite64", "D"),
    ],
)
def test_file_and_mount_are_told(
    way: str,
    file: str,
    cause: str,
    call: str,
    states: str,
    slot: Slot,
    look: Look,
    program: Path,
    mount: Mount,
    folder: Path,
) -> None:
    path, said = mount.where / file, folder / "told"
    said.touch()
    said.chmod(0o666)
    pid = start_command(slot, [str(program), way, str(path)], HANG_TOLD=str(said))
    until(lambda: "target" in said.read_text())
    mount.dies()
    found = seen(look, lambda found: found.cause == cause and thread_of(found, pid).waited > 1)
    record = found.record()
    assert (record["Tid"], record["Target"], record["Call"]) == (pid, str(path), call)
    assert (record["FileSystem"], record["Mount"]) == ("fuse.cvmfs2", str(mount.where))
    assert thread_of(found, pid).state in states
    assert f"{path} (fuse.cvmfs2 at {mount.where})" in found.sentence
    assert ", which has not answered for " in found.sentence and "; called by wait_for_ever(" in found.sentence
    assert summary_of(look)["suspicious"] is True


def test_a_program_on_it_costs_its_look_the_stacks_alone_and_others_nothing(
    ground: Ground, slot: Slot, look: Look, lookers: ProcessStarter, program: Path, mount: Mount
) -> None:
    """Its names can't be read: the look ends by itself, and others are taken meanwhile."""
    shutil.copyfile(program, copy := mount.where / "data")
    pid = start(slot, copy, "pipe")
    until(lambda: "pipe" in Path(f"/proc/{pid}/wchan").read_text())
    other = ground.slot("condor_slot2")
    start(other, program, "pause")
    looks_there = Look(other, lookers, look._folder)
    seen(looks_there, lambda found: found.cause == "signal")
    mount.dies()
    began = time.monotonic()
    with look.begun() as channel:
        data = channel.recv(65536)  # the kernel answers one question at a time
        assert looks_there().is_whole
        data += b"".join(iter(lambda: channel.recv(65536), b""))
    assert time.monotonic() - began >= LOOK_SECONDS - 1, "it has waited for the file"
    found = told.parse(data)
    assert (found.cause, found.is_whole) == ("pipe", False)
    assert thread_of(found, pid).target.startswith("pipe:")
