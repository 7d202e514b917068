"""Samples as the kernel writes them are counted as bytes, and become stacks when their window closes."""

from __future__ import annotations

import struct

import pytest
from condor_joblens.tracer._bpf import ffi, lib

from condor_joblens.model import classes
from condor_joblens.profiling import calls, exception_types, reader_messages, sample_counts, unwind_tables
from condor_joblens.profiling.late_mappings import MOST_ROWS, LateMappings
from condor_joblens.profiling.sample_counts import (
    ASKS,
    BY_FILE,
    CRASH,
    EXCEPTION,
    GUESSED,
    HEAD,
    MEMORY,
    MOST_CRASHES,
    PYTHON_CUT,
    WAITED,
    WHOLE,
    Counts,
)
from condor_joblens.profiling.sample_reader import Counted
from condor_joblens.profiling.samples import (
    MOST_STACKS,
    NO_FILE,
    NO_PLACE,
    NOT_LOOKED_AT,
    FileKey,
    Frame,
    Kind,
    MappedFile,
    Stack,
)
from condor_joblens.profiling.wait_words import waited_in
from condor_joblens.tracer import map_layout

RUN, PID, TID = 7, 50, 51
FILESYSTEMS = list(classes.FILESYSTEMS)
READ, FUTEX, NANOSLEEP, WAIT4, POLL, FCNTL = (
    next(number for number, name in calls._NAMES.items() if name == wanted and number is not None)
    for wanted in ("read", "futex", "nanosleep", "wait4", "ppoll", "fcntl")
)
LAST = sample_counts._LAST_OF_CALL
FILE = MappedFile(FileKey(1, 2, 3, 4), "/bin/a")
IN_FILE = 1 << 63 | 1 << 32


def sample(
    flags: int = WHOLE,
    kernel: tuple[int, ...] = (),
    user: tuple[int, ...] = (IN_FILE | 0x10,),
    run: int = RUN,
    python: tuple[int, ...] = (),
    waited: tuple[int, int] = (0, 0),
) -> bytes:
    sizes = len(kernel), len(user)
    head = HEAD.pack(run, 900, 1, 77, PID, TID, flags, *sizes, b"worker\0rest", len(python) // 2, *waited)
    return head + struct.pack(f"<{sum(sizes) + len(python)}Q", *kernel, *user, *python)


KEY = struct.pack("<IIQ", 900, 1, 77)


def no_python(_process: bytes, _code: tuple[int, int], _place: int) -> None:
    raise AssertionError("there is none")


def packed(*some: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(each)) + each + bytes(-len(each) % 8) for each in some)


def test_the_layout_is_that_of_the_kernel() -> None:
    """joblens_profile.h has it."""
    assert HEAD.size == ffi.sizeof("struct sample")
    assert ffi.offsetof("struct sample", "flags") == sample_counts._FLAGS_AT
    assert ffi.sizeof("struct open_file") == reader_messages.FILE_KEY_BYTES == reader_messages.OPEN_FILE.size - 4
    assert lib.SAMPLE_BY_FILE == BY_FILE
    assert ffi.sizeof("struct python_process") == reader_messages.PYTHON_PROCESS.size
    assert ffi.sizeof("struct sampled") == map_layout.SAMPLED.itemsize == len(Counted().packed())
    assert Counted._fields == map_layout.SAMPLED.names


def test_equal_samples_are_counted_and_one_that_asks_is_equal_to_one_that_does_not() -> None:
    counts, others = {RUN: Counts(0.0, 0)}, {}
    asked = sample_counts.take(packed(sample(), sample(WHOLE | ASKS), sample(GUESSED)), counts, others)
    assert [(run, process.pid, process.key) for run, process in asked] == [(RUN, PID, struct.pack("<IIQ", 900, 1, 77))]
    assert counts[RUN].samples == {sample(): 2, sample(GUESSED): 1} and not others


