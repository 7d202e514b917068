"""Level profile as kernels before 5.17 have it: stacks by frame pointers alone, each a guess, and the title says so.

In this machine's kernel the programs for those are loaded by force. `make test-kernels` runs this on 5.10 itself.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import new_name
from ground import Ground, Slot, guessed_programs, on_ground
from test_profile import (
    BOB,
    LEAVES,
    TRIES,
    Profiled,
    crash_of,
    functions,
    is_whole,
    line_of,
    lookers,
    readers,
    sampled,
    share,
    start,
    talking,
)

from condor_joblens.cli.flame import rendered
from condor_joblens.common import kernel_limits
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.profiles.flame_graph import counts
from condor_joblens.profiles.profile import Kind
from condor_joblens.profiles.profile import Profile as Told
from condor_joblens.tracer.loader import Part
from condor_joblens.tracer.sensors import Profile

__all__ = ["lookers", "readers"]

pytestmark = [pytest.mark.guest, pytest.mark.guesses]

ENOUGH = 40
"""Samples; emulated CPUs take them slowly."""

SEEN = ["main", "outer", *["middle"] * 6]
"""Callers of `leaf`, the outermost first. It calls nobody, so gcc gives it no frame pointer: that hides `inner`."""


def only_last(part: Part) -> Part:
    """The part as it is where the kernel refuses all variants but the last one."""
    return dataclasses.replace(part, objects=part.objects[-1:], variants=part.variants[-1:])


@pytest.fixture(scope="module")
def old_ground() -> Iterator[Ground]:
    """A tracer that has nothing better than what such a kernel takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Profile, "parts", tuple(map(only_last, Profile.parts)))
        with on_ground(new_name()) as ground:
            yield ground


@pytest.fixture
def slot(old_ground: Ground) -> Iterator[Slot]:
    yield old_ground.slot()
    old_ground.clear()


@pytest.fixture
def profiled(slot: Slot, lookers: ProcessStarter, readers: ProcessStarter) -> Iterator[Profiled]:
    with sampled(slot, lookers, readers) as found:
        yield found


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[str, Path]]:
    """Where their owner may run them."""
    with tempfile.TemporaryDirectory(prefix="joblens-guessed", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield {what: Path(shutil.copy(path, name)) for what, path in guessed_programs().items()}


def of(window: Told, pid: int) -> Told:
    """What a window has of one process."""
    stacks = {stack: count for stack, count in window.stacks.items() if stack.pid == pid}
    return dataclasses.replace(window, stacks=stacks)


def test_a_program_with_frame_pointers_has_its_functions_and_the_title_says_that_they_are_guessed(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    pid = profiled.has_begun(start(slot, programs["profiled"], "plain"))
    window = of(profiled.window(pid), pid)
    assert profiled.sensor.is_guessing

    found = share(window, lambda stack: is_whole(stack, SEEN))
    assert found >= 0.95, sorted((functions(stack), count) for stack, count in window.stacks.items())
    assert window.guessed >= 0.95 * window.samples
    assert window.lost == window.not_ours == 0
    assert window.limits == kernel_limits.of_this_kernel()
    assert counts(window).startswith("kernel ") and "frame pointers only, no Python" in counts(window)
    assert f">{counts(window)}" in rendered(window, "svg").decode()


def test_a_call_has_functions_of_the_kernel(slot: Slot, profiled: Profiled) -> None:
    """Of a program that is in read(2) and write(2) most of the time, whatever is known of it."""
    start(slot, Path("/usr/bin/dd"), "if=/dev/zero", "of=/dev/null", "bs=1M")
    profiled.until(lambda: profiled.counted() >= ENOUGH)
    window = profiled.close_window()

    names = {frame.function for stack in window.stacks for frame in stack.frames if frame.kind is Kind.KERNEL}
    assert "do_syscall_64" in names or "el0_svc" in names, names


def test_a_set_user_id_program_is_left_alone_and_said(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """Of its stack nothing is told, though its owner has started it."""
    foreign = Path(shutil.copy(programs["profiled"], programs["profiled"].with_name("foreign")))
    os.chown(foreign, BOB, BOB)
    foreign.chmod(0o4755)
    pid = start(slot, foreign, "plain")
    profiled.until(lambda: profiled.not_ours() >= ENOUGH)
    window = profiled.close_window()

    assert window.not_ours >= ENOUGH
    assert not any(stack.pid == pid and functions(stack)[-2:] == ["inner", "leaf"] for stack in window.stacks)


def test_waits_have_their_time_what_they_waited_for_and_callers(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """The C library has no frame pointers: the function that has called it is missing, and its callers are there."""
    slot.start_io()
    pid, to_it, from_it = talking(slot, programs["waiting"], "5")
    profiled.until(lambda: profiled.knows(pid))
    for _ in range(TRIES):
        profiled.forget_waits()
        os.write(to_it, b"\n")
        truth = json.loads(line_of(profiled, from_it))
        found = profiled.waited()
        slept = {stack: ns for stack, ns in found.stacks.items() if stack.frames[-1].function == LEAVES["sleeps_long"]}
        if sum(slept.values()) >= 0.9 * (truth["sleeps_briefly"] + truth["sleeps_long"]):
            break
    assert sum(slept.values()) >= 0.9 * (truth["sleeps_briefly"] + truth["sleeps_long"])
    os.close(to_it)
    os.close(from_it)
    assert any("main" in functions(stack) for stack in slept), [functions(stack) for stack in slept]
    assert found.guessed == found.samples and found.limits


def test_where_a_program_crashed_is_told(slot: Slot, profiled: Profiled, programs: dict[str, Path]) -> None:
    """`inner` has a frame pointer, so all of its callers are there."""
    status = crash_of(slot, profiled, programs["crashed"], "null")
    assert os.WTERMSIG(status) == signal.SIGSEGV
    profiled.until(lambda: profiled.crashes)
    ((_, number, words, found),) = profiled.crashes
    assert number == signal.SIGSEGV and found.is_ours and found.is_guessed
    names = [frame.function.partition(".cold")[0] for frame in found.frames]
    assert names[:1] == ["inner"] and "main" in names, names
    assert words.startswith("inner") and "(test_guessed_crashed)" in words


def test_where_a_set_user_id_program_crashed_is_not_looked_at(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    foreign = Path(shutil.copy(programs["crashed"], programs["crashed"].with_name("foreign_crashed")))
    os.chown(foreign, BOB, BOB)
    foreign.chmod(0o4755)
    assert os.WTERMSIG(crash_of(slot, profiled, foreign, "null")) == signal.SIGSEGV
    profiled.until(lambda: profiled.crashes)
    ((_, number, words, found),) = profiled.crashes
    assert (number, words, found.is_ours, found.frames) == (signal.SIGSEGV, "", False, ())
