"""What a window of samples becomes when it closes: a profile with names, as it is kept.

It runs in the process that reads samples, which has no right. The files are the jobs': whatever is wrong in one costs
the names of its functions. They are read, not mapped: their owner can cut one off at any time.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, Union

from condor_joblens.common.signals import signal_name
from condor_joblens.profiles import pprof, segment
from condor_joblens.profiles.crash import Crash, encode, in_words, is_by_terminate
from condor_joblens.profiles.hottest import Heats
from condor_joblens.profiles.profile import NOT_LOOKED_AT, UNPLACED, Frame, Kind, Profile, Stack, View
from condor_joblens.profiling import samples
from condor_joblens.profiling.demangle import demangled, warm_up
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.exception_types import type_name
from condor_joblens.profiling.mixed import NativeFrame, PlacedFrame, mixed
from condor_joblens.profiling.python import Calls, PythonFrame, runs_python
from condor_joblens.profiling.samples import NO_FILE, NO_PLACE, FileKey, Killed, MappedFile, OpenFiles, Window

MOST_BYTES = 1 << 20
"""Of what becomes of a window: a quarter of what is kept of a job."""

MOST_PLACES = 20_000
"""Different frames of a window that are kept. Stacks with others, the rarest, are counted as lost."""

MOST_NAME = 1000
"""Characters of a name that are kept."""

_MOST_FILES = 256
_MOST_NAMES = 100_000
"""Names that are remembered of all files together, some 150 bytes each."""

_FileId = Union[FileKey, tuple[int, FileKey]]
"""Files that root alone can write are the same for all runs; any other one belongs to its run."""

_WITHOUT_FILE = {NO_PLACE: UNPLACED, samples.NOT_LOOKED_AT: NOT_LOOKED_AT}

Named = tuple[str, int]
"""A function's name, and the offset in the file at which it begins."""


class _FileNames(NamedTuple):
    functions: dict[int, Named]  # by offset
    build_id: str


Demangle = Callable[[int, Sequence[str]], list[str]]
"""The names of functions of a run as their authors wrote them; of files that are every run's the run is 0."""


def demangle_here(_run: int, mangled: Sequence[str]) -> list[str]:
    """In this very process: of files that can be trusted."""
    return [demangled(name) for name in mangled]


class Names:
    """The names of functions that were asked for, file by file; those of files that were not asked for lately go."""

    def __init__(self, demangle: Demangle = demangle_here) -> None:
        self._demangle = demangle
        self._known: OrderedDict[_FileId, dict[int, Named]] = OrderedDict()
        self._build_ids: dict[_FileId, str] = {}  # of those
        self._count = 0

    def of(self, run: int, file: MappedFile, offsets: Iterable[int], files: OpenFiles) -> dict[int, Named]:
        """The function at each offset of a file. Without a symbol it is called by the file and its own offset."""
        key: _FileId = file.key if file.is_roots else (run, file.key)
        known = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        missing = [offset for offset in set(offsets) if offset not in known]
        if missing:
            demangle = functools.partial(self._demangle, 0 if file.is_roots else run)
            found, build_id = _read(file, missing, files, demangle)
            known.update(found)
            if build_id:
                self._build_ids[key] = build_id
            self._count += len(missing)
            self._forget(key)
        return known

    def build_id(self, run: int, file: MappedFile) -> str:
        """In hexadecimal, of a file that `of` was asked for; empty if it has none."""
        return self._build_ids.get(file.key if file.is_roots else (run, file.key), "")

    def forget_run(self, run: int) -> None:
        """A run is over: nobody will ask for its own files again."""
        for key in [key for key in self._known if isinstance(key, tuple) and key[0] == run]:
            self._count -= len(self._known.pop(key))
            self._build_ids.pop(key, None)

    def _forget(self, kept: _FileId) -> None:
        while len(self._known) > 1 and (self._count > _MOST_NAMES or len(self._known) > _MOST_FILES):
            key, names = self._known.popitem(last=False)
            if key == kept:  # it was asked for last, so all others are gone
                self._known[key] = names
                return
            self._count -= len(names)
            self._build_ids.pop(key, None)


