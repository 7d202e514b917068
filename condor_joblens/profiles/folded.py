"""Folded stacks: a line a stack, frames with `;` between, then its samples. Most flame graph programs read them."""

from __future__ import annotations

from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack
from condor_joblens.profiles.text import clean

_MARKS = {Kind.KERNEL: "_[k]"}


def folded(profile: Profile) -> str:
    """The lines, in the order of their texts; stacks that read alike are one."""
    counts: dict[str, int] = {}
    for stack, count in profile.stacks.items():
        line = path(stack)
        counts[line] = counts.get(line, 0) + count
    return "".join(f"{line} {count}\n" for line, count in sorted(counts.items()))


def path(stack: Stack) -> str:
    """Its frames from the outermost one on."""
    return ";".join(map(_name, stack.frames))


def _name(frame: Frame) -> str:
    place = f" ({clean(frame.library)}:{frame.line})" if frame.kind is Kind.PYTHON else ""
    return f"{clean(frame.function)}{place}".replace(";", ":") + _MARKS.get(frame.kind, "")
