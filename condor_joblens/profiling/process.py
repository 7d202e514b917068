"""What /proc tells the owner of a process about it: descriptors, mappings, memory. Whatever can't be read is missing.

The reader is the job's owner and nobody else, so the kernel refuses what is not his: a set-user-id program of the job,
for instance. None of these files is the job's own: no dead mount can hold their reader up, except for memory of one.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

MOST_MAPPINGS = 20_000
"""Of a process that are known: of more, the lowest and the highest. Most programs are among those, and libraries and
the first thread's stack among these."""

MOST_DESCRIPTORS = 4096
_MOST_TEXT = 4 << 20  # of a file of /proc
_PIECE = 64 << 10  # what is read at a time: most of these files are shorter, and memory for more takes longer
_MOST_MAPS = 64 << 20  # of a list of mappings, of which both ends are kept
_PAGE = os.sysconf("SC_PAGE_SIZE")
_Each = TypeVar("_Each")


@dataclass(frozen=True)
class Mapping:
    """A part of a process's memory; `path` as the process sees it, empty if no file is behind it."""

    start: int
    end: int
    is_code: bool
    offset: int
    device: tuple[int, int]
    inode: int
    path: str
    is_private: bool  # what is written there, no other process sees

    @property
    def is_safe(self) -> bool:
        """Whether reading it can't wait for a file that does not answer."""
        return (not self.inode and not self.path.startswith("[v")) or self.path.startswith(("/dev/shm/", "/memfd:"))

    def is_told_by(self, status: os.stat_result) -> bool:
        """Whether it is surely the file that stat(2) tells of. With layers of file systems, that tells something else.

        Whoever is told no has to map the file: then the kernel shows both in the same way.
        """
        return self.inode != 0 and (os.makedev(*self.device), self.inode) == (status.st_dev, status.st_ino)

    def is_same_file(self, other: Mapping) -> bool:
        """Whether a file is behind both, and the same."""
        return self.inode != 0 and (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True)
class Descriptor:
    """An open file of a process: `target` is what its link says, flags are those of open(2)."""

    number: int
    target: str
    flags: int
    position: int
    mount: int
    inode: int  # 0 before kernel 5.14
    locks: tuple[str, ...]  # as lines of /proc/locks, of locks that it holds


