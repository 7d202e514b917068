"""Samples as the kernel writes them are counted as bytes, and become stacks when their window closes."""

from __future__ import annotations

import struct

from condor_joblens.tracer._bpf import ffi

from condor_joblens.profiling import sample_counts
from condor_joblens.profiling.sample_counts import ASKS, GUESSED, HEAD, WHOLE, Counts
from condor_joblens.profiling.samples import MOST_STACKS, NO_FILE, FileKey, Frame, Kind, MappedFile, Stack
from condor_joblens.tracer import map_layout

RUN, PID, TID = 7, 50, 51
FILE = MappedFile(FileKey(1, 2, 3, 4), "/bin/a")
IN_FILE = 1 << 63 | 1 << 32


def sample(
    flags: int = WHOLE, kernel: tuple[int, ...] = (), user: tuple[int, ...] = (IN_FILE | 0x10,), run: int = RUN
) -> bytes:
    head = HEAD.pack(run, 900, 1, 77, PID, TID, flags, len(kernel), len(user), b"worker\0rest")
    return head + struct.pack(f"<{len(kernel) + len(user)}Q", *kernel, *user)


def packed(*some: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(each)) + each + bytes(-len(each) % 8) for each in some)


def test_the_layout_is_that_of_the_kernel() -> None:
    """joblens_profile.h has it."""
    assert HEAD.size == ffi.sizeof("struct sample")
    assert ffi.offsetof("struct sample", "flags") == sample_counts._FLAGS_AT
    assert ffi.sizeof("struct sampled") == map_layout.SAMPLED.itemsize


def test_equal_samples_are_counted_and_one_that_asks_is_equal_to_one_that_does_not() -> None:
    counts, others = {RUN: Counts(0.0, 0)}, {}
    asked = sample_counts.take(packed(sample(), sample(WHOLE | ASKS), sample(GUESSED)), counts, others)
    assert [(run, process.pid, process.key) for run, process in asked] == [(RUN, PID, struct.pack("<IIQ", 900, 1, 77))]
    assert counts[RUN].samples == {sample(): 2, sample(GUESSED): 1} and not others


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
        RUN, counts, 70.0, 99, {1: FILE}.get, lambda addresses: dict.fromkeys(addresses, "do_it")
    )
    kernel = [Frame(Kind.KERNEL, address, function="do_it") for address in (0xFFFF0002, 0xFFFF0001)]
    frames = (Frame(Kind.NATIVE, 0x7F00, NO_FILE), Frame(Kind.NATIVE, 0x10, 0), *kernel)
    assert window.stacks == {Stack(PID, TID, "worker", frames, True, False): 1}
    assert (window.files, numbers, window.guessed, window.broken) == ([FILE], {1}, 1, 1)


def test_what_is_cut_off_is_left_out() -> None:
    counts = {RUN: Counts(0.0, 0)}
    sample_counts.take(packed(sample())[:20], counts, {})
    assert not counts[RUN].samples
