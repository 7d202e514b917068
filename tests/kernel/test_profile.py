"""What is sampled of a job, and told by a reader that has no right: whole stacks of programs without frame pointers."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ground import (
    Cgroup,
    Ground,
    Slot,
    crashed_program,
    hang_program,
    is_native,
    kernel_version,
    profiled_programs,
    until,
    waiting_program,
)
from python_roots import root_of

from condor_joblens.agent.profiles import MODULE, PATIENCE, Profiles
from condor_joblens.common.own_process import cpu_seconds
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.profiles import crash, pprof
from condor_joblens.profiles.crash import Crash
from condor_joblens.profiles.profile import Profile as Told
from condor_joblens.profiles.profile import Stack, merged
from condor_joblens.profiling import debug_files
from condor_joblens.profiling import starter as starters
from condor_joblens.profiling.elf import Elf
from condor_joblens.profiling.sample_reader import Counted
from condor_joblens.tracer.sensors import Profile

OWN, READER, ALICE, BOB = 64001, 64002, 12345, 12346
ALLOWED = AllowedIds(1000, (), 1000, ())
SECONDS = 60.0 if is_native() else 300.0
RUN = 4711
ENOUGH = 120
"""Samples whose stacks are compared."""

SAMPLES_SINCE, PREEMPTS_SINCE = (5, 17), (7, 0)
"""Kernels that sample at all, and those that can preempt a program at a tracepoint."""

IN_GUESTS = [pytest.mark.guest, pytest.mark.samples]
"""Of tests that `make test-kernels` runs alone: they take long where CPUs are emulated."""

pytestmark = [pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")]


LOADED_TICKS = 5
"""Of 10 ms of CPU, after which a program's loader is done: with C++'s library it needs some 3 ms."""


def cpu_ticks(pid: int) -> int:
    """What a process has used, in the unit of times(2)."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


class Profiled:
    """A slot that is sampled, as joblensd does it."""

    def __init__(self, slot: Slot, lookers: ProcessStarter, readers: ProcessStarter, folder: Path) -> None:
        self._slot, self._lookers, self._folder = slot, lookers, folder
        self.selector = selectors.DefaultSelector()
        self.windows: list[Told] = []  # those that have closed since close_window was last called
        self.kept: list[bytes] = []  # all of them as they are kept
        self.waits: list[Told] = []  # the same of what waited
        self._last = 0.0  # until when the last of them is
        self.said: list[str] = []
        self.disk_is_full, self.refused = False, list[Told]()
        on_demand = slot.tracer.sensors["profile"]
        sensor = on_demand.sensor
        assert isinstance(sensor, Profile)
        self.sensor = sensor
        sensor.describe(slot.index, RUN, ALICE)
        assert on_demand.start(slot.index), on_demand.missing
        self.crashes: list[tuple[int, int, str, Crash]] = []  # process, signal, words, and what is kept
        self.profiles = Profiles(
            sensor, 128 << 20, readers, self._open, self._keep, self._crashed, self.selector, self.said.append
        )
        self.seen: list[tuple[int, int]] = []  # runs whose windows have closed, and what was lost with earlier readers
        self.profiles.on_seen = lambda run, until, lost: self.seen.append((run, lost))
        self.profiles.begin(RUN, slot.index)

    def begin_again(self, seen_until: float) -> None:
        """As another joblensd, whose predecessor's last window was until then."""
        on_demand = self._slot.tracer.sensors["profile"]
        on_demand.stop(self._slot.index)
        self.profiles.end(RUN)
        assert on_demand.start(self._slot.index)
        self.profiles.begin(RUN, self._slot.index, seen_until)

    def _open(self, run: int, channel: socket.socket) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lookers.start(channel, folder)
        finally:
            os.close(folder)

    def _keep(self, run: int, begun: float, ended: float, data: bytes, is_off_cpu: bool) -> bool:
        assert run == RUN and begun <= ended
        if self.disk_is_full:
            self.refused.append(pprof.decode(data))
        elif is_off_cpu:
            self.waits.append(pprof.decode(data))
        else:
            self.windows.append(pprof.decode(data))
            self.kept.append(data)
        self._last = ended if not is_off_cpu else self._last
        return not self.disk_is_full

    def _crashed(self, run: int, tgid: int, signal: int, when: float, words: str, data: bytes) -> None:
        assert run == RUN and abs(when - time.time()) < SECONDS
        self.crashes.append((tgid, signal, words, crash.decode(data)))

    def close(self) -> None:
        self.profiles.end(RUN)
        self._slot.tracer.sensors["profile"].stop(self._slot.index)
        self.profiles.close()
        self.selector.close()

    def turn(self) -> None:
        for key, _ in self.selector.select(0.05):
            key.data()
        self._lookers.receive()
        self.profiles.tick(time.monotonic())

    def until(self, what: Callable[[], object]) -> None:
        until(lambda: (self.turn(), what())[1], SECONDS)

    def knows(self, pid: int) -> bool:
        """Whether the kernel has the process's mappings."""
        return any(int.from_bytes(key[:4], "little") == pid for key in self.sensor.keys("jl_mappings", 16))

    def knows_python(self, pid: int) -> bool:
        """Whether the kernel knows where its Python keeps what it runs."""
        return any(int.from_bytes(key[:4], "little") == pid for key in self.sensor.keys("jl_pythons", 16))

    def counted(self) -> int:
        return int(self.sensor._sampled["samples"][self._slot.index])

    def _told(self) -> int:
        """How many samples the windows until now have, lost ones too."""
        return Counted.unpacked(self.profiles._runs[RUN].counted).samples

    def waits_counted(self) -> int:
        return int(self.sensor._sampled["waits"][self._slot.index])

    def not_ours(self) -> int:
        return int(self.sensor._sampled["not_ours"][self._slot.index])

    def forget_mappings(self, pid: int) -> None:
        """The process is looked at anew: what was known of it may be from before its loader was done."""
        for key in self.sensor.keys("jl_mappings", 16):
            if int.from_bytes(key[:4], "little") == pid:
                self.sensor.drop_mappings(key)
        self.sensor.changes.finish()

    def has_begun(self, pid: int) -> int:
        """Waits until a process that works is known, with all that its loader has loaded; its id."""
        self.until(lambda: cpu_ticks(pid) >= LOADED_TICKS)
        self.forget_mappings(pid)
        self.until(lambda: self.knows(pid))
        return pid

    def window(self, pid: int, enough: int = ENOUGH) -> Told:
        """So many samples from when the process is known: what was in the ring before that is in none of them."""
        self.until(lambda: self.knows(pid))
        unknown = self.counted()
        self.until(lambda: (self.close_window(), self._told() >= unknown)[1])
        before = self.counted()
        self.until(lambda: self.counted() >= before + enough)
        return self.close_window()

    def close_window(self) -> Told:
        """Of what was sampled since this was last called; the reader closes windows by itself as well."""
        asked = time.time()
        self.profiles.close_window(RUN)
        self.until(lambda: self._last >= asked)
        found = merged(self.windows)
        self.windows.clear()
        return found

    def forget_waits(self) -> None:
        """From now on."""
        self.close_window()
        self.waits.clear()

    def waited(self) -> Told:
        """What has waited since forget_waits was last called."""
        self.close_window()
        return merged(self.waits)


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[str, Path]]:
    """The job's programs, where their owner may run them."""
    with tempfile.TemporaryDirectory(prefix="joblens-profiled", dir="/tmp") as name:
        Path(name).chmod(0o755)
        made = {**profiled_programs(), "waiting": waiting_program(), "crashed": crashed_program()}
        yield {way: Path(shutil.copy(path, name)) for way, path in made.items()}


