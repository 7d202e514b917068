"""The threads of a job as the kernel's iterator tells them (bpf_programs/evidence/threads.bpf.c)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from condor_joblens.profiling import calls
from condor_joblens.tracer import map_layout

MOST_BYTES = 16 << 20
"""What is read of the iterator: some ten thousand threads."""

NO_CALL = (1 << 64) - 1

# include/linux/sched.h
_SLEEPS, _UNINTERRUPTIBLE, _STOPPED, _TRACED, _NO_LOAD, _FROZEN = 1, 2, 4, 8, 0x400, 0x8000


@dataclass(frozen=True)
class Thread:
    """A thread, and where it is in the kernel. `state` is a letter as in ps(1)."""

    tid: int
    pid: int
    parent: int
    inner_tid: int  # as the thread knows itself, in the innermost pid namespace
    name: str
    state: str
    is_owners: bool  # if not, nothing below is known
    waited: float = 0.0  # seconds; at most, if the machine's clocks are not exact
    call: str = ""  # the system call's name; empty: it is in none
    arguments: tuple[int, ...] = ()
    registers: tuple[int, int, int] | None = None  # instruction, stack and frame pointer of the program
    thread_pointer: int = 0  # as pthread_self(3) tells it; 0: unknown
    kernel: tuple[str, ...] = ()  # names in the kernel, the innermost first

    @property
    def is_first(self) -> bool:
        """Whether it is the process's first thread."""
        return self.tid == self.pid


def parse(data: bytes) -> list[Thread]:
    """The threads in what the iterator wrote. Raises ValueError if it is cut off."""
    threads, at, size = [], 0, map_layout.THREAD_REPORT.itemsize
    while at < len(data):
        report = np.frombuffer(data, map_layout.THREAD_REPORT, 1, at)[0]
        at += size
        frames = []
        for _ in range(int(report["kernel_frames"])):
            end = data.index(b"\n", at)
            frames.append(data[at:end].decode("ascii", "replace"))
            at = end + 1
        threads.append(_thread(report, tuple(frames)))
    return threads


def function(frame: str) -> str:
    """`pipe_read` of the line `pipe_read+0x366/0x410`."""
    return frame.partition("+")[0]


def _thread(report: np.void, frames: tuple[str, ...]) -> Thread:
    flags = int(report["flags"])
    has_registers = bool(flags & map_layout.THREAD_HAS_REGISTERS)
    number = int(report["call"]) & NO_CALL
    in_call = has_registers and number < 1 << 31
    return Thread(
        tid=int(report["tid"]),
        pid=int(report["tgid"]),
        parent=int(report["parent_tgid"]),
        inner_tid=int(report["inner_tid"]),
        name=bytes(report["name"]).decode("utf-8", "replace"),
        state=_letter(int(report["state"]), bool(flags & map_layout.THREAD_IS_ZOMBIE)),
        is_owners=bool(flags & map_layout.THREAD_IS_OWNERS),
        waited=int(report["waited_ns"]) * 1e-9,
        call=calls.name(number) if in_call else "",
        arguments=tuple(int(argument) for argument in report["arguments"]) if in_call else (),
        registers=(int(report["ip"]), int(report["sp"]), int(report["bp"])) if has_registers else None,
        thread_pointer=int(report["thread_pointer"]) if has_registers else 0,
        kernel=frames,
    )


def _letter(state: int, is_zombie: bool) -> str:
    if is_zombie:
        return "Z"
    for letter, bits in (("T", _STOPPED), ("t", _TRACED), ("F", _FROZEN)):
        if state & bits:
            return letter
    if state & _UNINTERRUPTIBLE:
        return "I" if state & _NO_LOAD else "D"
    return "S" if state & _SLEEPS else "R"
