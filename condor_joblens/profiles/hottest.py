"""Which functions, lines or files a profile was in most: at the top of the stack (self), or anywhere in it (total)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.profiles.profile import Frame, Kind, Profile

Key = tuple[str, str]
"""What is counted, and the file that it is in."""


@dataclass
class Heat:
    """Samples of a function, a line or a file."""

    name: str
    file: str
    kind: Kind
    self: int = 0
    total: int = 0


def by_function(frame: Frame) -> Key:
    """The function."""
    return frame.function, frame.file


def by_line(frame: Frame) -> Key:
    """its source and line; functions whose lines are not known stay functions."""
    return (f"{frame.library}:{frame.line} {frame.function}", frame.file) if frame.line else by_function(frame)


def by_file(frame: Frame) -> Key:
    """The program, library or source."""
    return frame.library, frame.file


BY: dict[str, Callable[[Frame], Key]] = {"function": by_function, "line": by_line, "file": by_file}


def hottest(profile: Profile, key: Callable[[Frame], Key] = by_function) -> list[Heat]:
    """All of them, those with most samples of their own first. One that calls itself counts once a stack in `total`."""
    found: dict[Key, Heat] = {}
    for stack, count in profile.stacks.items():
        frames = [frame for frame in stack.frames if frame.kind is not Kind.GROUP]
        keys = [key(frame) for frame in frames]
        for each, frame in dict(zip(keys, frames)).items():
            found.setdefault(each, Heat(*each, frame.kind)).total += count
        if keys:
            found[keys[-1]].self += count
    return sorted(found.values(), key=lambda heat: (-heat.self, -heat.total, heat.name))


def sentence(profile: Profile, most: int = 3) -> str:
    """`62% Tree::Fill(int) (libTree.so), 10% read`: for an ad. Empty without samples."""
    samples = profile.samples
    found = [heat for heat in hottest(profile)[:most] if heat.self]
    return ", ".join(f"{100 * heat.self / samples:.0f}% {_short(heat)}" for heat in found) if samples else ""


def _short(heat: Heat) -> str:
    name = heat.name if len(heat.name) <= 60 else f"{heat.name[:58]}.."
    file = heat.file.rpartition("/")[2]
    return f"{name} ({file})" if file and not name.startswith(file) else name
