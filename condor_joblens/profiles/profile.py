"""A profile: how often which stack was seen, of one job or of several, in some time."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from condor_joblens.profiles import unseen

MOST_FRAMES = 1024
"""Of a stack, with Python's."""


class Kind(enum.Enum):
    """What a frame's code is."""

    NATIVE = "native"
    PYTHON = "python"
    KERNEL = "kernel"
    GROUP = "group"  # no code: a job, a process or a thread that stacks are put under


class View(enum.Enum):
    """Which of a job's time a profile shows, in words."""

    ON_CPU = "on the CPU"
    OFF_CPU = "off the CPU"
    WALL = "on the CPU or off it"

    @property
    def lacks(self) -> tuple[str, ...]:
        """The waits that are in no profile: a page fault is no call, and nothing is told of its end."""
        return () if self is View.ON_CPU else ("waits in page faults",)


@dataclass(frozen=True)
class Frame:
    """A place in the code.

    `function` is never empty: without a symbol it is the file's name and the offset at which the function begins.
    """

    function: str
    kind: Kind = Kind.NATIVE
    file: str = ""  # the program, library or Python source; empty in the kernel
    line: int = 0  # of a Python source; 0: unknown
    offset: int = 0  # in the file; 0 in the kernel, whose addresses are nobody's business
    build_id: str = ""  # of the file, in hexadecimal

    @property
    def library(self) -> str:
        """The name of its file without folders, or `[kernel]`."""
        return self.file.rpartition("/")[2] or f"[{self.kind.value}]"


UNPLACED = Frame("(a file without a place)")
"""Stands for code of a program or library that gave way: files of all jobs together have a bounded number of places."""

NOT_LOOKED_AT = Frame("(process not looked at)")
"""Stands for code of a process of which nobody knows what it had where: it had ended, or the window, before a look."""

CUT_SHORT = Frame("(rarer stacks, cut short)")
"""Stands for what was left out of stacks that were seen rarely."""


@dataclass(frozen=True)
class Stack:
    """Frames from the outermost caller to the leaf, and whose they are."""

    frames: tuple[Frame, ...]
    pid: int = 0
    process: str = ""  # its name
    thread: str = ""  # the thread's name
    is_guessed: bool = False  # part of it was found by frame pointers, where there was no rule


@dataclass
class Profile:
    """Counted stacks. Times are epoch seconds; `hz` is how often a second each CPU was looked at.

    A view of time off the CPU counts in nanoseconds, where it says samples: what calls have waited that have ended.
    Each has waited for a millisecond or more. `lost` is then what no stack stands for.
    """

    begun: float
    ended: float
    hz: float = 99.0
    job: str = ""
    node: str = ""
    stacks: dict[Stack, int] = field(default_factory=dict)  # -> samples
    lost: int = 0  # samples that were taken and could not be kept
    broken: int = 0  # of the samples: the outermost callers are missing
    not_ours: int = 0  # samples of processes that run with other credentials than the job: not looked at
    view: View = View.ON_CPU
    waits: int = 0  # calls that have waited
    taken: int = 0  # of these: those of which the stack was taken; it stands for the others, too
    unseen: unseen.Times = ()  # when nobody looked at the job; some may be before `begun`
    limits: str = ""  # what stacks lack on a node's kernel, in words; of several nodes, those of each

    @property
    def samples(self) -> int:
        """All that are in the stacks."""
        return sum(self.stacks.values())

    def amount(self, count: int) -> str:
        """`1,200 samples`, or a time: `1.234 s`."""
        return f"{count:,} samples" if self.view is View.ON_CPU else f"{count / 1e9:,.3f} s"

    @property
    def lacks(self) -> tuple[str, ...]:
        """What it can't show, in words."""
        return (*self.view.lacks, *filter(None, self.limits.split("; ")))

    @property
    def guessed(self) -> int:
        """Those of the samples whose stack is in part a guess."""
        return sum(count for stack, count in self.stacks.items() if stack.is_guessed)

    @property
    def unplaced(self) -> int:
        """Those of the samples with code of a file for which there was no place."""
        return sum(count for stack, count in self.stacks.items() if UNPLACED in stack.frames)

    @property
    def not_looked_at(self) -> int:
        """Those of the samples with code of a process that nobody could look at in time."""
        return sum(count for stack, count in self.stacks.items() if NOT_LOOKED_AT in stack.frames)

    def add(self, stack: Stack, count: int) -> None:
        """So many samples more."""
        self.stacks[stack] = self.stacks.get(stack, 0) + count

    def mapped(self, change: Callable[[Stack], Stack]) -> Profile:
        """The same with other stacks; those that become equal are added up."""
        changed = dataclasses.replace(self, stacks={})
        for stack, count in self.stacks.items():
            changed.add(change(stack), count)
        return changed


