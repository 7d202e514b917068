"""Who has the lock of a Python's interpreter, by what is in memory; and what a verdict makes of that."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pytest

from condor_joblens.profiles.thread import INTERPRETER_LOCK
from condor_joblens.profiling import verdict
from condor_joblens.profiling.process import Process
from condor_joblens.profiling.threads import Thread
from condor_joblens.profiling.wait import Cause, Wait
from condor_joblens.profiling.waits import Waits

BEGIN, LOCK, STATE = 0x1000, 0x1100, 0x1400
"""Where memory begins that is there, the lock in it, and the state of the thread that has it."""

POINTERS = {10: 0x7F00_0000_1740, 11: 0x7F00_0000_2740, 12: 0x7F00_0000_3740}
"""As pthread_self(3) has them."""

INSTRUCTION, STACK = 0x7F00_1111, 0x7FFE_0000
STATUS = "Name:\tpython3\nState:\t{state} (said)\nvoluntary_ctxt_switches:\t{count}\nnonvoluntary_ctxt_switches:\t3\n"


def thread(tid: int, **more: Any) -> Thread:
    registers = INSTRUCTION, STACK, 0
    return Thread(
        tid, 10, 1, tid, f"name{tid}", "S", True, 5.0,
        **{"call": "read", "registers": registers, "thread_pointer": POINTERS[tid], **more},
    )  # fmt: skip


def wants(offset: int) -> Thread:
    """Thread 11, which looks for the lock with a deadline."""
    return thread(11, call="futex", arguments=(LOCK + offset, 0x189, 0, 0xF000, 0, 0))


@dataclasses.dataclass
class Python:
    """A process that has the lock, as /proc tells it."""

    folder: Path
    interval: int = 5000
    state: int = STATE
    is_locked: int = 1
    padding: int = 0
    in_state: tuple[int, ...] = (10,)  # whose pointers are there
    letter: str = "S"
    count: int = 7
    call: str = f"0 0x3 0x0 0x1 0x0 0x0 0x0 {STACK:#x} {INSTRUCTION:#x}"

    def awaited(self, offset: int = 72) -> Wait:
        process = self.folder / "10"
        (process / "task" / "10").mkdir(parents=True)
        (process / "maps").write_text("00001000-00002000 rw-p 00000000 08:01 7 /usr/bin/python3.13\n")
        memory = bytearray(BEGIN + 0x1000)
        struct.pack_into("<QQiIQ", memory, LOCK, self.interval, self.state, self.is_locked, self.padding, 99)
        for at, tid in enumerate(self.in_state):
            struct.pack_into("<Q", memory, STATE + 152 + 64 * at, POINTERS[tid])
        (process / "mem").write_bytes(memory)
        pages = bytearray(8 * 16)
        pages[8 * (BEGIN >> 12) + 7] = 0x80  # in the machine's memory
        (process / "pagemap").write_bytes(pages)
        (process / "status").write_text("Threads:\t3\n")
        (process / "task" / "10" / "status").write_text(STATUS.format(state=self.letter, count=self.count))
        (process / "task" / "10" / "syscall").write_text(f"{self.call}\n")
        waits = wants(offset)
        return Waits([thread(10), waits, thread(12)], {}, str(self.folder)).of(waits)


@pytest.mark.parametrize("offset", [64, 68, 72, 76])
def test_the_lock_is_found_by_where_it_is_awaited(tmp_path: Path, offset: int) -> None:
    """As glibc has it in pthread_cond_t: one of two words, before 2.41 and since."""
    wait = Python(tmp_path).awaited(offset)
    assert (wait.cause, wait.object) == (Cause.FUTEX, INTERPRETER_LOCK)
    assert (wait.holder, wait.holder_pid, wait.holder_tid) == ("thread 10 (name10)", 10, 10)


@pytest.mark.parametrize(
    "other",
    [
        {"interval": 0},
        {"interval": 1 << 40},  # an address
        {"is_locked": 0},  # whoever had it last
        {"is_locked": 2},
        {"padding": 1},
        {"state": STATE + 4},
        {"state": 0},
        {"state": 0x9000},  # where nothing is
        {"in_state": ()},  # a thread that is gone, or of another process
        {"in_state": (10, 12)},
        {"letter": "R"},
        {"call": "running"},
        {"call": ""},
        {"call": f"0 0x3 0x0 0x1 0x0 0x0 0x0 {STACK:#x} 0x7f002222"},
    ],
    ids=str,
)
def test_nobody_is_said_to_have_it_if_it_is_not_sure(tmp_path: Path, other: dict[str, Any]) -> None:
    wait = Python(tmp_path, **other).awaited()
    assert (wait.object, wait.holder, wait.holder_tid) == (INTERPRETER_LOCK, "", 0)


@pytest.mark.parametrize("word", ["State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"])
def test_who_has_run_meanwhile_may_have_given_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    lines, asked = Process.lines, list[str]()

    def changing(process: Process, name: str) -> list[str]:
        found = lines(process, name)
        if name.startswith("task/"):
            asked.append(name)
            changed = {"State:": "State:\tD (said)"}.get(word, f"{word}\t{len(asked)}")
            found = [changed if line.startswith(word) and len(asked) > 1 else line for line in found]
        return found

    monkeypatch.setattr(Process, "lines", changing)
    assert Python(tmp_path).awaited().holder == "" and len(asked) == 2


WANTS = Wait(Cause.FUTEX, INTERPRETER_LOCK, "thread 10 (name10)", 10, 10)


def test_who_has_it_tells_more_than_who_waits_for_it() -> None:
    """Both wait for something of another thread."""
    pairs = [(thread(11), WANTS), (thread(12), Wait(Cause.FUTEX, "something of another thread"))]
    pairs += [(thread(10), Wait(Cause.FUTEX, "something of another thread"))]
    said = verdict.judge(pairs)
    assert (said.cause, said.tid) == (Cause.UNKNOWN, 10)
    assert verdict.without_interpreter(pairs, said) == (
        f"thread 11 (name11) waits for {INTERPRETER_LOCK}, held by thread 10 (name10)"
    )


def test_the_lock_can_be_part_of_a_deadlock() -> None:
    """The thread that tells is one that sleeps for good: who wants the lock wakes up again and again."""
    mutex = Wait(Cause.MUTEX, "a mutex at 0x1", "thread 11 (name11)", 10, 11)
    pairs = [(thread(11), WANTS), (thread(12), WANTS), (thread(10), mutex)]
    said = verdict.judge(pairs)
    assert (said.cause, said.tid, said.cycle, said.is_suspicious) == (Cause.DEADLOCK, 10, (10, 11), True)
    assert said.sentence == (
        f"threads wait for each other: 10 waits for a mutex at 0x1 of 11, 11 waits for {INTERPRETER_LOCK} of 10"
    )
    assert verdict.without_interpreter(pairs, said).startswith("thread 12 (name12) waits for")


def test_threads_that_all_wait_for_it_have_no_cause() -> None:
    """Nobody knows who has it."""
    pairs = [(thread(tid), Wait(Cause.FUTEX, INTERPRETER_LOCK)) for tid in POINTERS]
    said = verdict.judge(pairs)
    assert (said.cause, said.cycle) == (Cause.UNKNOWN, ())
    assert f"waits for {INTERPRETER_LOCK}" in said.sentence