class Process:
    """A process of the job. Nothing raises: what is refused or gone is empty."""

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self.pid = pid
        self._folder = f"{proc}/{pid}"
        self._memory: int | None = None

    def close(self) -> None:
        """Gives its memory's descriptor back."""
        if self._memory is not None and self._memory >= 0:
            os.close(self._memory)
        self._memory = None

    def text(self, name: str) -> str:
        """A file of its folder; of too long a list of its mappings both ends."""
        path = f"{self._folder}/{name}"
        return _ends_of(path, _MOST_TEXT // 2) if name == "maps" else text_of(path)

    def lines(self, name: str) -> list[str]:
        """The lines of a file of its folder. A path in them may have any end of a line but the one that counts here."""
        return self.text(name).split("\n")

    @cached_property
    def command(self) -> str:
        """Its program's name."""
        return self.text("comm").rstrip("\n")

    @property
    def tids(self) -> set[int]:
        """The numbers of its threads now."""
        with contextlib.suppress(OSError):
            return {int(name) for name in os.listdir(f"{self._folder}/task")}
        return set()

    @cached_property
    def has_one_thread(self) -> bool:
        """Whether it has no more; as it was when that was first asked, as each of its threads may want to know."""
        return "\nThreads:\t1\n" in self.text("status")

    @cached_property
    def cgroup(self) -> str:
        """Its cgroup in the v2 tree, as /htcondor/slot1_1."""
        return next((line[3:] for line in self.lines("cgroup") if line.startswith("0::")), "")

    @cached_property
    def mappings(self) -> list[Mapping]:
        """Its memory, by rising addresses."""
        found = (_mapping(line) for line in both_ends(self.lines("maps"), MOST_MAPPINGS))
        return [mapping for mapping in found if mapping is not None]

    @cached_property
    def filesystems(self) -> dict[int, tuple[str, str]]:
        """Type and mount point, by the number of the mount."""
        found = {}
        for line in self.lines("mountinfo"):
            words = line.split(" ")
            with contextlib.suppress(ValueError, IndexError):
                found[int(words[0])] = words[words.index("-") + 1], words[4]
        return found

    @cached_property
    def devices(self) -> dict[tuple[int, int], tuple[str, str]]:
        """The same by the device that mappings have."""
        found = {}
        for line in self.lines("mountinfo"):
            words = line.split(" ")
            with contextlib.suppress(ValueError, IndexError):
                major, minor = words[2].split(":")
                found[int(major), int(minor)] = words[words.index("-") + 1], words[4]
        return found

    def polled_by(self, number: int) -> list[int]:
        """The descriptors that an epoll descriptor waits for."""
        return [int(found) for found in re.findall(r"^tfd:\s*(\d+)", self.text(f"fdinfo/{number}"), re.MULTILINE)]

    @cached_property
    def root(self) -> str:
        """Its root folder, by which its paths are to be opened."""
        return f"{self._folder}/root"

    @cached_property
    def root_seen(self) -> str:
        """Where its root folder is for who looks, as the paths of its mappings begin after chroot(2); else empty."""
        with contextlib.suppress(OSError):
            return os.readlink(self.root).rstrip("/")
        return ""

    def descriptor(self, number: int) -> Descriptor | None:
        """An open file of it."""
        if number < 0:
            return None
        try:
            target = os.readlink(f"{self._folder}/fd/{number}")
        except OSError:
            return None
        info = self.text(f"fdinfo/{number}")
        fields = dict(re.findall(r"^(pos|flags|mnt_id|ino):\s*(\d+)", info, re.MULTILINE))
        return Descriptor(
            number=number,
            target=target,
            flags=int(fields.get("flags", "0"), 8),
            position=int(fields.get("pos", "0")),
            mount=int(fields.get("mnt_id", "0")),
            inode=int(fields.get("ino", "0")),
            locks=tuple(re.findall(r"^lock:\s*(.*)", info, re.MULTILINE)),
        )

    def room(self, number: int) -> int | None:
        """Bytes that its user may still write to the file system of an open file; it is asked, but nothing opened.

        A file server that does not answer holds up whoever asks.
        """
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{self._folder}/fd/{number}", os.O_PATH | os.O_CLOEXEC)
            try:
                found = os.fstatvfs(descriptor)
            finally:
                os.close(descriptor)
            return found.f_bavail * found.f_frsize
        return None

    def targets(self) -> Iterator[tuple[int, str]]:
        """Number and target of each open file."""
        try:
            numbers = os.listdir(f"{self._folder}/fd")
        except OSError:
            return
        for number in numbers[:MOST_DESCRIPTORS]:
            with contextlib.suppress(OSError):
                yield int(number), os.readlink(f"{self._folder}/fd/{number}")

    def mapping_at(self, address: int) -> Mapping | None:
        """The part of its memory that an address is in."""
        index = bisect.bisect_right(self._ends, address)
        found = self.mappings[index] if index < len(self.mappings) else None
        return found if found is not None and found.start <= address else None

    @cached_property
    def _ends(self) -> list[int]:
        return [mapping.end for mapping in self.mappings]

    def forget_mappings(self) -> None:
        """They are read anew when one is asked for: memory that it has got since is not among those that are known."""
        for name in ("mappings", "_ends"):
            self.__dict__.pop(name, None)

    def mapping_from(self, start: int) -> Mapping | None:
        """The part of its memory that begins there now; the others are not looked at."""
        first = f"{start:08x}-"
        return next((_mapping(line) for line in self.lines("maps") if line.startswith(first)), None)

    def read(self, address: int, size: int) -> bytes:
        """Its memory there, up to the end of the mapping.

        Empty if a file is behind it that would have to be read first: that might not answer.
        """
        mapping = self.mapping_at(address)
        if mapping is None:
            return b""
        size = min(size, mapping.end - address)
        if not mapping.is_safe and not self._is_present(address, size):
            return b""
        if self._memory is None:
            try:
                self._memory = os.open(f"{self._folder}/mem", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._memory = -1
        if self._memory < 0:
            return b""
        with contextlib.suppress(OSError, OverflowError):
            return os.pread(self._memory, size, address)
        return b""

    @property
    def is_refused(self) -> bool:
        """Whether its memory was to be read, and may not be."""
        return self._memory is not None and self._memory < 0

    def _is_present(self, address: int, size: int) -> bool:
        """Whether all of it is in the machine's memory now."""
        first, last = address // _PAGE, (address + size - 1) // _PAGE
        with contextlib.suppress(OSError), open(f"{self._folder}/pagemap", "rb", buffering=0) as pages:
            entries = os.pread(pages.fileno(), 8 * (last - first + 1), 8 * first)
            return len(entries) == 8 * (last - first + 1) and all(entry & 0x80 for entry in entries[7::8])
        return False


def text_of(path: str) -> str:
    """A file of /proc; empty if it can't be read."""
    found = bytearray()
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        while len(found) < _MOST_TEXT and (piece := file.read(_PIECE)):
            found += piece
    return found[:_MOST_TEXT].decode("utf-8", "surrogateescape")


def both_ends(found: list[_Each], most: int) -> list[_Each]:
    """All of them; of more than `most` the first half of so many, and the last half."""
    half = most // 2
    return found if len(found) <= most else found[:half] + found[-half:]


def _ends_of(path: str, size: int) -> str:
    """A file of /proc; of one that is longer than twice `size`, the whole lines in its first and last `size` bytes."""
    first, last, is_cut, left = bytearray(), bytearray(), False, _MOST_MAPS
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            left -= len(piece)
            (first if len(first) < size else last).extend(piece)
            if len(last) > 2 * size:
                del last[:-size]
                is_cut = True
    if is_cut:
        del first[first.rfind(b"\n") + 1 :], last[: last.find(b"\n") + 1]
    return (first + last).decode("utf-8", "surrogateescape")


_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+)\s*(.*)")


def _mapping(line: str) -> Mapping | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    start, end, rights, offset, major, minor, inode, path = found.groups()
    device = int(major, 16), int(minor, 16)
    where = int(start, 16), int(end, 16), "x" in rights, int(offset, 16), device, int(inode)
    return Mapping(*where, _unescaped(path), is_private=rights.endswith("p"))


def _unescaped(path: str) -> str:
    """The kernel writes a newline in a path as \\012."""
    return path.replace("\\012", "\n")