def test_a_crash_is_no_sample_and_what_was_read_of_its_memory_goes_with_it() -> None:
    counts, others = {RUN: Counts(0.0, 0)}, {}
    crash, memory = sample(WHOLE | CRASH), sample(MEMORY, user=()) + struct.pack("<Q", 4096) + b"code"
    assert sample_counts.take(packed(memory, crash, sample(MEMORY, user=()), *[crash] * 99), counts, others) == []
    found = counts[RUN]
    assert found.samples == {} and found.crashes == [crash] * MOST_CRASHES
    assert found.memory == {KEY: {4096: b"code"}} and sample_counts.key_of(crash) == KEY
    assert ffi.offsetof("struct told_memory", "address") == HEAD.size


def test_an_exception_goes_with_the_crash_of_its_process() -> None:
    counts, others = {RUN: Counts(0.0, 0)}, {}
    told = sample(EXCEPTION, user=()) + b"what it is"
    assert sample_counts.take(packed(told, sample(WHOLE | CRASH)), counts, others) == []
    assert counts[RUN].exceptions == {KEY: b"what it is"} and counts[RUN].samples == {}
    assert ffi.offsetof("struct told_exception", "exception") == HEAD.size
    assert ffi.sizeof("struct cxx_exception") == exception_types._TOLD.size


def test_samples_of_a_run_that_is_not_known_yet_are_kept_apart() -> None:
    others: dict[int, Counts] = {}
    sample_counts.take(packed(sample(run=8)), {}, others)
    assert others[8].samples == {sample(run=8): 1}


def test_beyond_the_greatest_number_of_stacks_samples_are_counted_and_left_out() -> None:
    counts = Counts(0.0, 0)
    for number in range(MOST_STACKS + 3):
        counts.add(sample(user=(number,)))
    counts.add(sample(user=(0,)))
    assert (len(counts.samples), counts.left_out, counts.samples[sample(user=(0,))]) == (MOST_STACKS, 3, 2)


def test_stacks_have_the_outermost_frame_first_and_the_kernel_behind_the_user() -> None:
    counts = Counts(10.0, 0)
    counts.add(sample(GUESSED, (0xFFFF0001, 0xFFFF0002), (IN_FILE | 0x10, 0x7F00)))
    window, numbers = sample_counts.window_of(
        RUN,
        counts,
        70.0,
        99,
        {1: FILE}.get,
        lambda addresses: dict.fromkeys(addresses, "do_it"),
        no_python,
        {},
        LateMappings(),
        {KEY},
    )
    kernel = [Frame(Kind.KERNEL, address, function="do_it") for address in (0xFFFF0002, 0xFFFF0001)]
    frames = (Frame(Kind.NATIVE, 0x7F00, NO_FILE), Frame(Kind.NATIVE, 0x10, 0), *kernel)
    assert window.stacks == {Stack(PID, TID, "worker", frames, True, False): 1}
    assert (window.files, numbers, window.guessed, window.broken) == ([FILE], {1}, 1, 1)


def test_what_was_taken_before_its_process_was_known_gets_its_places_when_the_window_closes() -> None:
    """Of one whose mappings came later, and not of another one, of which nothing is known."""
    counts, late = Counts(10.0, 0), LateMappings()
    counts.add(sample(GUESSED, user=(0x4010, 0x8000, 0x5000)))
    counts.add(sample(user=(IN_FILE | 0x10,)))
    late.learn(KEY, [(0x7000, 0x7FFF, 0, 9), (0x4000, 0x5000, 0x200, 1)])
    late.learn(KEY, [(0x4000, 0x5000, 0, 2), (0x8000, 0x9000, 0, 1)])  # what the first look says counts
    late.learn(struct.pack("<IIQ", 900, 2, 77), [(0x5000, 0x6000, 0, 1)])  # after an exec
    window, numbers = sample_counts.window_of(
        RUN, counts, 70.0, 99, {1: FILE}.get, lambda _: {}, no_python, {}, late, {KEY}
    )
    unknown, first, second = (
        Frame(Kind.NATIVE, 0x5000, NO_FILE),
        Frame(Kind.NATIVE, 0x0, 0),
        Frame(Kind.NATIVE, 0x210, 0),
    )
    early = Stack(PID, TID, "worker", (unknown, first, second), True, False)
    known = Stack(PID, TID, "worker", (Frame(Kind.NATIVE, 0x10, 0),), False, True)
    assert window.stacks == {early: 1, known: 1} and numbers == {1}


