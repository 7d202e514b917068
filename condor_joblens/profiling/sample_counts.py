"""Samples as the kernel writes them, counted, and made into a window of stacks.

A sample is counted as the bytes that it is: equal ones are taken apart once, when their window closes. Of one off the
CPU all bytes count but those that say how long it has waited.
"""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from condor_joblens.common import kernel_limits
from condor_joblens.profiling.late_mappings import FILE_MASK, FILE_SHIFT, IN_FILE, OFFSET_MASK, LateMappings
from condor_joblens.profiling.samples import (
    MOST_STACKS,
    NO_PLACE,
    NOT_LOOKED_AT,
    Frame,
    Kind,
    MappedFile,
    Stack,
    Window,
)  # fmt: skip
from condor_joblens.profiling.wait_words import waited_in

HEAD = struct.Struct("<QIIQIIIHH16sIIQ")
"""struct sample of joblens_profile.h: run, tgid, exec, start, pid, tid, flags, kernel and user frames, thread.

Then frames of Python, what it waited in or the signal that killed it, and for how long."""

GUESSED, WHOLE, ASKS, PYTHON_CUT, WAITED, CRASH, NOT_OURS, MEMORY, EXCEPTION, NO_RULES, BY_FILE = (
    1 << bit for bit in range(11)
)
"""enum sample_flags"""

_LIMITS = kernel_limits.of_this_kernel()

_KEY_AT, _KEY_END = 8, 24  # of struct process_key
_LAST_OF_CALL, _CODE_BITS = 1, 7
_IDENTITY_SHIFT, _PLACE_MASK = 32, 0xFFFFFFFF
"""Of the words of a frame of Python, in joblens_profile.h."""

Code = tuple[int, int]
"""A code object of Python: its address, and which one it is there (python_identity.py)."""

MOST_CRASHES = 16
"""Of a run between two looks into the ring: the first ones."""

_SIZE = struct.Struct("<Q")
_RUN = _ADDRESS = struct.Struct("<Q")
_FLAGS = struct.Struct("<I")
_FLAGS_AT = 32
_NS_AT = HEAD.size - 8


@dataclass
class Process:
    """What a sample says of a process that is to be looked at."""

    key: bytes  # struct process_key
    pid: int


@dataclass
class Counts:
    """Of one run since its window began: bytes of a sample -> how often it came, or how long it has waited (ns)."""

    began: float
    slot: int
    samples: dict[bytes, int] = field(default_factory=dict)
    left_out: int = 0
    waits: dict[bytes, int] = field(default_factory=dict)
    waits_left_out: int = 0  # ns
    codes: dict[bytes, set[Code]] = field(default_factory=dict)  # struct process_key -> code objects that are new in it
    crashes: list[bytes] = field(default_factory=list)  # that are not told yet, each as a sample is
    memory: dict[bytes, dict[int, bytes]] = field(default_factory=dict)  # struct process_key -> of those, by address
    exceptions: dict[bytes, bytes] = field(default_factory=dict)  # struct process_key -> of those, struct cxx_exception

    def keep_memory(self, told: bytes) -> None:
        """A piece of the memory of a process that crashes, as struct told_memory has it."""
        if len(self.memory) <= MOST_CRASHES and len(told) >= HEAD.size + _ADDRESS.size:
            (address,) = _ADDRESS.unpack_from(told, HEAD.size)
            self.memory.setdefault(told[_KEY_AT:_KEY_END], {})[address] = told[HEAD.size + _ADDRESS.size :]

    def keep_exception(self, told: bytes) -> None:
        """What a process that crashes has not caught, as struct told_exception has it."""
        if len(self.exceptions) <= MOST_CRASHES:
            self.exceptions[told[_KEY_AT:_KEY_END]] = told[HEAD.size :]

    def add(self, sample: bytes) -> None:
        """One more."""
        self.left_out += self._left_out(self.samples, sample, 1)

    def add_wait(self, sample: bytes) -> None:
        """One more that was off the CPU."""
        (waited,) = _SIZE.unpack_from(sample, _NS_AT)
        alike = sample[:_NS_AT] + bytes(_SIZE.size) + sample[HEAD.size :]
        self.waits_left_out += self._left_out(self.waits, alike, waited)

    def _left_out(self, counted: dict[bytes, int], sample: bytes, amount: int) -> int:
        """Adds it; returns the amount if there is no room for another stack."""
        if sample in counted:
            counted[sample] += amount
        elif len(counted) < MOST_STACKS:
            counted[sample] = amount
            found = codes_of(sample)
            if found:
                self.codes.setdefault(sample[_KEY_AT:_KEY_END], set()).update(found)
        else:
            return amount
        return 0

    def off_cpu(self) -> Counts:
        """What has waited, as if it were samples."""
        return dataclasses.replace(self, samples=self.waits, left_out=self.waits_left_out)


