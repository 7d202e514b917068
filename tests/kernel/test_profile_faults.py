"""What goes wrong beside a job that is sampled, and what jobs do to it: it costs their profiles at most, and is said.

More of it is in test_profile.py, as a program that is deleted.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ground import Slot, in_child, until
from test_dead_mount import Mount, mount
from test_evidence import Look, look, seen, thread_of
from test_profile import (
    DEEP,
    ENOUGH,
    READER,
    RUN,
    Profiled,
    Stack,
    Told,
    functions_of_python,
    is_whole,
    lookers,
    profiled,
    programs,
    readers,
    sampled,
    script,
    share,
    start,
)
from test_ways_to_hang import folder

from condor_joblens.agent.profiles import PATIENCE
from condor_joblens.cli import hot
from condor_joblens.cli.flame import rendered
from condor_joblens.cli.terminal import Style
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.profiles import pprof
from condor_joblens.profiles.flame_graph import counts
from condor_joblens.profiles.hottest import hottest
from condor_joblens.profiles.profile import View, merged, under
from condor_joblens.profiling.python_offsets import TABLE

__all__ = ["folder", "look", "lookers", "mount", "profiled", "programs", "readers"]

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")

MAPPINGS = 100_000
MOST_MAPPINGS = Path("/proc/sys/vm/max_map_count")


@pytest.fixture
def room_for_mappings() -> Iterator[None]:
    """A process may have so many, which on many machines it may not."""
    before = int(MOST_MAPPINGS.read_text())
    MOST_MAPPINGS.write_text(str(max(before, MAPPINGS + 1000)))
    yield
    MOST_MAPPINGS.write_text(str(before))


def whole(window: Told, pid: int) -> float:
    """Of the samples of a process of ours that is busy, those with all callers."""
    of_it = {stack: count for stack, count in window.stacks.items() if stack.pid == pid}
    good = sum(count for stack, count in of_it.items() if is_whole(stack, ["main", *DEEP]))
    return good / sum(of_it.values()) if of_it else 0.0


def everything(profiled: Profiled) -> Told:
    """All that was kept of what ran."""
    return merged(pprof.decode(data) for data in profiled.kept)


def end(pids: list[int]) -> None:
    """Of our children."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_job_with_a_hundred_thousand_mappings_has_its_stacks(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], look: Look, room_for_mappings: None
) -> None:
    """Those of its program and of libraries are at both ends of the list. A neighbour of it has its own as well."""
    pid, other = start(slot, programs["shared"], "thread", str(MAPPINGS)), start(slot, programs["shared"], "plain")
    until(lambda: Path(f"/proc/{pid}/maps").read_bytes().count(b"\n") > MAPPINGS)
    profiled.until(lambda: profiled.knows(other))
    window = profiled.window(pid)
    assert share(window, lambda stack: stack.pid != pid or is_whole(stack, ["threaded", *DEEP])) >= 0.99
    assert whole(window, other) >= 0.99 and window.lost == 0
    assert profiled.said == [] and profiled.profiles.restarts == 0
    found = seen(look, lambda found: thread_of(found, pid).cause == "thread" and thread_of(found, pid).frames)
    thread = thread_of(found, pid)
    assert "main" in [frame.function for frame in thread.frames] and thread.is_whole


FORKS = 20_000


def test_a_storm_of_forks_loses_no_sample_undeclared(slot: Slot, profiled: Profiled, programs: dict[str, Path]) -> None:
    """Each process is unknown, and gone before it can be looked at. One that begins within it has its stacks."""
    pids = [start(slot, programs["static"], way) for way in ("forks", "forks")]
    profiled.until(lambda: slot.totals()["process_forked"] >= FORKS / 2)
    pids.append(start(slot, programs["static"], "plain"))
    profiled.until(lambda: slot.totals()["process_forked"] >= FORKS)
    profiled.until(lambda: whole(profiled.window(pids[2]), pids[2]) >= 0.9)
    end(pids)
    until(lambda: not (slot.path / "cgroup.procs").read_text())
    profiled.close_window()
    found = everything(profiled)
    assert found.samples + found.lost + found.not_ours == profiled.counted()
    assert profiled.said == [] and profiled.profiles.restarts == 0


