"""The processes of a job, the files that SPECs mean in them, and their functions: looked for, and probed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from condor_joblens.common.cgroup_processes import processes_in
from condor_joblens.common.errors import JobLensError
from condor_joblens.model import trace_spec as specs
from condor_joblens.model.trace_spec import Spec
from condor_joblens.tracing import file_reader
from condor_joblens.tracing.functions import Function
from condor_joblens.tracing.opener import Opener
from condor_joblens.tracing.probes import Probes

LOOK_SECONDS = 0.5
"""After so long a process is looked at again, for new programs and libraries."""

MOST_LOOK_SECONDS = 8.0
"""And again after twice as long each time, up to this."""

OTHER_SHELLS = frozenset({"ash", "busybox", "csh", "dash", "fish", "ksh", "ksh93", "mksh", "tcsh", "zsh"})
"""Programs whose commands nobody can see."""

MOST_PROCESSES = 64
MOST_FILES = 8
MOST_REFUSED = 100


@dataclass
class Traced:
    """A function that is traced, by its number."""

    function: Function
    file: str  # its path, as the job sees it
    spec: Spec
    points: Sequence[int]
    since_ns: int = 0  # CLOCK_MONOTONIC, when it was first probed; 0: it is not
    until_ns: int = 0  # 0: it is probed still
    processes: int = 0  # that were probed
    unseen_ns: int = 0  # of those, before their probes: so long at most was it called and not counted
    is_unseen_known: bool = True


@dataclass
class _File:
    """A file of the job that a SPEC means."""

    path: str
    descriptor: int
    state: tuple[int, int]  # of what is in it, before it was read
    numbers: list[int] = field(default_factory=list)

    def is_as_read(self) -> bool:
        """Whether nobody has written into it since."""
        return _state(self.descriptor) == self.state


class JobProbes:
    """Probes what SPECs mean in a job's processes."""

    def __init__(
        self, spec_texts: Iterable[str], probes: Probes, cgroup: int, opener: Opener, notice: Callable[[str], None]
    ) -> None:
        """`cgroup` is its folder, open; `notice` is told of what can't be traced. Raises SpecError."""
        self.first_pause = LOOK_SECONDS
        self.unmatched: list[str] = []
        """Sentences about SPECs that mean a file of the job, and no function of it."""
        self.specs = [(text, specs.parse(text)) for text in spec_texts]
        self.traced: list[Traced] = []
        self._probes, self._cgroup, self._opener, self._notice = probes, cgroup, opener, notice
        opener.meanwhile = self.detach_what_is_off  # what costs the job too much does not wait for an answer
        self._files: dict[tuple[int, int], _File | None] = {}
        self._attached: set[tuple[int, int]] = set()  # process, and number of a function
        self.detached: set[int] = set()
        """Numbers of functions that are switched off."""
        self.living: set[int] = set()
        """Processes of the last look."""
        self._looks: dict[int, tuple[float, float]] = {}  # process -> when to look next, and how long after that
        self._looked_at: dict[int, int] = {}  # process -> CLOCK_MONOTONIC of the last look, ns
        self._refused: dict[str, None] = {}
        self._nearest: list[str] = []

    def look(self) -> bool:
        """Probes what is new of the job; False if it has no process any more."""
        pids = list(processes_in(f"/proc/self/fd/{self._cgroup}", MOST_PROCESSES + 1))
        if len(pids) > MOST_PROCESSES:
            self.refuse(f"of the job's processes, {MOST_PROCESSES} at a time are traced")
        for pid in pids[:MOST_PROCESSES]:
            if self._opener.is_lost:
                self.refuse("what opens the job's files as its owner has ended: new processes are not traced")
                break
            now = time.monotonic()
            due, pause = self._looks.get(pid, (now, self.first_pause))
            if now >= due:
                self._look_at(pid)
                self._looks[pid] = now + pause, min(2 * pause, MOST_LOOK_SECONDS)
        living = set(pids)
        probed = set(living)
        if len(pids) > MOST_PROCESSES:  # then not all are among them
            probed |= {pid for pid, _ in self._attached if _is_there(pid)}
        self._attached = {each for each in self._attached if each[0] in probed or not each[0]}
        self._looks = {pid: look for pid, look in self._looks.items() if pid in living}
        self._looked_at = {pid: look for pid, look in self._looked_at.items() if pid in living}
        self.living = living
        self._probes.forget(probed)
        return bool(pids)

    def _look_at(self, pid: int) -> None:
        began = time.monotonic_ns()
        # at the first look it may be the job's wrapper, which becomes the job in a moment
        is_of_shell = pid in self._looked_at and any(spec.is_of_shell for _, spec in self.specs)
        meant: dict[tuple[int, int], tuple[int, str]] = {}
        for start, identity, path in self._opener.mappings(pid):
            if any(spec.is_file(path) for _, spec in self.specs):
                meant.setdefault(identity, (start, path))
            elif is_of_shell and path.rpartition("/")[2] in OTHER_SHELLS:
                self.refuse(f"{path}: of this shell the programs that it starts are known, and not its commands")
        for identity, (start, path) in meant.items():
            if identity not in self._files:
                self._open(identity, start, path)
            file = self._files[identity]
            if file is not None and not file.is_as_read():
                self._give_up(identity, file)
            elif file is not None:
                for number in file.numbers:
                    self._attach(pid, number, file)
        self._looked_at[pid] = began

    def _open(self, identity: tuple[int, int], start: int, path: str) -> None:
        if len(self._files) >= MOST_FILES:
            self.refuse(f"of the job's files, {MOST_FILES} are traced: {path} is not")
            self._files.setdefault(identity, None)
            return
        self._files[identity] = None
        descriptor = self._opener.open(start)
        if descriptor is None:
            self.refuse(f"{path} can't be opened as the job's owner")
            return
        file = _File(path, descriptor, _state(descriptor))
        for text, spec in self.specs:
            if spec.is_file(path):
                self._read(file, text, spec)
        if file.numbers:
            self._files[identity] = file
        else:
            os.close(descriptor)

    def _give_up(self, identity: tuple[int, int], file: _File) -> None:
        """Its functions are elsewhere now: a probe where they were may lie within an instruction, and end the job."""
        self._files[identity] = None
        for number in file.numbers:
            self._probes.detach(number)
            self.traced[number].until_ns = self.traced[number].until_ns or time.monotonic_ns()
        os.close(file.descriptor)
        self.refuse(f"{file.path} was overwritten: it is not traced any more (what replaces it by a rename is)")

    def _read(self, file: _File, text: str, spec: Spec) -> None:
        try:
            found = file_reader.read(file.descriptor, text, self.detach_what_is_off)
        except JobLensError as error:
            self.refuse(f"{file.path} {error}")
            return
        for refused in found.refused:
            self.refuse(f"{file.path}: {refused}")
        self._nearest += found.nearest
        if not found.functions and not found.refused:
            near = f"; is it one of these: {', '.join(found.nearest)}?" if found.nearest else ""
            self.unmatched.append(f"{file.path} has no function like {spec.function}{near}")
        known = {self.traced[number].function.offset for number in file.numbers}
        for function in found.functions:
            if function.offset in known:
                continue  # another SPEC means it too
            try:
                points = self._probes.add(function, spec)
            except JobLensError as error:
                self.refuse(f"{file.path}: {error}")
                continue
            file.numbers.append(len(self.traced))
            self.traced.append(Traced(function, file.path, spec, points))

    def _attach(self, pid: int, number: int, file: _File) -> None:
        traced = self.traced[number]
        whose = 0 if self._probes.is_for_all else pid
        if (whose, number) in self._attached or self._probes.is_off(number):
            return
        if self._probes.is_full:
            self.refuse("processes begin and end so fast that not all of them are traced")
            return
        self._attached.add((whose, number))
        try:
            self._probes.attach(number, file.descriptor, traced.function, traced.points, pid)
        except JobLensError as error:
            self.refuse(f"{traced.function.name} in process {pid}: {error}")
            return
        now = time.monotonic_ns()
        traced.since_ns = traced.since_ns or now
        self._count_unseen(traced, pid, now)
        if traced.spec.is_of_throws:
            self._opener.ask({"prepare": pid})

    def _count_unseen(self, traced: Traced, pid: int, now: int) -> None:
        """At the last look its file was not there; at the first one, nobody knows since when it was."""
        traced.processes += 1
        before = self._looked_at.get(pid)
        if before is None:
            before = began_ns(pid)
        if before is None:
            traced.is_unseen_known = False
        else:
            traced.unseen_ns += max(0, now - before)

    def refuse(self, text: str) -> None:
        """Says once what can't be traced."""
        if text not in self._refused and len(self._refused) < MOST_REFUSED:
            self._refused[text] = None
            self._notice(text)

    def why_nothing(self) -> str:
        """Why no function is traced so far."""
        if self._refused:
            return f"nothing is traced: {next(iter(self._refused))}"
        if self._opener.is_lost:
            return "nothing is traced: the job's files could not be looked at as its owner"
        if not self._files:
            return f"no process of the job has a file like {self.specs[0][1].file} in its memory"
        near = f"; is it one of these: {', '.join(self._nearest[:3])}?" if self._nearest else ""
        return f"there is no function like {self.specs[0][1].function} in it{near}"

    def what(self) -> str:
        """What is traced, and what that costs the job, in words."""
        if self.traced[0].spec.is_of_shell:
            whose = "all that run this file pay it" if self._probes.is_for_all else "its own alone pay it"
            cost_us = self._probes.cost_ns / 1000
            return f"commands of {self.traced[0].file}: each costs the job about {cost_us:.0f} us; {whose}"
        names = [each.function.name for each in self.traced]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        cost = self._probes.cost_ns / 1000
        return f"{', '.join(names[:3])}{more}: each hit of a probe costs the job about {cost:.0f} us"

    def detach_what_is_off(self) -> None:
        """Before all else: what was hit until then can wait, and the job can't."""
        for number in range(len(self.traced)):
            if self._probes.is_off(number) and number not in self.detached:
                self.detached.add(number)
                self._probes.detach(number)

    def close(self) -> None:
        """Nothing is probed any more."""
        self._probes.close()
        ended = time.monotonic_ns()
        for traced in self.traced:
            traced.until_ns = traced.until_ns or ended

    def covered_seconds(self, number: int) -> float:
        """For how long a function has been probed, from its first process on."""
        traced = self.traced[number]
        until = traced.until_ns or time.monotonic_ns()
        return max(0, until - (traced.since_ns or until)) / 1e9


def _is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _state(descriptor: int) -> tuple[int, int]:
    """Another one if somebody writes into the file."""
    told = os.fstat(descriptor)
    return told.st_mtime_ns, told.st_size


def began_ns(pid: int) -> int | None:
    """When a process began, on CLOCK_MONOTONIC as far as it goes back; None if the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return time.monotonic_ns() - max(0, age)
    return None