def _read(
    file: MappedFile, offsets: list[int], files: OpenFiles, demangle: Callable[[Sequence[str]], list[str]]
) -> tuple[dict[int, Named], str]:
    """The functions at some offsets of a file, and its build-id."""
    library = file.path.rpartition("/")[2] or "?"
    found, build_id = {offset: ("", offset) for offset in offsets}, ""
    descriptor = files.descriptor(file)
    if descriptor is not None:
        with contextlib.suppress(ElfError, OSError, MemoryError):
            elf = Elf.unmapped(descriptor)
            symbols = files.symbols(file)
            with contextlib.suppress(ElfError, OSError):
                if symbols is not None:
                    elf.has_beside(Elf.unmapped(symbols))
            with contextlib.suppress(ElfError):
                build_id = elf.build_id
            found = dict(zip(offsets, elf.functions(offsets)))
    plain = dict(zip(found, demangle([name for name, _ in found.values()])))
    return {
        offset: (_short(plain[offset]) if plain[offset] else f"{_short(library)}+{start:#x}", start)
        for offset, (_, start) in found.items()
    }, build_id


class Finisher:
    """samples.Finish: makes names, and packs."""

    def __init__(self, demangle: Demangle = demangle_here) -> None:
        """Loads what is needed of libraries and modules: afterwards the process may open no file."""
        warm_up()
        self._demangle = demangle
        self._names, self._heats = Names(demangle), Heats()
        with open(sys.executable, "rb") as program:
            self(_EXAMPLE, _One(program.fileno()))
            self.crash(_EXAMPLE, _One(program.fileno()), Killed(11, 0.0, True))
        self._names, self._heats = Names(demangle), Heats()

    def __call__(self, window: Window, files: OpenFiles) -> bytes:
        """The window as a segment (profiles/segment.py)."""
        profile = self.profile(window, files)
        hottest = "" if window.is_off_cpu else self._heats.add(window.run, profile)
        return segment.joined(hottest, pprof.encode_within(profile, MOST_BYTES))

    def crash(self, window: Window, files: OpenFiles, killed: Killed) -> tuple[str, bytes]:
        """The one stack of a window as the artifact of a crash (profiles/crash.py), and in words before it."""
        (stack,) = window.stacks
        named = self._named(window, files)
        all_frames = dict.fromkeys(chain(stack.frames, *stack.calls))
        frames, is_guessed = _with_python(
            stack, {frame: _frame(frame, window.files, named) for frame in all_frames}, window
        )
        crash = Crash(
            signal_name(killed.signal), killed.time, stack.pid, _short(stack.thread), frames[::-1],
            _has_all_callers(stack), is_guessed, killed.is_ours,
        )  # fmt: skip
        if killed.exception is not None and is_by_terminate(crash):
            name = type_name(killed.exception.names[0], lambda mangled: self._demangle(window.run, [mangled])[0])
            crash = replace(crash, exception=name, text=killed.exception.text or "")
        return in_words(crash), encode(crash)

    def profile(self, window: Window, files: OpenFiles) -> Profile:
        """The window with names."""
        view = View.OFF_CPU if window.is_off_cpu else View.ON_CPU
        profile = Profile(
            window.began, window.until, float(window.hz), view=view, waits=window.waits, taken=window.taken
        )
        profile.lost, profile.not_ours = window.lost + window.left_out, window.not_ours
        profile.unseen, profile.limits = window.unseen, window.limits
        processes = {stack.pid: stack.thread for stack in window.stacks if stack.pid == stack.tid}
        frames: dict[samples.Frame, Frame] = {}
        named = self._named(window, files)
        for stack, count in sorted(window.stacks.items(), key=lambda each: -each[1]):
            new = [frame for frame in chain(stack.frames, *stack.calls) if frame not in frames]
            if len(frames) + len(new) > MOST_PLACES:
                profile.lost += count
                continue
            frames.update((frame, _frame(frame, window.files, named)) for frame in new)
            process, thread = _short(processes.get(stack.pid, "")), _short(stack.thread)
            places, is_guessed = _with_python(stack, frames, window)
            profile.add(Stack(places, stack.pid, process, thread, is_guessed), count)
            profile.broken += 0 if _has_all_callers(stack) else count
        return profile

    def _named(self, window: Window, files: OpenFiles) -> dict[int, _FileNames]:
        """By the number of the file in the window: the functions at the offsets that occur, and its build-id."""
        offsets: dict[int, set[int]] = {}
        for stack in window.stacks:
            for frame in stack.frames:
                if frame.kind is samples.Kind.NATIVE and frame.file >= 0:
                    offsets.setdefault(frame.file, set()).add(frame.offset)
        return {
            number: _FileNames(
                self._names.of(window.run, window.files[number], wanted, files),
                self._names.build_id(window.run, window.files[number]),
            )
            for number, wanted in offsets.items()
        }


