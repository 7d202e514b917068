"""Folded stacks: a line a stack, frames with `;` between, then its samples. Most flame graph programs read them."""

from __future__ import annotations

from condor_joblens.profiles.profile import Frame, Kind, Profile
from condor_joblens.profiles.text import clean

_MARKS = {Kind.KERNEL: "_[k]"}


def folded(profile: Profile) -> str:
    """The lines, in the order of their texts; stacks that read alike are one."""
    counts: dict[str, int] = {}
    for stack, count in profile.stacks.items():
        line = ";".join(map(name, stack.frames))
        counts[line] = counts.get(line, 0) + count
    return "".join(f"{line} {count}\n" for line, count in sorted(counts.items()))


def name(frame: Frame) -> str:
    """What a frame is called in a line."""
    place = f" ({clean(frame.library)}:{frame.line})" if frame.kind is Kind.PYTHON or frame.line else ""
    return f"{clean(frame.function)}{place}".replace(";", ":") + _MARKS.get(frame.kind, "")
