"""The threads of a job as the kernel's iterator tells them (bpf_programs/evidence/threads.bpf.c)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from condor_joblens.profiling import calls

MOST_BYTES = 16 << 20
"""What is read of the iterator: some ten thousand threads."""

REPORT = struct.Struct("=IIIIIIQQ6Q3QQI16s4x")
"""struct thread_report of joblens_evidence.h."""

IS_OWNERS, HAS_REGISTERS, IS_ZOMBIE = 1, 2, 4
"""enum thread_flags"""

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
    threads, at = [], 0
    while at < len(data):
        if at + REPORT.size > len(data):
            raise ValueError("half a thread")
        report = REPORT.unpack_from(data, at)
        at += REPORT.size
        frames = []
        for _ in range(report[-2]):
            end = data.index(b"\n", at)
            frames.append(data[at:end].decode("ascii", "replace"))
            at = end + 1
        threads.append(_thread(report, tuple(frames)))
    return threads


def function(frame: str) -> str:
    """`pipe_read` of the line `pipe_read+0x366/0x410`."""
    return frame.partition("+")[0]


def _thread(report: tuple[Any, ...], frames: tuple[str, ...]) -> Thread:
    tid, pid, parent, inner_tid, state, flags, waited_ns, call, *words, _, name = report
    arguments, registers, thread_pointer = tuple(words[:6]), tuple(words[6:9]), words[9]
    has_registers = bool(flags & HAS_REGISTERS)
    in_call = has_registers and call < 1 << 31
    return Thread(
        tid=tid,
        pid=pid,
        parent=parent,
        inner_tid=inner_tid,
        name=name.rstrip(b"\0").decode("utf-8", "replace"),
        state=_letter(state, bool(flags & IS_ZOMBIE)),
        is_owners=bool(flags & IS_OWNERS),
        waited=waited_ns * 1e-9,
        call=calls.name(call) if in_call else "",
        arguments=arguments if in_call else (),
        registers=registers if has_registers else None,
        thread_pointer=thread_pointer if has_registers else 0,
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