def test_a_program_on_a_mount_that_does_not_answer_costs_its_own_names_alone(
    slot: Slot, lookers: ProcessStarter, readers: ProcessStarter, programs: dict[str, Path], mount: Mount
) -> None:
    """It runs on in memory. Who would open it ends by an alarm, and other programs of the job are known then."""
    shutil.copyfile(programs["static"], copy := mount.where / "data")
    pid = start(slot, copy, "plain")
    until(lambda: os.readlink(f"/proc/{pid}/exe") == str(copy))
    until(lambda: int(Path(f"/proc/{pid}/stat").read_text().split()[13]) > 50)  # by now all of it is in memory
    mount.dies()
    with sampled(slot, lookers, readers) as profiled:
        profiled.until(lambda: profiled.counted() >= 20)
        other = start(slot, programs["shared"], "plain")
        window = profiled.window(other)
        assert whole(window, other) >= 0.99 and whole(window, pid) == 0.0
        assert sum(count for stack, count in window.stacks.items() if stack.pid == pid) >= 20
        assert window.lost == 0 and profiled.said == []


def test_a_program_of_two_gigabytes_has_its_functions(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """Its symbols are found behind that; nearly all of it is a hole."""
    content, far = bytearray(programs["shared"].read_bytes()), (2 << 30) + 4096
    (sections,) = struct.unpack_from("<Q", content, 0x28)
    struct.pack_into("<Q", content, 0x28, far)
    large = programs["shared"].with_name("large")
    with open(large, "wb") as file:
        file.write(content)
        file.seek(far)
        file.write(content[sections:])
    large.chmod(0o755)
    try:
        pid = start(slot, large, "plain")
        assert whole(profiled.window(pid), pid) >= 0.99
        peak = next(
            line for line in Path(f"/proc/{profiled.profiles.pid}/status").read_text().splitlines() if "HWM" in line
        )
        assert int(peak.split()[1]) < 150 << 10
    finally:
        large.unlink()


SPINS = "def spin():\n    while True: sum(range(1000))\nspin()"


@pytest.mark.parametrize("copies", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_copies_of_a_python_each_have_their_functions(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], copies: int
) -> None:
    """As in as many environments of their owner's: no file of one is another's."""
    python, pids = Path(os.path.realpath("/usr/bin/python3")), []
    for number in range(copies):
        folder = programs["shared"].with_name(f"environment{copies}_{number}")
        folder.mkdir()
        pids.append(start(slot, Path(shutil.copy(python, folder)), "-S", "-E", "-c", SPINS))
    profiled.until(lambda: all(map(profiled.knows_python, pids)))
    named: set[int] = set()

    def are_named() -> bool:
        window = profiled.window(pids[0], 10)
        named.update(stack.pid for stack in window.stacks if functions_of_python(stack)[-2:] == ["<module>", "spin"])
        return named >= set(pids)

    profiled.until(are_named)
    end(pids)
    profiled.close_window()
    found = everything(profiled)
    assert found.samples + found.lost + found.not_ours == profiled.counted() and profiled.said == []


MOST_PYTHON_FRAMES = 129
"""In a sample: SAMPLE_PYTHON_FRAMES of joblens_profile.h, and one."""

FRAME_IN_OBJECT = 24
"""Where a frame object of Python 3.11 has its frame's address (PyFrameObject.f_frame)."""


def put_into_circle(pid: int, inner: int, outer: int) -> None:
    """The caller of the outer frame is the inner one, which it has called; given are their objects' addresses."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        first, second = (
            struct.unpack("<Q", os.pread(memory.fileno(), 8, at + FRAME_IN_OBJECT))[0] for at in (inner, outer)
        )
        os.pwrite(memory.fileno(), struct.pack("<Q", first), second + TABLE[3, 11].frame_previous)


def is_in_circle(stack: Stack) -> bool:
    return functions_of_python(stack)[-3:] == ["spin", "outer", "spin"]


def test_frames_of_python_in_a_circle_end(slot: Slot, profiled: Profiled) -> None:
    """A process can make them so. What is told of it is bounded and marked, and no other one's."""
    windows: list[Told] = []
    with script("3.11", "circle_in_python.py") as (root, path):
        folder = Path(f"{root}{path}").parent
        folder.chmod(0o777)
        pid = start(slot, Path("/usr/bin/python3.11"), path, f"{Path(path).parent}/told", root=root)
        until((folder / "told").exists)
        put_into_circle(pid, *map(int, (folder / "told").read_text().split()))
        profiled.until(lambda: profiled.knows_python(pid))
        profiled.until(lambda: (windows.append(profiled.window(pid)), share(windows[-1], is_in_circle) > 0.9)[1])
        assert Path(f"/proc/{pid}").exists()
    stacks = {stack: count for stack, count in windows[-1].stacks.items() if is_in_circle(stack)}
    assert {len(functions_of_python(stack)) for stack in stacks} == {MOST_PYTHON_FRAMES}
    assert windows[-1].broken >= sum(stacks.values()), "callers are missing"
    assert windows[-1].lost == 0 and profiled.said == []


def kill(profiled: Profiled) -> None:
    os.kill(profiled.profiles.pid, signal.SIGKILL)


def hang(profiled: Profiled) -> None:
    os.kill(profiled.profiles.pid, signal.SIGSTOP)
    profiled.profiles.tick(time.monotonic() + PATIENCE + 1.0)  # as if it had said nothing for so long


DEEPLY = """
import random
def deep(depth):
    if depth:
        return deep(depth - 1)
    for _ in range(random.randrange(20000)): pass
while True: deep(random.randrange(150))
"""
"""Hardly two of its stacks are equal, and each takes kilobytes."""


def get_no_memory(profiled: Profiled) -> None:
    """Who may change the limits of processes of the reader's user, as the kernel itself can."""
    reader = profiled.profiles.pid

    def act() -> None:
        os.setgroups([])
        os.setresgid(READER, READER, READER)
        os.setresuid(READER, READER, READER)
        resource.prlimit(reader, resource.RLIMIT_DATA, (1, 1))

    in_child(act)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fault", "said"),
    [(kill, "has ended"), (hang, "hangs"), (get_no_memory, "has ended")],
    ids=["killed", "hung", "memory"],
)
def test_what_is_lost_with_a_reader_is_declared(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], fault: Callable[[Profiled], None], said: str
) -> None:
    """Each sample that the kernel has taken is in the profile, or counted as lost; and from when until when it was."""
    pids = [pid := start(slot, programs["shared"], "plain")]
    pids += [start(slot, Path(os.path.realpath("/usr/bin/python3")), "-S", "-E", "-c", DEEPLY)]
    profiled.until(lambda: profiled.knows_python(pids[1]))
    profiled.window(pid)
    kept = everything(profiled)
    before = profiled.counted()
    profiled.until(lambda: profiled.counted() >= before + 200)  # more than it leaves in the ring
    reader, begun = profiled.profiles.pid, time.time()
    fault(profiled)
    profiled.until(lambda: profiled.profiles.pid not in (0, reader))
    assert len(profiled.said) == 1 and said in profiled.said[0]
    other = everything(profiled)  # what has come at the last moment
    assert whole(profiled.window(pid), pid) >= 0.9
    end(pids)
    profiled.close_window()
    found = everything(profiled)
    assert found.samples + found.lost + found.not_ours == profiled.counted()
    assert found.lost > kept.lost == 0
    ((first, last),) = found.unseen
    assert first == pytest.approx(other.ended, abs=0.01) and begun < last < time.time()
    assert counts(found).startswith("not seen from ")
    assert [seen for seen in profiled.seen if seen[1]] == [(RUN, found.lost)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_unloaded", [False, True], ids=["another reader", "nobody"])
def test_the_last_part_of_a_job_that_ends_without_a_reader_is_declared(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], is_unloaded: bool
) -> None:
    """By the next reader, which has what the ring still has. If nothing is sampled any more there is none."""
    pid = start(slot, programs["shared"], "plain")
    profiled.window(pid)
    kept = everything(profiled)
    before = profiled.counted()
    profiled.until(lambda: profiled.counted() >= before + ENOUGH)
    os.kill(profiled.profiles.pid, signal.SIGKILL)
    profiled.until(lambda: not profiled.profiles.pid)
    sensor = slot.tracer.sensors["profile"]
    counted = sensor.stop(slot.index)
    assert counted is not None
    profiled.profiles.end(RUN)
    ended = time.time()
    end([pid])
    if is_unloaded:
        sensor.sensor.unload()
    parts = len(profiled.kept)
    profiled.until(lambda: len(profiled.kept) > parts)
    found = everything(profiled)
    assert found.samples + found.lost + found.not_ours == int(counted["samples"][0])
    assert found.lost > kept.lost == 0
    ((first, last),) = found.unseen
    assert kept.begun < first < last <= ended + 0.01
    assert counts(found).startswith("not seen from ")
    profiled.until(lambda: View.OFF_CPU in [each.view for each in profiled.waits if each.unseen])
    assert profiled.waits[-1].unseen == found.unseen
    assert profiled.profiles._ended == {}


