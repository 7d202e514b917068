"""A profile as joblensd hands it out, unpacked: its names are the job's. What can be read is shown in every format."""

from __future__ import annotations

import contextlib
import gzip

from condor_joblens.cli.flame import rendered
from condor_joblens.profiles import pprof, segment
from condor_joblens.profiles.coarser_segment import one_of
from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack


def _example() -> bytes:
    found = Profile(1.7e9, 1.7e9 + 60, 99, "12.0", "node01", lost=2)
    frames = Frame("main", Kind.NATIVE, "/x/p", 0, 0x1139, "ab"), Frame("f", Kind.PYTHON, "/x/f.py", 7)
    found.add(Stack((*frames, Frame("vfs_read", Kind.KERNEL)), 10, "p", "p", True), 3)
    found.add(Stack(frames, 10, "p", "<&>"), 2)
    return gzip.decompress(pprof.encode(found))


SEEDS = [_example()]
WORDS = [b"joblens.version=1", b"[kernel.kallsyms]", b"\xff" * 9, b"\x1b]0;", b"</svg>", b"\xed\xa0\x80"]


def check(data: bytes) -> None:
    """A profile is refused, or shown; its first bytes say something in one line or nothing."""
    packed = gzip.compress(data, 1)
    for text in (data, packed[:3] + b"\x10" + packed[4:10] + data):
        with contextlib.suppress(ValueError):
            assert segment.hottest_of(text).isprintable()
    try:
        found = pprof.decode(packed)
    except pprof.NoProfile:
        return
    both = pprof.decode(one_of([packed, packed], 1 << 20))
    assert both.samples == 2 * found.samples or found.samples > 1 << 60
    if sum(len(stack.frames) for stack in found.stacks) > 2000:
        return
    for form in ("svg", "folded", "json", "speedscope", "pprof"):
        rendered(found, form)