def merged(profiles: Iterable[Profile]) -> Profile:
    """All of them in one, which are of one view. Raises ValueError if there is none."""
    found = list(profiles)
    if not found:
        raise ValueError("no profile")
    jobs = dict.fromkeys(each.job for each in found)
    nodes = dict.fromkeys(each.node for each in found)
    total = Profile(
        begun=min(each.begun for each in found),
        ended=max(each.ended for each in found),
        hz=max(each.hz for each in found),
        job=" ".join(filter(None, jobs)),
        node=" ".join(filter(None, nodes)),
        lost=sum(each.lost for each in found),
        broken=sum(each.broken for each in found),
        not_ours=sum(each.not_ours for each in found),
        view=found[0].view,
        waits=sum(each.waits for each in found),
        taken=sum(each.taken for each in found),
        unseen=unseen.together(pair for each in found for pair in each.unseen),
        limits="; ".join(dict.fromkeys(part for each in found for part in each.limits.split("; ") if part)),
    )
    for each in found:
        for stack, count in each.stacks.items():
            total.add(stack, count)
    return total


def wall(on_cpu: Profile | None, off_cpu: Profile | None) -> Profile:
    """Both in one, in nanoseconds: a sample on the CPU is the time until the next one. Raises ValueError for none."""
    parts = [] if off_cpu is None else [off_cpu]
    if on_cpu is not None:
        period = round(1e9 / on_cpu.hz)
        scaled = dataclasses.replace(on_cpu, stacks={stack: n * period for stack, n in on_cpu.stacks.items()})
        scaled.lost, scaled.broken, scaled.not_ours = (
            count * period for count in (on_cpu.lost, on_cpu.broken, on_cpu.not_ours)
        )
        parts.append(scaled)
    return dataclasses.replace(merged(parts), view=View.WALL)


def coarser(profile: Profile) -> Profile:
    """The same by functions and lines: without the places within functions."""
    known: dict[Frame, Frame] = {}

    def without_offset(frame: Frame) -> Frame:
        return known.setdefault(frame, dataclasses.replace(frame, offset=0) if frame.offset else frame)

    return profile.mapped(lambda stack: dataclasses.replace(stack, frames=tuple(map(without_offset, stack.frames))))


def without_rarest(profile: Profile, kept: int) -> Profile:
    """So many stacks of it, those that were seen most; samples of the others are lost."""
    ordered = sorted(profile.stacks.items(), key=lambda each: -each[1])
    lost = sum(count for _, count in ordered[kept:])
    return dataclasses.replace(profile, stacks=dict(ordered[:kept]), lost=profile.lost + lost)


def cut_short(profile: Profile, kept: int, depth: int) -> Profile:
    """So many stacks of it whole, those that were seen most; of the others their `depth` outermost frames.

    All counts stay as they are. Without any that is kept or any depth, processes and threads are not told apart either.
    """
    ordered = sorted(profile.stacks.items(), key=lambda each: -each[1])
    found = dataclasses.replace(profile, stacks=dict(ordered[:kept]))
    for stack, count in ordered[kept:]:
        if not kept and not depth:
            stack = Stack((), is_guessed=stack.is_guessed)
        frames = stack.frames if len(stack.frames) <= depth else (*stack.frames[:depth], CUT_SHORT)
        found.add(dataclasses.replace(stack, frames=frames or (CUT_SHORT,)), count)
    return found


def under(profile: Profile, *, process: bool = False, thread: bool = False) -> Profile:
    """The stacks below their processes, their threads, or both."""

    def grouped(stack: Stack) -> Stack:
        groups = []
        if process:
            groups.append(Frame(f"{stack.process or 'process'} ({stack.pid})", Kind.GROUP))
        if thread:
            groups.append(Frame(stack.thread or "(no name)", Kind.GROUP))
        return dataclasses.replace(stack, frames=(*groups, *stack.frames))

    return profile.mapped(grouped)


def by_line(profile: Profile) -> Profile:
    """Functions whose lines are known are called `f() (fit.cpp:41)`: each line has its own box in a picture."""

    def named(frame: Frame) -> Frame:
        place = f"{frame.function} ({frame.library}:{frame.line})"
        return dataclasses.replace(frame, function=place, offset=0) if frame.line else frame

    return profile.mapped(lambda stack: dataclasses.replace(stack, frames=tuple(map(named, stack.frames))))


def by_library(profile: Profile) -> Profile:
    """Frames of one file that follow each other become one, with the file's name."""

    def collapsed(stack: Stack) -> Stack:
        frames: list[Frame] = []
        for frame in stack.frames:
            library = frame if frame.kind is Kind.GROUP else Frame(frame.library, frame.kind, frame.file)
            if not frames or frames[-1] != library:
                frames.append(library)
        return dataclasses.replace(stack, frames=tuple(frames))

    return profile.mapped(collapsed)