def test_the_hole_that_a_killed_joblensd_leaves_is_declared(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """What it had not kept went with it: the next one knows until when there is a profile."""
    pid = start(slot, programs["shared"], "plain")
    profiled.window(pid)
    killed_at = time.time() - 30.0
    profiled.begin_again(killed_at)
    began = time.time()
    profiled.kept.clear()
    profiled.window(pid)
    found = everything(profiled)
    ((first, last),) = found.unseen
    assert first == pytest.approx(killed_at, abs=0.01) and last == pytest.approx(began, abs=5.0)
    assert found.lost == 0


def test_a_full_disk_costs_the_window_that_is_not_kept_and_the_next_one_says_so(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    pid = start(slot, programs["shared"], "plain")
    profiled.window(pid)
    before, counted = everything(profiled), profiled.counted()
    profiled.disk_is_full = True
    profiled.until(lambda: profiled.counted() >= counted + ENOUGH)
    profiled.profiles.close_window(RUN)
    profiled.until(lambda: sum(each.samples for each in profiled.refused) >= ENOUGH)
    profiled.disk_is_full = False
    assert whole(profiled.window(pid), pid) >= 0.99
    end([pid])
    profiled.close_window()
    found = everything(profiled)
    of_cpu = [each for each in profiled.refused if each.view is View.ON_CPU]
    assert before.lost == 0 and found.lost == sum(each.samples for each in of_cpu) >= ENOUGH
    assert found.samples + found.lost + found.not_ours == profiled.counted()
    ((first, last),) = found.unseen
    assert (first, last) == pytest.approx((of_cpu[0].begun, of_cpu[-1].ended), abs=0.01)
    assert profiled.said == [] and profiled.profiles.restarts == 0


RENAMED = "\x1b[31m\n<b>;\ufffd"
"""What a thread and the first thread, after which the process is called, have as their names."""


def test_threads_that_are_named_after_escape_sequences_are_text_everywhere(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    pids = [start(slot, programs["shared"], way) for way in ("thread", "renamed")]
    for pid in pids:
        profiled.until(lambda pid=pid: profiled.knows(pid))
    names: set[tuple[str, str]] = set()

    def are_seen() -> bool:
        names.update((stack.process, stack.thread) for stack in profiled.window(pids[0], 20).stacks)
        return {(RENAMED, RENAMED)} < names and any(thread == RENAMED != process for process, thread in names)

    profiled.until(are_seen)
    found = under(everything(profiled), process=True, thread=True)
    told = [rendered(found, form).decode() for form in ("svg", "folded", "speedscope", "json")]
    assert all("[31m" in text for text in told)
    told += ["\n".join(hot.page(found, hottest(found), "function", Style(200)))]  # has no threads
    assert all(letter.isprintable() for text in told for letter in text.replace("\n", ""))
    assert "<b>" not in told[0] and ElementTree.fromstring(told[0])