def take(data: bytes, runs: Mapping[int, Counts], others: dict[int, Counts]) -> list[tuple[int, Process]]:
    """Counts the samples in what the ring gave; the processes that are to be looked at, with their runs.

    Of runs that are not in `runs` they are counted in `others`.
    """
    asked, at, end = [], 0, len(data)
    while at + _SIZE.size <= end:
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        sample = data[at : at + size]
        at += (size + 7) & ~7
        if len(sample) < HEAD.size:
            continue
        (run,) = _RUN.unpack_from(sample)
        counts = runs.get(run)
        if counts is None:
            counts = others.setdefault(run, Counts(time.time(), 0))
        (flags,) = _FLAGS.unpack_from(sample, _FLAGS_AT)
        if flags & MEMORY:
            counts.keep_memory(sample)
            continue
        if flags & EXCEPTION:
            counts.keep_exception(sample)
            continue
        if flags & CRASH:
            if len(counts.crashes) < MOST_CRASHES:
                counts.crashes.append(sample)
            continue
        if flags & ASKS:
            head = HEAD.unpack_from(sample)
            asked.append((head[0], Process(sample[_KEY_AT:_KEY_END], head[4])))
            sample = sample[:_FLAGS_AT] + _FLAGS.pack(flags & ~ASKS) + sample[_FLAGS_AT + _FLAGS.size :]
        if flags & WAITED:
            counts.add_wait(sample)
        else:
            counts.add(sample)
    return asked


def key_of(sample: bytes) -> bytes:
    """struct process_key of a sample."""
    return sample[_KEY_AT:_KEY_END]


def codes_of(sample: bytes) -> set[Code]:
    """The code objects of Python in a sample."""
    head = HEAD.unpack_from(sample)
    if not head[10]:
        return set()
    words = _words(sample)[head[7] + head[8] :].tolist()
    return {(code & ~_CODE_BITS, which >> _IDENTITY_SHIFT) for code, which in zip(words[::2], words[1::2])}


_NOT_LOOKED_AT = Frame(Kind.NATIVE, file=NOT_LOOKED_AT)

FrameOfPython = Callable[[bytes, Code, int], "Frame | None"]
"""What a code object of a process (struct process_key) and a place in it (line_of_sample) are; None: no function."""