@dataclass(frozen=True)
class _One:
    """OpenFiles of one file."""

    number: int

    def descriptor(self, file: MappedFile) -> int:
        return self.number

    def symbols(self, file: MappedFile) -> None:
        return None


_EXAMPLE = Window(0, 0.0, 1.0, 99, files=[MappedFile(FileKey(0, 0, 0, 0), "/python")])
"""All kinds of frames, in a file that is there."""

_EXAMPLE.stacks[
    samples.Stack(
        1,
        1,
        "example",
        (
            samples.Frame(samples.Kind.NATIVE, 4096, 0),
            samples.Frame(samples.Kind.PYTHON, function="f", source="f"),
            samples.Frame(samples.Kind.KERNEL, function="f"),
        ),
    )
] = 1


def _with_python(
    stack: samples.Stack, frames: dict[samples.Frame, Frame], window: Window
) -> tuple[tuple[Frame, ...], bool]:
    """The frames of a stack with its functions of Python in their places, and whether any of it is a guess."""
    if not stack.calls:
        return tuple(frames[frame] for frame in stack.frames), stack.is_guessed
    user = [frame for frame in stack.frames if frame.kind is not samples.Kind.KERNEL]
    kernel = [frame for frame in stack.frames if frame.kind is samples.Kind.KERNEL]
    native = [_native(frame, frames[frame], stack.is_guessed, window) for frame in reversed(user)]
    calls = Calls(tuple(tuple(map(_of_python, call)) for call in stack.calls), stack.has_all_calls)
    found = mixed(native, stack.is_whole, calls)
    known: dict[NativeFrame | PythonFrame, Frame] = dict(zip(reversed(native), (frames[frame] for frame in user)))
    known.update((_of_python(frame), frames[frame]) for call in stack.calls for frame in call)
    own = [known[each.frame if isinstance(each, PlacedFrame) else each] for each in reversed(found)]
    return (*own, *(frames[frame] for frame in kernel)), any(each.is_guessed for each in found)


def _has_all_callers(stack: samples.Stack) -> bool:
    return stack.is_whole and stack.has_all_calls


def _native(frame: samples.Frame, named: Frame, is_guessed: bool, window: Window) -> NativeFrame:
    is_interpreter = _is_interpreter(frame, named, window)
    return NativeFrame(named.function, str(frame.file), frame.offset, is_guessed, is_interpreter)


def _of_python(frame: samples.Frame) -> PythonFrame:
    return PythonFrame(frame.function, frame.source, frame.line)


def _is_interpreter(frame: samples.Frame, named: Frame, window: Window) -> bool:
    first, end = window.interpreters.get(frame.file, (0, 0))
    return first <= frame.offset < end or runs_python(named.function)


def _frame(frame: samples.Frame, files: list[MappedFile], named: dict[int, _FileNames]) -> Frame:
    if frame.kind is samples.Kind.KERNEL:
        return Frame(_short(frame.function) or "(kernel)", Kind.KERNEL)
    if frame.kind is samples.Kind.PYTHON:
        source = _short(frame.source) or "(no file)"
        return Frame(_short(frame.function) or "(no name)", Kind.PYTHON, source, frame.line)
    if frame.file == NO_FILE:
        return Frame("(unknown code)")
    if frame.file in _WITHOUT_FILE:
        return _WITHOUT_FILE[frame.file]
    file = files[frame.file]
    known = named[frame.file]
    name, _ = known.functions[frame.offset]
    return Frame(name, Kind.NATIVE, _short(file.path) or "?", 0, frame.offset, known.build_id)


def _short(text: str) -> str:
    return text if len(text) <= MOST_NAME else text[: MOST_NAME - 2] + ".."
