"""Which functions, lines or files a profile was in most: at the top of the stack (self), or anywhere in it (total)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from condor_joblens.profiles.profile import Frame, Kind, Profile
from condor_joblens.profiles.text import clean

_MOST_RUNS, _MOST_HEATS = 500, 300

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
    return in_words(((heat.name, heat.file, heat.self) for heat in hottest(profile)[:most]), profile.samples)


def in_words(found: Iterable[tuple[str, str, int]], samples: int) -> str:
    """The same of functions, their files and their own samples, of so many."""
    return ", ".join(f"{100 * own / samples:.0f}% {_short(name, file)}" for name, file, own in found if own)


def _short(name: str, file: str) -> str:
    short, file = clean(name, 60), clean(file.rpartition("/")[2], 40)
    return f"{short} ({file})" if file and not short.startswith(file) else short


class Heats:
    """Samples of functions themselves, of many runs; of each run those that are seen most."""

    def __init__(self) -> None:
        self._runs: OrderedDict[int, tuple[list[int], Counter[Key]]] = OrderedDict()

    def add(self, run: int, profile: Profile) -> str:
        """What is hottest of the run until now, in words."""
        samples, own = self._runs.setdefault(run, ([0], Counter()))
        self._runs.move_to_end(run)
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        samples[0] += profile.samples
        own.update({(heat.name, heat.file): heat.self for heat in hottest(profile) if heat.self})
        for key, _ in own.most_common()[_MOST_HEATS:]:
            del own[key]
        return in_words(((name, file, count) for (name, file), count in own.most_common(3)), max(1, samples[0]))