@pytest.fixture(scope="module")
def lookers() -> Iterator[ProcessStarter]:
    found = ProcessStarter("what looks at jobs", ALLOWED.encode(), OWN, OWN, starters.__name__)
    yield found
    found.close()


@pytest.fixture(scope="module")
def readers() -> Iterator[ProcessStarter]:
    found = ProcessStarter("readers of samples", MODULE, READER, READER)
    yield found
    found.close()


@contextmanager
def sampled(slot: Slot, lookers: ProcessStarter, readers: ProcessStarter) -> Iterator[Profiled]:
    """The slot is, with Alice's scratch folder."""
    with tempfile.TemporaryDirectory(prefix="joblens-scratch", dir="/tmp") as name:
        os.chown(name, ALICE, ALICE)
        found = Profiled(slot, lookers, readers, Path(name))
        try:
            yield found
        finally:
            found.close()


@pytest.fixture
def profiled(slot: Slot, lookers: ProcessStarter, readers: ProcessStarter) -> Iterator[Profiled]:
    with sampled(slot, lookers, readers) as found:
        yield found


def start(slot: Slot, program: Path, *arguments: str, root: Path | None = None) -> int:
    """The job of Alice, in a root of its own if there is one; its process id."""

    def act() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if root is not None:
            os.chroot(root)
            os.chdir("/")
        os.setgroups([])
        os.setresgid(ALICE, ALICE, ALICE)
        os.setresuid(ALICE, ALICE, ALICE)
        os.execv(program, [str(program), *arguments])

    return slot.fork(act)


def functions(stack: Stack) -> list[str]:
    """Names from the outermost caller on, of the user's own code and the C library."""
    return [frame.function for frame in stack.frames if frame.kind.value == "native"]


def has_callers(stack: Stack, callers: list[str]) -> bool:
    """All of them, in their order; others can be between."""
    found = iter(functions(stack))
    return all(caller in found for caller in callers)


def is_whole(stack: Stack, callers: list[str]) -> bool:
    """Nobody is missing: all callers of the busy leaf, or the first few where it is not called just now."""
    if "leaf" in functions(stack):
        return has_callers(stack, callers)
    found = [name for name in functions(stack) if name in callers]
    return bool(found) and found == callers[: len(found)]


def share(window: Told, is_so: Callable[[Stack], bool]) -> float:
    """Of the samples."""
    return sum(count for stack, count in window.stacks.items() if is_so(stack)) / window.samples


DEEP = ["outer", *["middle"] * 6, "inner"]


@pytest.mark.parametrize(
    ("way", "argument", "callers"),
    [
        pytest.param("shared", "plain", ["main", *DEEP], marks=IN_GUESTS),
        pytest.param("static", "plain", ["main", *DEEP], marks=IN_GUESTS),
        ("shared", "realigned", ["main", "realigned", *DEEP]),
        ("realigned", "realigned", ["main", "realigned", *DEEP]),
        ("shared", "sort", ["main", "sorted"]),
        ("shared", "thread", ["threaded", *DEEP]),
        ("shared", "signal", ["main", "signalled", "interrupted"]),
    ],
)
def test_stacks_of_programs_without_frame_pointers_are_whole(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], way: str, argument: str, callers: list[str]
) -> None:
    """All callers are in each stack, in their order, whatever interrupts the leaf."""
    window = profiled.window(profiled.has_begun(start(slot, programs[way], argument)))

    found = share(window, lambda stack: is_whole(stack, callers))
    assert found >= 0.99, sorted((functions(s), c) for s, c in window.stacks.items())
    assert window.broken <= 0.01 * window.samples and window.guessed <= 0.01 * window.samples
    assert window.lost == window.not_ours == 0
    with open(programs[way], "rb") as file:
        build_id = Elf.unmapped(file.fileno()).build_id
    frames = [frame for stack in window.stacks for frame in stack.frames if frame.file == str(programs[way])]
    assert build_id and {frame.build_id for frame in frames} == {build_id}


