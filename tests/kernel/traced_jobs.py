"""Jobs whose functions are traced, and traces of them as joblensd starts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ground import PATIENCE, Slot, traced_program

from condor_joblens.common import descriptors
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.model.trace_spec import parse
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.profiling.elf import Elf
from condor_joblens.profiling.process import Process
from condor_joblens.profiling.program_files import REQUEST
from condor_joblens.tracer.sensors import Recorder
from condor_joblens.tracing.functions import find

OWN, TRACER, ALICE = 64001, 64003, 12345
ALLOWED = AllowedIds(1000, (), 1000, ())
SECONDS = 120.0 * PATIENCE
SHARE = 1.0 * PATIENCE
"""Of what probes may cost a job. A hit on an emulated CPU takes so long that some hundred are too many at a time."""


class Traces:
    """Traces as joblensd starts them, of jobs of one slot."""

    def __init__(self, slot: Slot, folder: Path) -> None:
        self.slot, self.folder = slot, folder
        self._recorder: Recorder | None = None
        self._lookers = ProcessStarter("looks", ALLOWED.encode(), OWN, OWN, "condor_joblens.profiling.starter")
        self._tracers = ProcessStarter("traces", str(PATIENCE), TRACER, TRACER, "condor_joblens.tracing.starter")

    def close(self) -> None:
        self._lookers.close()
        self._tracers.close()

    @property
    def starter(self) -> int:
        """The process whose children the traces are."""
        return self._tracers.pid

    def kill_starter(self) -> None:
        """What starts traces is ended, as by the kernel for want of memory."""
        os.kill(self._tracers.pid, signal.SIGKILL)

    def record(self) -> Recorder:
        """The flight recorder has the job, and traces that begin from now on have their part in it."""
        sensor = self.slot.tracer.sensors["recorder"].sensor
        assert isinstance(sensor, Recorder)
        sensor.describe(self.slot.index, ALICE)
        assert self.slot.tracer.sensors["recorder"].start(self.slot.index), self.slot.tracer.missing
        self._recorder = sensor
        return sensor

    def begin(self, *specs: str, seconds: float = SECONDS, **asked: Any) -> socket.socket:
        """The socket on which the trace tells what it sees."""
        maps: list[int] = []
        if self._recorder is not None:
            maps = self._recorder.for_traces()
            asked["recorder"] = {"slot": self.slot.index, "places": self._recorder.places}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opener, opened = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        cgroup = os.open(self.slot.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with theirs, opener, opened:
                self._lookers.start(opened, folder)
                self._tracers.start(theirs)
                descriptors.send(opener, REQUEST)
                request = {"specs": specs, "seconds": seconds, "uid": ALICE, "share": SHARE, **asked}
                descriptors.send(ours, json.dumps(request).encode(), [cgroup, opener.fileno(), *maps])
        finally:
            os.close(folder)
            os.close(cgroup)
        return ours


@contextlib.contextmanager
def job(
    slot: Slot, *arguments: str, uid: int = ALICE, root: Path | None = None, by: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """The program in the slot as its owner; it waits to be told to begin. `by`: a command that executes it.

    `root`: the folder that it has as its root, and there it is as `/traced`.
    """

    def enter() -> None:
        slot.enter()
        if root is not None:
            os.chroot(root)
            os.chdir("/")
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

    program = str(traced_program()) if root is None else "/traced"
    process = subprocess.Popen(
        [*by, program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=enter
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def act(process: subprocess.Popen[str]) -> None:
    """It does what it is for, and has said so; it lives on."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def end(process: subprocess.Popen[str]) -> None:
    """It ends as it should."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0


def is_probed(pid: int, name: str = "plain", library: str = "") -> bool:
    """Whether the process has a breakpoint where the function begins: of the program, or of a library of this name."""
    paths = [each.path for each in Process(pid).mappings if library and f"/{library}" in each.path]
    if library and not paths:
        return False
    path = paths[0] if library else str(traced_program())
    with open(path, "rb") as file:
        function = find(Elf(file.fileno()), parse(f"*:{name}")).functions[0]
        offset = function.offset + function.places[0].distance
    for mapping in Process(pid).mappings:
        if mapping.path == path and 0 <= offset - mapping.offset < mapping.end - mapping.start:
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                return os.pread(memory.fileno(), 1, mapping.start + offset - mapping.offset) == b"\xcc"
    return False