def test_code_of_files_without_a_place_is_told_from_unknown_code() -> None:
    """A file that gave way, and one that never had a place: what is in them is one frame, not one an offset."""
    counts, late = Counts(10.0, 0), LateMappings()
    places = [1 << 63 | number << 32 | 0x20 for number in (1, 7, unwind_tables.NO_PLACE)]
    counts.add(sample(user=(*places, 0x40)))
    window, numbers = sample_counts.window_of(
        RUN, counts, 70.0, 99, {1: FILE}.get, lambda _: {}, no_python, {}, late, {KEY}
    )
    (stack,) = window.stacks
    gone = Frame(Kind.NATIVE, file=NO_PLACE)
    assert stack.frames == (Frame(Kind.NATIVE, 0x40, NO_FILE), gone, gone, Frame(Kind.NATIVE, 0x20, 0))
    assert numbers == {1}


def test_mappings_that_may_be_of_the_next_program_name_nothing() -> None:
    """A process can begin another program before it is looked at. Without a later sample nobody knows."""
    counts, late = Counts(10.0, 0), LateMappings()
    counts.add(sample(GUESSED, user=(0x4010,)))
    late.learn(KEY, [(0x4000, 0x5000, 0, 1)])
    window, numbers = sample_counts.window_of(
        RUN, counts, 70.0, 99, {1: FILE}.get, lambda _: {}, no_python, {}, late, {KEY}
    )
    (stack,) = window.stacks
    assert stack.frames == (Frame(Kind.NATIVE, 0x4010, NO_FILE),) and not numbers


def test_of_a_process_that_ended_before_it_was_looked_at_the_kernel_knows_the_leaf_alone() -> None:
    """By its file, which others have as well. That proves nothing of mappings that are found later."""
    counts, late = Counts(10.0, 0), LateMappings()
    counts.add(sample(GUESSED | BY_FILE, user=(IN_FILE | 0x10, 0x4010)))
    late.learn(KEY, [(0x4000, 0x5000, 0, 1)])
    for looked_at, caller in (((), Frame(Kind.NATIVE, file=NOT_LOOKED_AT)), ({KEY}, Frame(Kind.NATIVE, 0x4010))):
        window, _ = sample_counts.window_of(
            RUN, counts, 70.0, 99, {1: FILE}.get, lambda _: {}, no_python, {}, late, looked_at
        )
        (stack,) = window.stacks
        assert stack.frames == (caller, Frame(Kind.NATIVE, 0x10, 0))


