"""What a path of a process leads to, by its /proc/PID/mountinfo: a file system, and a path in that."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_BYTES = 1 << 20
"""Of one table. A job can make mounts by the ten thousand; what is behind that is not looked at."""

Place = tuple[bytes, bytes]
"""The device of a file system (8:1), and a path in it, whoever has mounted it where. What is mounted there is not."""


@dataclass(frozen=True)
class _Mount:
    number: int
    parent: int
    device: bytes
    root: bytes  # the path in its file system that is at `point`
    point: bytes  # from the process's root folder


class MountTable:
    """The mounts that a process sees."""

    def __init__(self, mountinfo: bytes) -> None:
        """As the kernel writes it; a line that it would not write counts for nothing."""
        found = {mount.number: mount for mount in _mounts(mountinfo)}
        self._mounts = list(found.values())
        self._above: dict[int, list[_Mount]] = {}  # by the number of the mount on which they are
        for mount in self._mounts:
            self._above.setdefault(mount.parent, []).append(mount)
        roots = (each for each in self._mounts if each.point == b"/" and each.parent not in {*found} - {each.number})
        self._root = next(roots, None)

    def place(self, path: bytes) -> Place | None:
        """What this absolute path without links and `..` leads to; None if the table does not say."""
        mount, passed = self._root, set[int]()
        while mount is not None:
            passed.add(mount.number)
            on_the_way = [each for each in self._above.get(mount.number, ()) if _rest(path, each.point) is not None]
            on_the_way = [each for each in on_the_way if each.number not in passed]
            if not on_the_way:
                rest = _rest(path, mount.point)
                return None if rest is None else (mount.device, _joined(mount.root, rest))
            mount = min(on_the_way, key=lambda each: len(each.point))  # the one that is met first
        return None

    def paths(self, place: Place) -> list[bytes]:
        """The paths that lead there."""
        device, path = place
        shown = [(each.point, _rest(path, each.root)) for each in self._mounts if each.device == device]
        found = {_joined(point, rest) for point, rest in shown if rest is not None}
        return sorted(each for each in found if self.place(each) == place)


def beneath(folder: Place, place: Place) -> bytes | None:
    """The name of `place` from the `folder` on, `.` for that itself; None if it is not in there."""
    rest = _rest(place[1], folder[1]) if folder[0] == place[0] else None
    return None if rest is None else rest or b"."


def _rest(path: bytes, folder: bytes) -> bytes | None:
    """What of `path` comes after `folder`, without a slash; None if it does not begin with that."""
    if path == folder:
        return b""
    prefix = folder.rstrip(b"/") + b"/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _joined(folder: bytes, rest: bytes) -> bytes:
    return os.path.join(folder, rest) if rest else folder


def _mounts(mountinfo: bytes) -> Iterator[_Mount]:
    for line in mountinfo.split(b"\n")[:-1]:  # of a table that is too long the last line is not whole
        words = line.split(b" ")
        if len(words) < 6 or not words[0].isdigit() or not words[1].isdigit():
            continue
        root, point = _unescaped(words[3]), _unescaped(words[4])
        if root.startswith(b"/") and point.startswith(b"/"):
            yield _Mount(int(words[0]), int(words[1]), words[2], root, point)


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8) & 0xFF]), path)
