"""Lists of system calls: the kernel's numbers, and what it would do with our filters, read off their instructions."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from condor_joblens.agent import own_calls
from condor_joblens.common import call_refuser, lender, seccomp, starter, system_calls
from condor_joblens.owner_files import helper
from condor_joblens.profiling import starter as lookers
from condor_joblens.tracer import loader_process

ALLOW = 0x7FFF0000


def test_root_is_never_among_them() -> None:
    ids = seccomp.Ids(0, [0, -1, 5])
    assert 0 not in ids and -1 not in ids and 1 in ids
    ids = seccomp.Ids(1000, range(1000))
    assert 0 not in ids and len(ids.others) == seccomp.MOST_OTHERS


@pytest.mark.parametrize(
    "header, machine",
    [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "x86_64"), ("/usr/include/asm-generic/unistd.h", "aarch64")],
)
def test_the_numbers_of_system_calls_are_the_kernels(header: str, machine: str) -> None:
    """An aarch64 machine lacks the first header, and nobody can tell there."""
    if not os.path.exists(header) and os.uname().machine != "x86_64":
        return
    text = Path(header).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    ours = system_calls.numbers(machine)
    assert {name: known[name] for name in ours if name in known} == {n: ours[n] for n in ours if n in known}
    newest = max(number for name, number in known.items() if name != "syscalls")  # which is how many there are
    assert {name for name in ours if name not in known and ours[name] <= newest} == set()
    assert len(ours) > 300 and system_calls.name_of(ours["ptrace"], machine) == f"ptrace ({ours['ptrace']})"
    assert system_calls.name_of(4000, machine) == "number 4000"


def run(program: bytes, number: int, argument: int, architecture: int = 1, second: int = 0, third: int = 0) -> str:
    """What the kernel would do, read off the instructions."""
    data = {0: number, 4: architecture, 16: argument & 0xFFFFFFFF, 24: second & 0xFFFFFFFF, 32: third & 0xFFFFFFFF}
    at, held, kept = 0, 0, 0
    instructions = list(seccomp.struct.iter_unpack("HBBI", program))
    while True:
        code, true, false, value = instructions[at]
        at += 1
        if code == 0x20:
            held = data[value]
        elif code == 0x07:
            kept = held
        elif code == 0x06:
            return {0x7FFF0000: "allow", 0x00050001: "refuse", 0x00050026: "missing", 0x7FC00000: "ask"}[value]
        else:
            held_true = {0x15: held == value, 0x1D: held == kept, 0x35: held >= value, 0x45: held & value != 0}[code]
            at += true if held_true else false


def test_a_filter_answers_as_it_says() -> None:
    ids = {7: seccomp.Ids(1000, [64, 65]), 8: seccomp.Ids(500, [])}
    program = seccomp.compiled(1, dict.fromkeys((1, 2, 300), ALLOW), ids)
    assert {number: run(program, number, 0) for number in (1, 2, 3, 299, 300)} == {
        1: "allow", 2: "allow", 3: "refuse", 299: "refuse", 300: "allow",
    }  # fmt: skip
    assert run(program, 1, 0, architecture=2) == "refuse", "nobody is killed"
    for number, of in ids.items():
        for argument in (0, 1, 63, 64, 65, 66, 499, 500, 999, 1000, 2**31, 2**32 - 1, 2**32):
            allowed = argument & 0xFFFFFFFF in of
            assert run(program, number, argument) == ("allow" if allowed else "refuse"), (number, argument)


def test_three_ids_are_one_and_the_same() -> None:
    program = seccomp.compiled(1, {}, {7: seccomp.SameIds(1000, [64])})
    numbers = (0, 63, 64, 999, 1000, 2**32 - 1)
    allowed = {
        ids
        for ids in itertools.product(numbers, repeat=3)
        if run(program, 7, ids[0], second=ids[1], third=ids[2]) == "allow"
    }
    assert allowed == {(number,) * 3 for number in (64, 1000, 2**32 - 1)}


def test_an_effective_id_changes_and_the_others_to_the_same_or_not_at_all() -> None:
    program = seccomp.compiled(1, {}, {7: seccomp.EffectiveId(1000, [64])})
    same = 2**32 - 1
    numbers = (0, 63, 64, 999, 1000, 1001, same, 2**64 - 1)
    allowed = {
        ids
        for ids in itertools.product(numbers, repeat=3)
        if run(program, 7, ids[0], second=ids[1], third=ids[2]) == "allow"
    }
    unchanged = (same, 2**64 - 1)
    assert allowed == {
        (real, new, saved)
        for new in (64, 1000, 1001, *unchanged)
        for real, saved in itertools.product({new, *unchanged}, repeat=2)
    }


def test_files_that_are_opened_to_read_alone() -> None:
    program = seccomp.compiled(1, {}, {7: seccomp.ONLY_TO_READ})
    may = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_PATH | os.O_NONBLOCK
    assert run(program, 7, 0, third=may) == "allow"
    for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE | os.O_WRONLY, os.O_RDWR | may):
        assert run(program, 7, 0, third=flag) == "refuse"


def test_a_filter_that_tells_asks_about_what_is_not_listed() -> None:
    arguments = {7: seccomp.OneOf(1, 5, 6), 8: seccomp.A_THREAD, 9: seccomp.NO_NAMESPACE}
    program = seccomp.compiled(1, {1: ALLOW, 2: seccomp.REFUSE, 3: 0x00050026, 4: ALLOW}, arguments, 0x7FC00000)
    answers = ["ask", "allow", "refuse", "missing", "allow", "ask"]
    assert [run(program, number, 0) for number in range(6)] == answers
    assert [run(program, 7, 0, second=second) for second in (4, 5, 6, 7)] == ["ask", "allow", "allow", "ask"]
    thread, namespace, child = 0x003D0F00, 0x10000011, 0x01000011
    assert [run(program, 8, flags) for flags in (thread, namespace, child)] == ["allow", "ask", "ask"]
    assert [run(program, 9, flags) for flags in (thread, namespace, child)] == ["allow", "ask", "allow"]


LISTS = [
    own_calls.CALLS,
    starter._CALLS,
    helper._CALLS,
    lender._CALLS,
    call_refuser._CALLS,
    lookers._CALLS,
    loader_process._CALLS,
]


@pytest.mark.parametrize("calls", LISTS)
def test_each_name_on_a_list_is_a_system_calls_and_stands_there_once(calls: tuple[str, ...]) -> None:
    known = {*system_calls.numbers("x86_64"), *system_calls.numbers("aarch64")}
    assert set(calls) <= known and len(set(calls)) == len(calls)


def test_the_longest_filter_can_be_made() -> None:
    ids = seccomp.Ids(1000, range(1000))
    program = seccomp.compiled(1, dict.fromkeys(range(100), ALLOW), {200: ids, 201: ids})
    assert run(program, 201, 0) == "refuse" and run(program, 201, 1) == "allow" and run(program, 99, 0) == "allow"
