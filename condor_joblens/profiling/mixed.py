"""Functions of Python in a stack of C: each call of the interpreter stands for those that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.profiling.python import Calls, PythonFrame


@dataclass(frozen=True)
class NativeFrame:
    """A function of a program's file, which is empty if no file is there."""

    function: str
    file: str
    offset: int
    is_guessed: bool
    is_interpreter: bool = False  # whether it runs functions of Python
    build_id: str = ""  # of the file


@dataclass(frozen=True)
class PlacedFrame:
    """A function of Python in a stack; it was called, but `is_guessed` if not surely from the frame below."""

    frame: PythonFrame
    is_guessed: bool


def mixed(native: Sequence[NativeFrame], is_whole: bool, calls: Calls) -> list[NativeFrame | PlacedFrame]:
    """One stack of both, the innermost frame first; `is_whole` is said of the native frames.

    If both sides do not have the same number of calls, one of them has not been read as it is. Where the native frames
    only end too early, the inner ones still fit. Otherwise the functions of Python stand together, marked.
    """
    here = sum(frame.is_interpreter for frame in native)
    there = len(calls.calls)
    if here == there or (here < there and not is_whole and not any(frame.is_guessed for frame in native)):
        return _in_place(native, calls)
    found: list[NativeFrame | PlacedFrame] = []
    left = [PlacedFrame(frame, True) for call in calls.calls for frame in call]
    for frame in native:
        if frame.is_interpreter:
            found += left
            left = []
        found.append(frame)
    return found + left


def _in_place(native: Sequence[NativeFrame], calls: Calls) -> list[NativeFrame | PlacedFrame]:
    found: list[NativeFrame | PlacedFrame] = []
    left = list(calls.calls)
    for frame in native:
        if frame.is_interpreter:
            found += [PlacedFrame(each, False) for each in left.pop(0)]
        else:
            found.append(frame)
    return found + [PlacedFrame(each, False) for call in left for each in call]