def window_of(
    run: int,
    counts: Counts,
    until: float,
    hz: int,
    file_of: Callable[[int], MappedFile | None],
    kernel_names: Callable[[set[int]], Mapping[int, str]],
    frame_of_python: FrameOfPython,
    interpreters: Mapping[int, tuple[int, int]],
    late: LateMappings,
    looked_at: Container[bytes],
) -> tuple[Window, set[int]]:
    """The window, and the numbers of the files that are in it. Numbers that the kernel has counted are the caller's.

    `interpreters`: as Window's, by the numbers of files. `late`: for samples of processes that were not known yet.
    `looked_at`: whose mappings have been found (struct process_key).
    """
    window = Window(run, counts.began, until, hz, left_out=counts.left_out)
    taken_apart = [(sample, HEAD.unpack_from(sample), _words(sample)) for sample in counts.samples]
    for sample, head, words in taken_apart:
        if not head[6] & BY_FILE and max(words[head[7] : head[7] + head[8]].tolist(), default=0) & IN_FILE:
            late.prove(key_of(sample))
    addresses = {word for _, head, words in taken_apart for word in words[: head[7]].tolist()}
    names = kernel_names(addresses)
    places: dict[int, int] = {}  # number of a file -> its place in the window
    frames: dict[int, Frame] = {}
    for sample, head, words in taken_apart:
        count = counts.samples[sample]
        kernel = [_kernel_frame(word, names) for word in words[: head[7]].tolist()]
        if head[6] & WAITED:
            kernel.insert(0, Frame(Kind.KERNEL, function=waited_in(head[11])))
        user = []
        process = key_of(sample)
        for address in words[head[7] : head[7] + head[8]].tolist():
            word = late.word(process, address)
            if not word & IN_FILE and process not in looked_at:
                user.append(_NOT_LOOKED_AT)
                continue
            frame = frames.get(word)
            if frame is None:
                frame = frames[word] = _user_frame(word, places, window, file_of)
            user.append(frame)
        thread = head[9].partition(b"\0")[0].decode("utf-8", "replace")
        guessed, whole = bool(head[6] & GUESSED), bool(head[6] & WHOLE)
        if head[6] & NO_RULES:
            window.limits = _LIMITS
        frames_of_python = words[head[7] + head[8] :].tolist()
        calls, all_calls = _calls(process, frames_of_python, frame_of_python)
        all_calls = all_calls and not head[6] & PYTHON_CUT
        taken = (*reversed(user), *reversed(kernel))
        stack = Stack(head[4], head[5], thread, taken, guessed, whole, calls, all_calls)
        window.stacks[stack] = window.stacks.get(stack, 0) + count
        window.guessed += count * guessed
        window.broken += count * (not whole)
    window.interpreters = {places[number]: span for number, span in interpreters.items() if number in places}
    return window, set(places)


def _calls(
    process: bytes, words: list[int], frame_of_python: FrameOfPython
) -> tuple[tuple[tuple[Frame, ...], ...], bool]:
    """Calls of the interpreter, as Stack has them, and whether no frame is left out of them."""
    calls: list[tuple[Frame, ...]] = []
    call: list[Frame] = []
    has_all = True
    for code, which in zip(words[::2], words[1::2]):
        known_by = code & ~_CODE_BITS, which >> _IDENTITY_SHIFT
        frame = frame_of_python(process, known_by, which & _PLACE_MASK)
        if frame is None:
            has_all = False
        else:
            call.append(frame)
        if code & _LAST_OF_CALL and call:
            calls.append(tuple(call))
            call = []
    return (*calls, tuple(call)) if call else tuple(calls), has_all


def _words(sample: bytes) -> memoryview:
    """What comes behind the head, numbers of 64 bits."""
    return memoryview(sample)[HEAD.size :].cast("Q")


def _kernel_frame(address: int, names: Mapping[int, str]) -> Frame:
    return Frame(Kind.KERNEL, address, function=names.get(address, ""))


def _user_frame(
    word: int, places: dict[int, int], window: Window, file_of: Callable[[int], MappedFile | None]
) -> Frame:
    if not word & IN_FILE:
        return Frame(Kind.NATIVE, word)
    number, offset = word >> FILE_SHIFT & FILE_MASK, word & OFFSET_MASK
    if number not in places:
        file = file_of(number)
        if file is None:
            return Frame(Kind.NATIVE, file=NO_PLACE)
        places[number] = len(window.files)
        window.files.append(file)
    return Frame(Kind.NATIVE, offset, places[number])