def test_what_is_remembered_of_late_mappings_is_bounded() -> None:
    late = LateMappings()
    late.prove(KEY)
    late.prove(b"another")
    late.learn(KEY, ((number * 16, number * 16 + 8, 0, 1) for number in range(MOST_ROWS)))
    late.learn(b"another", [(1 << 40, 1 << 41, 0, 1)])
    assert late.word(KEY, 24) == 24 and late.word(KEY, 17) == IN_FILE | 1
    assert late.word(b"another", 1 << 40) == 1 << 40
    for word in (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        assert late.word(KEY, word) in (word, IN_FILE)


def test_a_place_that_no_word_can_hold_stays_an_address() -> None:
    late = LateMappings()
    late.prove(KEY)
    late.learn(KEY, [(0x1000, 0x2000, 1 << 32, 1), (0x3000, 0x4000, 0, 1 << 31), (0x5000, 0x6000, 0, 0)])
    for address in (0x1000, 0x3000, 0x5000):
        assert late.word(KEY, address) == address


def test_what_is_cut_off_is_left_out() -> None:
    counts = {RUN: Counts(0.0, 0)}
    sample_counts.take(packed(sample())[:20], counts, {})
    assert not counts[RUN].samples


def test_new_code_objects_of_python_are_told_by_their_process() -> None:
    counts = Counts(0.0, 0)
    other = 9 << 32  # another code object in the same place
    for python in ((0x100 | LAST, 1, 0x200, 2), (0x100 | LAST, 1, 0x200, 2), (0x300, 5), (0x200, other | 2)):
        counts.add(sample(python=python))
    counts.add(sample())
    assert counts.codes == {KEY: {(0x100, 0), (0x200, 0), (0x300, 0), (0x200, 9)}}


def test_functions_of_python_are_in_calls_of_the_interpreter() -> None:
    counts = Counts(10.0, 0)
    which = 5 << 32
    counts.add(sample(python=(0x100 | LAST, which | 1, 0x200, which | 2, 0x300, which | 3), kernel=(0xFFFF0001,)))
    counts.add(sample(WHOLE | PYTHON_CUT, python=(0x400, which | 4, 0x100, which | 1)))

    def frame_of(process: bytes, code: tuple[int, int], place: int) -> Frame | None:
        assert process == KEY and code[1] == 5
        return None if code[0] == 0x400 else Frame(Kind.PYTHON, function=f"{code[0]:x}", line=place)

    window, _ = sample_counts.window_of(
        RUN, counts, 70.0, 99, {1: FILE}.get, lambda _: {}, frame_of, {1: (0, 0x20), 2: (5, 6)}, LateMappings(), {KEY}
    )
    one, two, three = (Frame(Kind.PYTHON, function=f"{number}00", line=number) for number in (1, 2, 3))
    assert [(stack.calls, stack.has_all_calls) for stack in window.stacks] == [
        (((one,), (two, three)), True),
        (((one,),), False),
    ]
    assert window.interpreters == {0: (0, 0x20)}
    assert [frame.kind for frame in next(iter(window.stacks)).frames] == [Kind.NATIVE, Kind.KERNEL]


def test_waits_in_one_place_are_added_up_and_end_in_what_was_waited_for() -> None:
    counts = {RUN: Counts(10.0, 0)}
    pipe = FILESYSTEMS.index("Pipe") + 1 << 16 | READ
    some = [sample(WHOLE | WAITED, waited=(pipe, ns)) for ns in (5_000_000, 7_000_000)]
    some += [sample(WHOLE | WAITED | ASKS, waited=(FUTEX, 2_000_000)), sample()]
    assert len(sample_counts.take(packed(*some), counts, {})) == 1
    assert counts[RUN].samples == {sample(): 1}
    window, _ = sample_counts.window_of(
        RUN, counts[RUN].off_cpu(), 70.0, 99, {1: FILE}.get, lambda _: {}, no_python, {}, LateMappings(), {KEY}
    )
    assert {stack.frames[-1].function: ns for stack, ns in window.stacks.items()} == {
        "waits for a pipe (read)": 12_000_000,
        "waits for a lock (futex)": 2_000_000,
    }


def test_time_of_waits_beyond_the_greatest_number_of_stacks_is_left_out() -> None:
    counts = Counts(0.0, 0)
    for number in range(MOST_STACKS + 3):
        counts.add_wait(sample(WHOLE | WAITED, user=(number,), waited=(FUTEX, 10)))
    assert (len(counts.waits), counts.off_cpu().left_out, counts.left_out) == (MOST_STACKS, 30, 0)


@pytest.mark.parametrize(
    ("number", "file_class", "words"),
    [
        (FUTEX, "", "waits for a lock (futex)"),
        (READ, "Nfs", "waits for a file server, NFS (read)"),
        (READ, "Local", "waits for a file system, Local (read)"),
        (READ, "Socket", "waits for a server (read)"),
        (READ, "Other", "waits (read)"),
        (NANOSLEEP, "", "waits for a timer (nanosleep)"),
        (WAIT4, "", "waits for a child (wait4)"),
        (POLL, "", "waits for events (ppoll)"),
        (0xFFFF, "", "waits (call 65535)"),
    ],
)
def test_what_a_call_waits_for_in_words(number: int, file_class: str, words: str) -> None:
    place = FILESYSTEMS.index(file_class) + 1 if file_class else 0
    assert waited_in(place << 16 | number) == words
    assert lib.WAITED_CLASS_SHIFT == 16


def test_a_lock_that_fcntl_waits_for_is_one() -> None:
    assert waited_in((lib.FILE_LOCK + 1) << 16 | FCNTL) == "waits for a lock (fcntl)"


def test_a_class_that_there_is_not_has_no_name() -> None:
    assert waited_in(99 << 16 | READ) == "waits (read)"
