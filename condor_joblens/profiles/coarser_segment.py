"""Segments that follow each other, as one that shows a longer time: so a long job keeps its whole life.

It runs in the process that reads samples, which has no right: what it reads was made of names that a job chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from condor_joblens.profiles import pprof, segment
from condor_joblens.profiles.hottest import sentence
from condor_joblens.profiles.profile import Profile, coarser, cut_short, merged

MOST_STACKS = 8192
"""Of a coarser segment; the rarest are cut short beyond it."""

_DEPTH = 16
"""Outermost frames that a stack keeps at first when it is cut short."""


def one_of(segments: Sequence[bytes], most_bytes: int) -> bytes:
    """One segment of several, of so many bytes at most. Its counts are theirs together. Raises NoProfile."""
    profile = together(pprof.decode(each) for each in segments)
    packed = _within(profile, most_bytes)
    return segment.joined(sentence(profile), packed)


def together(profiles: Iterable[Profile]) -> Profile:
    """All of them in one, of so many stacks at most."""
    return cut_short(merged(profiles), MOST_STACKS, _DEPTH)


def _within(profile: Profile, most_bytes: int) -> bytes:
    room = most_bytes - segment.MOST_SENTENCE - 1
    packed = pprof.encode(profile)
    if len(packed) > room:
        profile = coarser(profile)
        packed = pprof.encode(profile)
    kept, depth = len(profile.stacks), _DEPTH
    while len(packed) > room and kept:
        kept, depth = kept // 2, depth // 2
        packed = pprof.encode(cut_short(profile, kept, depth))
    return packed
