"""Since when a run has computed in the same places: the windows of samples of which nearly all know no other path.

A path is the calls that led to a sample, by the very places that called. Of the innermost function it is the piece of
code, and of Python the line. A job that goes through its work has other paths sooner or later,
and so has one that starts processes. A loop without end has not. Nor has a long computation in one place: this is a
hint.
"""

from __future__ import annotations

from dataclasses import dataclass

from condor_joblens.profiling.samples import FileKey, Frame, Kind, Stack, Window

LEAST_CORES = 0.1
"""What a run must use to be busy: loops with pauses use less."""

SHARE = 0.95
"""Of the samples, which must have paths that are known."""

LEAST_SECONDS = 4.0
"""A shorter window, which somebody has asked for, says too little."""

_CODE_BITS = 8
"""The innermost place is told within 256 bytes of code: two loops of one function mostly differ."""

_GAP = 1.0
"""Seconds between two windows, at most, if they follow each other."""


@dataclass
class _Known:
    """Hashes of the paths of the window with which others are compared, from and until when there were no others.

    `has_followers`: at least one other window has been like it.
    """

    paths: frozenset[int]
    since: float
    until: float
    has_followers: bool = False


class Steady:
    """The places of one run."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def add(self, window: Window) -> float:
        """The next window on the CPU; since when there is no other path (Unix time), 0 if this window is the first."""
        seconds = window.until - window.began
        samples = sum(window.stacks.values()) + window.left_out
        known = self._known
        if known is not None and window.began - known.until > _GAP:
            known = self._known = None
        if seconds < LEAST_SECONDS:
            if known is None:
                return 0.0
            known.until = window.until
            return known.since if known.has_followers else 0.0
        if samples < max(1.0, LEAST_CORES * window.hz * seconds):
            self._known = None
            return 0.0
        paths = _paths(window)
        if known is not None:
            alike = sum(count for path, count in paths.items() if path in known.paths)
            if alike >= SHARE * samples:
                known.until, known.has_followers = window.until, True
                return known.since
        self._known = _Known(frozenset(paths), window.began, window.until)
        return 0.0


def _paths(window: Window) -> dict[int, int]:
    """How many samples have which path."""
    keys = [file.key for file in window.files]
    known: dict[int, int] = {}  # a frame, which many stacks share -> its place
    found: dict[int, int] = {}
    for stack, count in window.stacks.items():
        path = hash((stack.pid, *_places(stack, keys, known)))
        found[path] = found.get(path, 0) + count
    return found


def _places(stack: Stack, keys: list[FileKey], known: dict[int, int]) -> list[int]:
    """Where its functions were, without those of the kernel, which also has interrupts of its own."""
    frames = stack.frames
    end = len(frames)
    while end and frames[end - 1].kind is Kind.KERNEL:  # these come last
        end -= 1
    places = []
    for frame in frames[: max(end - 1, 0)]:
        place = known.get(id(frame))
        if place is None:
            place = known[id(frame)] = _place(frame, keys, frame.offset)
        places.append(place)
    places += [_place(frame, keys, frame.offset >> _CODE_BITS) for frame in frames[max(end - 1, 0) : end]]
    return places + [hash((frame.source, frame.function, frame.line)) for call in stack.calls for frame in call]


def _place(frame: Frame, keys: list[FileKey], offset: int) -> int:
    return hash((keys[frame.file] if frame.file >= 0 else frame.file, offset))