def test_a_stripped_program_has_the_names_that_a_package_of_its_own_has(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """In /usr/lib/debug, by its build-id, as a package with -dbgsym in its name has them."""
    stripped, symbols = (programs["shared"].with_name(name) for name in ("packaged", "packaged.debug"))
    subprocess.run(["objcopy", "--strip-all", programs["shared"], stripped], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", programs["shared"], symbols], check=True)
    with open(stripped, "rb") as file:
        build_id, own = bytes.fromhex(Elf.unmapped(file.fileno()).build_id), os.urandom(20)
    stripped.write_bytes(stripped.read_bytes().replace(build_id, own))  # no other test has a file for that one
    place = Path(debug_files.path_of(own.hex()))
    made = [folder for folder in (place, *place.parents) if not folder.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy(symbols, place)
        window = profiled.window(profiled.has_begun(start(slot, stripped, "plain")))
    finally:
        for path in made:
            path.rmdir() if path.is_dir() else path.unlink()
    assert share(window, lambda stack: is_whole(stack, ["main", *DEEP])) >= 0.99


def test_samples_from_before_a_process_was_known_have_names(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """The first one always is such: it asks for the process. One can be of the moment in which the program begins."""
    program = programs["shared"]
    for _ in range(5):
        pid = start(slot, program, "plain")
        profiled.until(lambda pid=pid: profiled.knows(pid))
        before = profiled.counted()
        profiled.until(lambda before=before: profiled.counted() >= before + 50)
        window = profiled.close_window()
        os.kill(pid, signal.SIGKILL)
        leaves = {functions(stack)[-1] for stack in window.stacks if stack.pid == pid and functions(stack)}
        if leaves and "(unknown code)" not in leaves:
            return
    raise AssertionError(f"samples of unknown code each time: {leaves}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["C++", "Python"])
def test_a_job_in_a_loop_without_end_is_told_to_be_in_the_same_places(
    slot: Slot, profiled: Profiled, tmp_path: Path, way: str
) -> None:
    told: list[tuple[float, float]] = []
    profiled.profiles.on_steady = lambda run, *times: told.append(times) if run == RUN else None
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="joblens-busy", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        if way == "C++":
            start(slot, Path(shutil.copy(hang_program(), folder)), "busy", "-")
        else:
            start(slot, Path(os.path.realpath("/usr/bin/python3")), "-c", "while True: sum(range(100))")
        until(lambda: (profiled.turn(), told)[1], 10 * SECONDS)
    since, end = told[0]
    assert began <= since and since + 10 <= end <= time.time(), "since the window before"


@pytest.mark.guest
@pytest.mark.samples
def test_a_set_user_id_program_in_the_job_is_left_alone_and_said(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """Nothing of its stack is told, though its owner has started it."""
    foreign = programs["shared"].with_name("foreign")
    shutil.copy(programs["shared"], foreign)
    os.chown(foreign, BOB, BOB)
    foreign.chmod(0o4755)
    pid = start(slot, foreign, "plain")
    profiled.until(lambda: profiled.not_ours() >= ENOUGH)
    window = profiled.close_window()
    assert window.not_ours >= ENOUGH
    assert not any(stack.pid == pid and functions(stack)[-2:] == ["inner", "leaf"] for stack in window.stacks)


def test_a_process_that_may_not_be_dumped_is_left_alone_and_said(slot: Slot, profiled: Profiled) -> None:
    """As one that has a secret in its memory asks the kernel for (PR_SET_DUMPABLE)."""
    hidden = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nwhile True: pass"
    pid = start(slot, Path(sys.executable).resolve(), "-S", "-c", hidden)
    profiled.until(lambda: profiled.not_ours() >= ENOUGH)
    profiled.close_window()  # with what it did before it asked
    before = profiled.not_ours()
    profiled.until(lambda: profiled.not_ours() >= before + ENOUGH)
    window = profiled.close_window()
    assert window.not_ours >= ENOUGH and not any(stack.pid == pid for stack in window.stacks)


def test_a_job_in_a_user_namespace_is_sampled(slot: Slot, profiled: Profiled, programs: dict[str, Path]) -> None:
    """As in a container without a set-user-id program: there it is root, and outside of it still its owner."""
    pid = start(slot, Path("/usr/bin/unshare"), "-r", "-m", "--", str(programs["shared"]), "plain")

    def is_known() -> bool:
        """What was sampled meanwhile can be of unshare, and of a program whose tables are on their way."""
        window = profiled.window(pid)
        assert window.not_ours == 0
        return share(window, lambda stack: is_whole(stack, ["main", *DEEP])) >= 0.99

    profiled.until(is_known)


def test_a_program_that_is_deleted_has_its_functions(slot: Slot, profiled: Profiled, programs: dict[str, Path]) -> None:
    """It was gone before anybody has looked."""
    copy = Path(shutil.copy(programs["shared"], programs["shared"].with_name("gone")))

    def act() -> None:
        file = os.open(copy, os.O_RDONLY)
        copy.unlink()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.setgroups([])
        os.setresgid(ALICE, ALICE, ALICE)
        os.setresuid(ALICE, ALICE, ALICE)
        os.execve(file, ["gone", "plain"], {})

    pid = slot.fork(act)

    def is_known() -> bool:
        """What was sampled before is of the Python that it was forked from."""
        return share(profiled.window(pid), lambda stack: is_whole(stack, ["main", *DEEP])) >= 0.99

    profiled.until(is_known)
    assert not copy.exists()


def test_beside_processes_that_come_and_go_all_the_time_a_program_is_known(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """Each of them is unknown, and asks to be looked at. No sample of them is lost undeclared."""
    storm = "import os\nwhile True:\n    if (pid := os.fork()) == 0: os._exit(0)\n    os.waitpid(pid, 0)"
    start(slot, Path(sys.executable).resolve(), "-S", "-c", storm)
    before = profiled.counted()
    profiled.until(lambda: profiled.counted() >= before + ENOUGH)
    pid = start(slot, programs["shared"], "plain")

    def is_known() -> bool:
        window = profiled.window(pid)
        assert window.samples >= ENOUGH or window.lost
        return any(stack.pid == pid and is_whole(stack, ["main", *DEEP]) for stack in window.stacks)

    profiled.until(is_known)
    assert profiled.said == []


def test_a_slot_that_is_not_sampled_any_more_gives_nothing(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """The last window comes when the sampling ends, with what there was."""
    pid = start(slot, programs["shared"], "plain")
    profiled.until(lambda: profiled.knows(pid))
    sampled = slot.tracer.sensors["profile"].stop(slot.index)
    assert sampled is not None
    profiled.profiles.end(RUN)
    profiled.until(lambda: profiled.windows)
    assert 0 < profiled.windows[-1].samples <= int(sampled["samples"][0])


@pytest.mark.guest
@pytest.mark.samples
def test_a_job_that_was_a_neighbour_is_sampled_from_when_it_is_wanted(
    ground: Ground, slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """CPUs remember that its cgroup was in no sampled slot, and so does the next one that it makes."""
    neighbour, clock = ground.slot("condor_slot2"), slot.tracer.sensors["profile"]
    start(slot, programs["shared"], "plain")
    pid = start(neighbour, programs["shared"], "plain")
    until(lambda: cpu_seconds(pid) > 0.5)  # some of that were samples
    sampled = profiled.sensor._sampled["samples"]
    assert profiled.counted() and not sampled[neighbour.index]
    profiled.sensor.describe(neighbour.index, RUN + 1, ALICE)
    assert clock.start(neighbour.index)
    until(lambda: sampled[neighbour.index] > 5)
    below = Cgroup(neighbour.path / "below")
    below.path.mkdir()
    (below.path / "cgroup.procs").write_text(str(pid))
    before = int(sampled[neighbour.index])
    until(lambda: sampled[neighbour.index] > before + 5)
    clock.stop(neighbour.index)


def test_what_is_known_of_many_processes_comes_and_goes(profiled: Profiled) -> None:
    """In a few calls where the kernel can; a key that it does not have spoils none of the others."""
    sensor = profiled.sensor
    profiled.until(lambda: sensor.loaded is not None)
    known, strangers = (
        [pid.to_bytes(16, "little") for pid in range(first, first + 150)] for first in (1 << 30, 1 << 31)
    )
    for key in known:
        sensor.put_mappings(key, b"")
    sensor.changes.finish()
    assert set(known) <= set(sensor.keys("jl_mappings", 16))
    for key, stranger in zip(known[::2], strangers):
        sensor.drop_mappings(stranger)
        sensor.drop_mappings(key)
    sensor.changes.finish()
    assert {*known} & {*sensor.keys("jl_mappings", 16)} == {*known[1::2]}
    sensor.drop_all_mappings()
    sensor.changes.finish()
    assert not {*known} & {*sensor.keys("jl_mappings", 16)}


def test_a_reader_that_has_ended_is_started_anew(slot: Slot, profiled: Profiled, programs: dict[str, Path]) -> None:
    """It makes its tables again, and samples are whole again."""
    pid = start(slot, programs["shared"], "plain")
    profiled.until(lambda: profiled.knows(pid) and profiled.profiles.pid)
    os.kill(profiled.profiles.pid, signal.SIGKILL)
    profiled.until(lambda: profiled.profiles.restarts == 1)
    profiled.sensor.changes.finish()
    assert not profiled.knows(pid)
    window = profiled.window(pid)
    found = share(window, lambda stack: is_whole(stack, ["main", *DEEP]))  # one in a hundred is in a caller of the leaf
    assert found >= 0.99, sorted((functions(s), c) for s, c in window.stacks.items())


def test_a_process_that_ends_before_it_is_looked_at_has_functions_of_files_that_are_known(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel itself says in which file the leaf is; that it has no mappings here stands for a look that is late."""
    first = start(slot, programs["shared"], "plain")
    profiled.until(lambda: profiled.knows(first))
    os.kill(first, signal.SIGKILL)
    monkeypatch.setattr(profiled.sensor, "put_mappings", lambda *_: None)
    profiled.close_window()
    before = profiled.counted()
    pid = start(slot, programs["shared"], "plain")
    profiled.until(lambda: profiled.counted() >= before + ENOUGH // 2)
    window = profiled.close_window()
    assert not profiled.knows(pid)
    found = merged([window])
    mine = {stack: count for stack, count in found.stacks.items() if stack.pid == pid}
    known = sum(count for stack, count in mine.items() if "(unknown code)" not in functions(stack)[-1:])
    assert known >= 0.95 * sum(mine.values()) > 0, sorted((functions(s), c) for s, c in mine.items())
    assert any(functions(stack)[-1:] == ["leaf"] for stack in mine)


def test_a_reader_that_hangs_is_ended_and_another_one_samples(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    pid = start(slot, programs["shared"], "plain")
    profiled.until(lambda: profiled.knows(pid))
    reader = profiled.profiles.pid
    os.kill(reader, signal.SIGSTOP)
    profiled.profiles.tick(time.monotonic() + PATIENCE + 1.0)  # as if it had said nothing for so long
    assert any("hangs" in line for line in profiled.said)
    profiled.until(lambda: profiled.profiles.pid not in (0, reader))
    assert share(profiled.window(pid), lambda stack: has_callers(stack, ["main", *DEEP])) >= 0.9


def test_two_windows_become_one_with_the_counts_of_both(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], tmp_path: Path
) -> None:
    """The reader makes one of two files that it can only read; of what is no window nothing comes."""
    pid = start(slot, programs["shared"], "plain")
    for _ in range(2):
        profiled.window(pid)
    made: list[bytes] = []
    windows = profiled.kept[-2:]  # the reader closes more by itself
    files = [tmp_path / "first", tmp_path / "second", tmp_path / "wrong"]
    for file, content in zip(files, [*windows, b"no window"]):
        file.write_bytes(b"head" + content)
    for pair in (files[:2], files[1:]):
        descriptors = [os.open(file, os.O_RDONLY) for file in pair]
        profiled.profiles.merge(RUN, descriptors, len(b"head"), made.append)
        for descriptor in descriptors:
            os.close(descriptor)
        before = len(made)
        profiled.until(lambda: len(made) > before)  # noqa: B023  (it is called at once)
    both, one = pprof.decode(made[0]), [pprof.decode(each) for each in windows]
    assert (both.samples, both.lost, both.guessed) == tuple(
        sum(getattr(each, name) for each in one) for name in ("samples", "lost", "guessed")
    )
    assert (both.begun, both.ended) == (one[0].begun, one[1].ended)
    assert made[1] == b"" and profiled.profiles.restarts == 0
    pictures: list[bytes] = []
    for several in (files[:2], files):
        descriptors = [os.open(file, os.O_RDONLY) for file in several]
        profiled.profiles.report(RUN, descriptors, len(b"head"), ("12.0", "node01"), pictures.append)
        for descriptor in descriptors:
            os.close(descriptor)
        before = len(pictures)
        profiled.until(lambda: len(pictures) > before)  # noqa: B023  (it is called at once)
    assert b"job 12.0 on node01" in pictures[0] and f"{both.samples:,} samples".encode() in pictures[0]
    assert pictures[1] == b"", "half of what there is would not be the job's profile"


PYTHONS = ["3.9", "3.11", "3.13", "3.14"]
CALLED = {
    "spin": ["<module>", "outer", *["middle"] * 6, "spin"],
    "compared": ["<module>", "outer", "run_sorted", "__lt__", "compared"],
}
IN_THREAD = ["threaded", *["middle"] * 3, "spin"]


@contextmanager
def script(version: str, name: str) -> Iterator[tuple[Path, str]]:
    """A script of ours where that Python can run it: the Python's root, and the script's path in there."""
    with root_of(version) as root, tempfile.TemporaryDirectory(dir=root / "tmp") as folder:
        Path(folder).chmod(0o755)
        copy = Path(shutil.copy(Path(__file__).with_name(name), folder))
        copy.chmod(0o644)
        yield root, f"/{copy.relative_to(root)}"


@pytest.mark.parametrize("version", PYTHONS)
def test_functions_of_python_are_in_their_places(slot: Slot, profiled: Profiled, version: str) -> None:
    """Nearly all stacks have the whole chain, from the module or the thread to the leaf, and C where C has called."""
    with script(version, "run_busily.py") as (root, path):
        pid = start(slot, Path(f"/usr/bin/python{version}"), path, root=root)
        profiled.until(lambda: profiled.knows_python(pid))
        windows: list[Told] = []
        until(lambda: (windows.append(profiled.window(pid)), has_all_names(windows[-1]))[1], SECONDS)
        window = windows[-1]

    def is_true(stack: Stack) -> bool:
        found = [frame.function.rpartition(".")[2] for frame in stack.frames if frame.kind.value == "python"]
        chains = [*CALLED.values(), IN_THREAD]
        return any(found[-len(chain) :] == chain for chain in chains)

    def is_c_between(stack: Stack) -> bool:
        kinds = [frame.function if frame.kind.value == "python" else "C" for frame in stack.frames]
        return "__lt__" not in kinds or kinds[kinds.index("__lt__") - 1] == "C"

    counted = sorted((count, functions_of_python(stack)) for stack, count in window.stacks.items())
    assert share(window, is_true) >= 0.9, counted
    assert share(window, is_c_between) >= 0.95, counted
    lines = {frame.line for stack in window.stacks for frame in stack.frames if frame.function == "spin"}
    assert lines & {9, 10} and lines <= {*range(6, 12)}, lines
    assert profiled.said == []


@pytest.mark.parametrize("version", PYTHONS)
def test_functions_of_python_are_in_the_stacks_of_waits(slot: Slot, profiled: Profiled, version: str) -> None:
    """A program that only sleeps: from the module to the line with the call, and then what it waits for."""
    slot.start_io()
    with script(version, "sleep_in_python.py") as (root, path):
        pid = start(slot, Path(f"/usr/bin/python{version}"), path, root=root)
        profiled.until(lambda: profiled.knows_python(pid))

        def some_waits() -> Told:
            profiled.forget_waits()
            before = profiled.waits_counted()
            profiled.until(lambda: profiled.waits_counted() >= before + 25)
            return profiled.waited()

        found: list[Told] = []
        until(lambda: (found.append(some_waits()), has_all_names(found[-1]))[1], SECONDS)
    slept = [stack for stack in found[-1].stacks if functions_of_python(stack)]
    assert slept and {tuple(functions_of_python(stack)) for stack in slept} == {("<module>", "g", "f")}
    assert share(found[-1], lambda stack: stack in slept) >= 0.95
    assert {frame.line for stack in slept for frame in stack.frames if frame.function == "f"} == {7}
    assert all(stack.frames[-1].function.startswith("waits for ") for stack in slept)
    kinds = [[frame.kind.value for frame in stack.frames] for stack in slept]
    assert all("native" in kind[len(kind) - kind[::-1].index("python") :] for kind in kinds), "C has called the kernel"


@pytest.mark.parametrize("file", ["", "/made/same"], ids=["of_other_files", "by_name_alone"])
@pytest.mark.parametrize("version", ["3.9", "3.11", "3.14"])
def test_a_function_is_not_taken_for_one_that_was_in_its_place(
    slot: Slot, profiled: Profiled, version: str, file: str
) -> None:
    """Functions that live for some milliseconds, one after the other in the same memory: names, files and lines are
    their own, or not known. With a file, all of them are of that one and begin on equal lines."""
    with script(version, "make_functions_in_python.py") as (root, path):
        arguments = [path, file] if file else [path]
        pid = start(slot, Path(f"/usr/bin/python{version}"), *arguments, root=root)
        profiled.until(lambda: profiled.knows_python(pid))
        window = profiled.window(pid)
    found = [[frame for frame in stack.frames if frame.kind.value == "python"] for stack in window.stacks]
    named = [stack for stack in found if any(frame.function.startswith("caller_") for frame in stack)]
    assert named
    is_known = False
    for stack in named:
        (number,) = {int(frame.function[-2:]) for frame in stack if frame.function.startswith("caller_")}
        first_line, its_file = (0, file) if file else (number, f"/made/{number:02}")
        for frame in stack:
            if frame.function.startswith(("outer_", "inner_")):
                is_inner = frame.function.startswith("inner_")
                lines = {0, *(first_line + line for line in ((2, 3, 4) if is_inner else (7, 8)))}
                assert int(frame.function[-2:]) == number and frame.file == its_file, stack
                assert frame.line in lines, stack
                is_known = True
    assert is_known or version == PYTHONS[-1], "of none was asked while it was there"


def has_all_names(window: Told) -> bool:
    """Whether functions of Python are there, and nothing about them is still on its way."""
    found = [frame for stack in window.stacks for frame in stack.frames if frame.kind.value == "python"]
    return bool(found) and all(frame.function != "(no name)" for frame in found)


def functions_of_python(stack: Stack) -> list[str]:
    return [frame.function for frame in stack.frames if frame.kind.value == "python"]


LEAVES = {
    "sleeps_briefly": "waits for a timer (clock_nanosleep)",
    "sleeps_long": "waits for a timer (clock_nanosleep)",
    "locks": "waits for a lock (futex)",
    "reads_pipe": "waits for a pipe (read)",
}
ROUNDS, TRIES = 25, 4


def talking(slot: Slot, program: Path, *arguments: str) -> tuple[int, int, int]:
    """The job of Alice; its process id, and descriptors of its standard input and output."""
    theirs_in, to_it = os.pipe()
    from_it, theirs_out = os.pipe()

    def act() -> None:
        os.dup2(theirs_in, 0)
        os.dup2(theirs_out, 1)
        os.setgroups([])
        os.setresgid(ALICE, ALICE, ALICE)
        os.setresuid(ALICE, ALICE, ALICE)
        os.execv(program, [str(program), *arguments])

    pid = slot.fork(act)
    os.close(theirs_in)
    os.close(theirs_out)
    os.set_blocking(from_it, False)
    return pid, to_it, from_it


def line_of(profiled: Profiled, descriptor: int) -> str:
    """What it says next."""
    said = b""

    def has_said() -> bool:
        nonlocal said
        try:
            said += os.read(descriptor, 4096)
        except BlockingIOError:
            return False
        return said.endswith(b"\n")

    profiled.until(has_said)
    return said.decode()


def test_what_waits_is_told_by_function_as_its_own_clock_has_it(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """Sleeps, a lock and a pipe, each within 2 %, and in its stack what it waits for.

    A machine that stands still while the program runs makes the two differ: then once more.
    """
    slot.start_io()
    pid, to_it, from_it = talking(slot, programs["waiting"], str(ROUNDS))
    profiled.until(lambda: profiled.knows(pid))
    for _ in range(TRIES):
        profiled.forget_waits()
        os.write(to_it, b"\n")
        truth = json.loads(line_of(profiled, from_it))
        found = profiled.waited()
        told = {name: sum(ns for stack, ns in found.stacks.items() if name in functions(stack)) for name in truth}
        leaves: dict[str, set[str]] = {function: set() for function in LEAVES}
        for function in LEAVES:
            stacks = [stack for stack in found.stacks if function in functions(stack)]
            leaves[function].update(stack.frames[-1].function for stack in stacks)
            assert all("main" in functions(stack) for stack in stacks)
        is_as_awaited = leaves == {function: {leaf} for function, leaf in LEAVES.items()}
        if is_as_awaited and told == pytest.approx(truth, rel=0.02):
            break
    assert leaves == {function: {leaf} for function, leaf in LEAVES.items()}
    assert told == pytest.approx(truth, rel=0.02)
    assert found.lost <= 0.02 * found.samples
    os.close(to_it)
    os.close(from_it)


def test_of_more_waits_than_stacks_no_time_is_lost(slot: Slot, profiled: Profiled, programs: dict[str, Path]) -> None:
    """Eight threads wait for 2 ms at a time and four for 50 ms: all their time is there, shared out about right."""
    slot.start_io()
    pid, to_it, from_it = talking(slot, programs["waiting"], "crowd")
    profiled.until(lambda: profiled.knows(pid))
    profiled.forget_waits()
    begun = time.monotonic()
    os.write(to_it, b"\n")
    cpus = os.cpu_count() or 1
    profiled.until(lambda: profiled.waits_counted() > 20_000)
    os.write(to_it, b"\n")
    truth = json.loads(line_of(profiled, from_it))
    seconds = 2 + time.monotonic() - begun
    found = profiled.waited()
    assert found.taken <= 200 * cpus * seconds
    told = {name: sum(ns for stack, ns in found.stacks.items() if name in functions(stack)) for name in truth}
    total = sum(truth.values())
    assert sum(told.values()) + found.lost >= 0.98 * total
    assert sum(told.values()) <= 1.05 * total
    # some thousand stacks stand for twenty thousand waits
    assert told["comes_often"] / sum(told.values()) == pytest.approx(truth["comes_often"] / total, abs=0.1)
    os.close(to_it)
    os.close(from_it)


TURNS, CALLS = (4, 300_000) if is_native() else (2, 8000)
"""Of the job at io, beside which another one is sampled or not."""


def lost_calls(slot: Slot, data: Path, meanwhile: Callable[[], object]) -> int:
    """How many calls of a job at io are not counted: it reads and writes, and the kernel knows how often."""
    before = slot.io_totals()
    job = slot.start("rw", data, CALLS, 64)
    while os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        meanwhile()
        time.sleep(0.01)
    assert job.wait().status == 0
    after = slot.io_totals()
    files = ("fs_tmpfs_read_calls", "fs_tmpfs_write_calls")
    return sum(CALLS - int(after.get(name, 0) - before.get(name, 0)) for name in files)


@pytest.mark.guest
def test_a_job_at_io_loses_nothing_more_beside_one_that_is_sampled(
    ground: Ground, slot: Slot, lookers: ProcessStarter, readers: ProcessStarter, programs: dict[str, Path], data: Path
) -> None:
    """The other one waits more often than stacks are taken. It is at io in both cases, and then at profile, too.

    A kernel that can preempt programs loses calls anyway, and declares them. Then there may be no more of them than
    without the samples, beyond six standard deviations of the counts.
    """
    slot.start_io()
    beside = ground.slot("condor_slot2")
    beside.start_io()
    _, to_it, from_it = talking(slot, programs["waiting"], "crowd")
    os.write(to_it, b"\n")
    with no_loss_excuses():
        without = sum(lost_calls(beside, data, lambda: None) for _ in range(TURNS))
        if kernel_version() < SAMPLES_SINCE:
            assert not slot.tracer.sensors["profile"].start(slot.index)
            assert without == 0
            return
        with sampled(slot, lookers, readers) as profiled:
            profiled.until(lambda: profiled.counted() and profiled.waits_counted())
            before = profiled.counted(), profiled.waits_counted()
            beside_it = sum(lost_calls(beside, data, profiled.turn) for _ in range(TURNS))
            assert profiled.counted() > before[0] and profiled.waits_counted() > before[1], "nothing was sampled"
        chance = 6 * (without + beside_it) ** 0.5 if kernel_version() >= PREEMPTS_SINCE else 0
        assert beside_it <= without + chance, f"{beside_it} calls were lost beside a job that was sampled"
    print(f"lost: {without} of {TURNS * CALLS * 2} calls, and {beside_it} beside a job that was sampled")
    os.close(to_it)
    os.close(from_it)


@contextmanager
def no_loss_excuses() -> Iterator[None]:
    """Elsewhere a loss that is declared is no failure (conftest.py); here losses are what it is about."""
    try:
        yield
    except AssertionError as error:
        pytest.fail(f"{error}")


def begun(profiled: Profiled, pid: int, file: Path, is_known: Callable[[int], bool]) -> None:
    """Waits until the program has begun, and is known with all that it has loaded by then."""
    profiled.until(file.exists)
    profiled.forget_mappings(pid)
    profiled.until(lambda: is_known(pid))


def crash_of(slot: Slot, profiled: Profiled, program: Path, way: str, told: int = signal.SIGUSR1) -> int:
    """Has the program do it once it is known; how it ended, as wait(2) has it."""
    with tempfile.TemporaryDirectory(prefix="joblens-crashed", dir="/tmp") as name:
        os.chmod(name, 0o777)
        file = Path(name) / "begun"
        is_ours = program.stat().st_mode & 0o4000 == 0
        pid = start(slot, program, way, str(file))
        begun(profiled, pid, file, profiled.knows if is_ours else lambda pid: profiled.not_ours() > 0)
        os.kill(pid, told)
        return os.waitpid(pid, 0)[1]


@pytest.mark.parametrize(
    ("way", "killer", "words"),
    [
        pytest.param("null", signal.SIGSEGV, "inner < outer < main (test_crashed)", marks=IN_GUESTS),
        ("divide", signal.SIGFPE, "inner < outer < main (test_crashed)"),
        ("call", signal.SIGSEGV, "(unknown code) < inner < outer (test_crashed)"),
        ("abort", signal.SIGABRT, "inner < outer < main (test_crashed)"),
        ("terminate", signal.SIGABRT, "inner < outer < main (test_crashed), by std::terminate"),
    ],
)
def test_where_a_program_without_frame_pointers_crashed_is_told(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], way: str, killer: signal.Signals, words: str
) -> None:
    """The functions on top in words, and its whole stack."""
    status = crash_of(slot, profiled, programs["crashed"], way)
    assert os.WTERMSIG(status) == killer
    profiled.until(lambda: profiled.crashes)
    ((_, number, said, found),) = profiled.crashes
    assert (number, said, found.signal) == (killer, words, killer.name)
    names = [frame.function.partition(".cold")[0] for frame in found.frames]
    assert names[names.index("inner") :][:3] == ["inner", "outer", "main"] and found.is_whole, names
    assert found.is_guessed == (way == "call") and found.is_ours


@pytest.mark.parametrize(
    ("way", "exception", "text"),
    [
        pytest.param("throw", "std::runtime_error", "what it is", marks=IN_GUESTS),
        ("throw a derived one", "reading::Failure", "of its own"),
        ("throw a number", "int", ""),
        ("throw through noexcept", "std::logic_error", "no way out"),
        ("throw again", "std::runtime_error", "kept"),
        ("throw while another is handled", "reading::Failure", "the second"),
    ],
)
def test_what_a_program_has_thrown_and_not_caught_is_told(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], way: str, exception: str, text: str
) -> None:
    assert os.WTERMSIG(crash_of(slot, profiled, programs["crashed"], way)) == signal.SIGABRT
    profiled.until(lambda: profiled.crashes)
    ((_, _, words, found),) = profiled.crashes
    assert (found.exception, found.text) == (exception, text), words
    said = f'{exception} "{text}"' if text else exception
    assert "(test_crashed)" in words and words.endswith(f", uncaught {said}"), words


def test_whom_somebody_outside_has_ended_is_told_where_it_was(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """By SIGTERM, for which it has no handler."""
    status = crash_of(slot, profiled, programs["crashed"], "null", signal.SIGTERM)
    assert os.WTERMSIG(status) == signal.SIGTERM
    profiled.until(lambda: profiled.crashes)
    ((_, number, _, found),) = profiled.crashes
    names = [frame.function for frame in found.frames]
    assert (number, found.signal, names.count("main")) == (signal.SIGTERM, "SIGTERM", 1), names


BLOCKS = """
import signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
open(sys.argv[1], "w").close()
while signal.SIGTERM not in signal.sigpending():
    time.sleep(0.01)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
signal.pause()
"""


def test_whom_somebody_outside_has_ended_while_that_was_blocked_is_told_where_it_was(
    slot: Slot, profiled: Profiled
) -> None:
    """As of a shell that is just starting a program: the kernel then makes no SIGKILL of it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o777)
        begun = Path(name) / "begun"
        pid = start(slot, Path(sys.executable), "-c", BLOCKS, str(begun))
        profiled.until(begun.exists)
        os.kill(pid, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
    profiled.until(lambda: profiled.crashes)
    ((tgid, number, _, found),) = profiled.crashes
    assert (tgid, number, found.signal) == (pid, signal.SIGTERM, "SIGTERM")


def test_a_signal_that_the_program_handles_is_no_crash(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """Nor is SIGKILL. What comes behind them is the first that is told."""
    status = crash_of(slot, profiled, programs["crashed"], "handled")
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3
    status = crash_of(slot, profiled, programs["crashed"], "null", signal.SIGKILL)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert os.WTERMSIG(crash_of(slot, profiled, programs["crashed"], "divide")) == signal.SIGFPE
    profiled.until(lambda: profiled.crashes)
    assert [number for _, number, _, _ in profiled.crashes] == [signal.SIGFPE]


def test_where_a_set_user_id_program_crashed_is_not_looked_at(
    slot: Slot, profiled: Profiled, programs: dict[str, Path]
) -> None:
    """That it was another's is told."""
    foreign = programs["crashed"].with_name("foreign_crashed")
    shutil.copy(programs["crashed"], foreign)
    os.chown(foreign, BOB, BOB)
    foreign.chmod(0o4755)
    assert os.WTERMSIG(crash_of(slot, profiled, foreign, "null")) == signal.SIGSEGV
    profiled.until(lambda: profiled.crashes)
    ((_, number, words, found),) = profiled.crashes
    assert (number, words, found.is_ours, found.frames) == (signal.SIGSEGV, "", False, ())


def test_where_a_process_crashed_that_may_not_be_dumped_is_not_looked_at(slot: Slot, profiled: Profiled) -> None:
    """As one that has a secret in its memory asks the kernel for (PR_SET_DUMPABLE)."""
    hidden = "import ctypes, os\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nos.kill(os.getpid(), 11)"
    pid = start(slot, Path(sys.executable).resolve(), "-S", "-c", hidden)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGSEGV
    profiled.until(lambda: profiled.crashes)
    ((_, number, words, found),) = profiled.crashes
    assert (number, words, found.is_ours, found.frames) == (signal.SIGSEGV, "", False, ())


@pytest.mark.parametrize("version", PYTHONS)
def test_functions_of_python_that_never_were_in_a_sample_are_named_in_a_crash(
    slot: Slot, profiled: Profiled, version: str
) -> None:
    """With their lines: the kernel has read what names them."""
    with script(version, "crash_in_python.py") as (root, path):
        folder = Path(f"{root}{path}").parent
        folder.chmod(0o777)
        pid = start(slot, Path(f"/usr/bin/python{version}"), path, f"{Path(path).parent}/begun", root=root)
        begun(profiled, pid, folder / "begun", profiled.knows_python)
        os.kill(pid, signal.SIGUSR1)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGABRT
        profiled.until(lambda: profiled.crashes)
    ((_, _, words, found),) = profiled.crashes
    told = [(frame.function, frame.line) for frame in found.frames if frame.kind.value == "python"]
    assert told == [("inner", 14), ("outer", 18), ("<module>", 25)], found.frames
    assert "inner (crash_in_python.py:14)" in words, words
