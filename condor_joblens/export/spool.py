"""What a sink has not confirmed, on disk: files of frames, oldest first, each frame some records with a checksum.

A file is named by the number of its first record. Records are numbered through, so whatever is damaged or dropped is
known by the gap. Nothing is ever written into an old file. A process that is killed in the middle of a frame leaves a
torn end, which the next process reads past.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from condor_joblens.export.records import from_line
from condor_joblens.sinks import Record

SEGMENT_BYTES = 8 << 20
"""A file is no longer than this and one frame; the oldest is dropped as a whole where there is no more room."""

_MAGIC = b"JLSP"
# magic, checksum of what follows in the header, bytes and checksum of the payload, records, number of the first,
# epoch seconds, seconds since the machine came up, and which life of the machine that was
_HEADER = struct.Struct("<4sIIIIQdd8s")
_GREATEST_FRAME = 64 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"([0-9]{20})\.spool$")


@dataclass(frozen=True)
class SpoolLimits:
    """The bounds of one spool."""

    most_bytes: int
    most_seconds: float
    fsync: str  # never, segment or always


@dataclass(frozen=True)
class Frame:
    """Some records that are in the spool; `first` is the number of the first."""

    first: int
    records: Sequence[Record]
    end: int  # the number behind the last
    age: float = 0.0  # seconds since they were put there


@dataclass(frozen=True)
class _Header:
    size: int
    checksum: int
    count: int
    first: int
    written: float
    uptime: float
    boot: bytes


class Spool:
    """One sink's. For one thread at a time.

    `dropped` counts by cause what never came out again: "overflow", "age", "corrupt". `tell` is called whenever there
    is more, before a file of it goes. A process that is killed between the two takes what it counts in memory with it.
    """

    def __init__(self, folder: str, limits: SpoolLimits, delivered: int = 0) -> None:
        """Opens or makes `folder`. `delivered`: number of the first record that is still wanted. Raises OSError."""
        os.makedirs(folder, 0o700, exist_ok=True)
        self.limits = limits
        self.dropped: collections.Counter[str] = collections.Counter()
        self.tell: Callable[[], object] = lambda: None
        self._folder = folder
        self._boot = _boot_id()
        self._sizes = {int(found[1]): os.path.getsize(f"{folder}/{found[0]}") for found in self._names()}
        self._segments = collections.deque(sorted(self._sizes))
        self._write = -1  # descriptor of the file that is being written
        self._read = -1  # of the oldest
        self._offset = 0  # in the oldest
        self._segment_bytes = max(1 << 16, min(SEGMENT_BYTES, limits.most_bytes // 8))
        self.next = max(delivered, self._end_of_last())
        self.wanted = delivered if self._segments else self.next
        if self._segments and delivered:  # else it is not known where it began
            self._lose_up_to(self._segments[0], "corrupt")
        elif self._segments:
            self.wanted = self._segments[0]

    def _names(self) -> list[re.Match[str]]:
        return [found for found in map(_NAME.match, os.listdir(self._folder)) if found]

    @property
    def pending(self) -> int:
        """Records in it."""
        return self.next - self.wanted

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    def append(self, records: Sequence[Record]) -> Frame:
        """Puts records at the end, where there is no room in place of the oldest. Raises OSError where the disk does
        not take them even so, or more room would not mend it."""
        if self.limits.most_bytes <= 0:
            raise OSError(0, "JOBLENS_SPOOL_BYTES is 0")
        payload = zlib.compress(b"\n".join(record.json for record in records), 1)
        frame = Frame(self.next, records, self.next + len(records))
        content = self._header(frame, payload) + payload
        while True:
            try:
                self._put(content, frame.first)
                break
            except OSError as error:
                self._end_segment()
                if error.errno not in _NO_ROOM or not self._drop_oldest():
                    raise
        self.next = frame.end
        self.trim()
        return frame

    def _header(self, frame: Frame, payload: bytes) -> bytes:
        values = (
            len(payload),
            zlib.crc32(payload),
            len(frame.records),
            frame.first,
            time.time(),
            _uptime(),
            self._boot,
        )
        packed = _HEADER.pack(_MAGIC, 0, *values)
        return _HEADER.pack(_MAGIC, zlib.crc32(packed[8:]), *values)

    def _put(self, content: bytes, first: int) -> None:
        if self._write >= 0 and self._sizes[self._segments[-1]] >= self._segment_bytes:
            self._end_segment()
        if self._write < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._write = os.open(self._path(first), flags, 0o600)
            self._segments.append(first)
            self._sizes[first] = 0
        segment = self._segments[-1]
        before = self._sizes[segment]
        try:
            written = 0
            while written < len(content):
                written += os.write(self._write, content[written:])
            if self.limits.fsync == "always":
                os.fdatasync(self._write)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._write, before)
            if before == 0:
                self._end_segment()
                self._forget(segment)
            raise
        self._sizes[segment] = before + len(content)

    def _path(self, segment: int) -> str:
        return f"{self._folder}/{segment:020d}.spool"

    def _end_segment(self) -> None:
        if self._write >= 0:
            if self.limits.fsync != "never":
                with contextlib.suppress(OSError):
                    os.fdatasync(self._write)
            os.close(self._write)
            self._write = -1

    def _forget(self, segment: int) -> None:
        """The file and all that is in it are gone."""
        if self._segments[0] == segment:
            self._close_read()
        self._segments.remove(segment)
        del self._sizes[segment]
        with contextlib.suppress(OSError):
            os.unlink(self._path(segment))

    def _close_read(self) -> None:
        if self._read >= 0:
            os.close(self._read)
        self._read, self._offset = -1, 0

    def _drop_oldest(self) -> bool:
        """Makes room by a file; False where there is none."""
        if not self._segments:
            return False
        if len(self._segments) == 1:
            self._end_segment()
        self._lose_oldest("overflow")
        return True

    def _lose_oldest(self, cause: str) -> None:
        """The oldest file, which is lost before it goes."""
        self._lose_up_to(self._segments[1] if len(self._segments) > 1 else self.next, cause)
        self._forget(self._segments[0])

    def _lose_up_to(self, number: int, cause: str) -> None:
        if number > self.wanted:
            self.dropped[cause] += number - self.wanted
            self.wanted = number
            self.tell()

    def trim(self) -> None:
        """Drops what is beyond the bounds of bytes and age."""
        while len(self._segments) > 1 and self.size > self.limits.most_bytes:
            self._drop_oldest()
        while self.pending:
            header = self._oldest_header()
            if header is None or self._age(header) <= self.limits.most_seconds:
                return
            self._offset += _HEADER.size + header.size
            self._lose_up_to(header.first + header.count, "age")

    def _age(self, header: _Header) -> float:
        """By the clock that nobody sets, as long as the machine is up; after that by the wall's."""
        if header.boot == self._boot:
            return _uptime() - header.uptime
        return time.time() - header.written

    def oldest(self) -> Frame | None:
        """The oldest records; None where there are none. They stay until `delivered` is told."""
        while True:
            header = self._oldest_header()
            if header is None:
                return None
            payload = os.pread(self._read, header.size, self._offset + _HEADER.size)
            records = _records(header, payload)
            if records is not None:
                skipped = max(0, self.wanted - header.first)
                self.wanted = header.first + skipped
                return Frame(self.wanted, records[skipped:], header.first + header.count, self._age(header))
            self._offset += _HEADER.size  # the next may begin earlier than this one says
            self._lose_up_to(header.first + header.count, "corrupt")

    def _oldest_header(self) -> _Header | None:
        """The header of the oldest frame that is wanted, at self._offset; what is before it is given up."""
        while self._segments and self.pending:
            if self._read < 0:
                try:
                    self._read = os.open(self._path(self._segments[0]), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except OSError:
                    self._leave_segment()
                    continue
            header = self._find_frame()
            if header is None:
                self._leave_segment()
                continue
            if header.first + header.count <= self.wanted:
                self._offset += _HEADER.size + header.size
                continue
            self._lose_up_to(header.first, "corrupt")
            return header
        return None

    def _leave_segment(self) -> None:
        """Nothing more can be read in the oldest file."""
        if len(self._segments) == 1:
            self._end_segment()
        self._lose_oldest("corrupt")

    def _find_frame(self) -> _Header | None:
        """The next whole header from self._offset on, which is moved there."""
        size = self._sizes[self._segments[0]]
        header = _parse(os.pread(self._read, _HEADER.size, self._offset))
        if header or self._offset >= size:
            return header
        rest = os.pread(self._read, size - self._offset, self._offset)
        at = rest.find(_MAGIC, 1)
        while at >= 0:
            header = _parse(rest[at : at + _HEADER.size])
            if header:
                self._offset += at
                return header
            at = rest.find(_MAGIC, at + 1)
        return None

    def delivered(self, frame: Frame) -> None:
        """The frame's records are no longer wanted. Files that are empty by that go."""
        self.wanted = max(self.wanted, frame.end)
        if not self.pending:
            self._end_segment()
            while self._segments:
                self._forget(self._segments[0])
        elif len(self._segments) > 1 and self._segments[1] <= self.wanted:
            self._forget(self._segments[0])

    def _end_of_last(self) -> int:
        """The number behind the last record that can be read, whatever a killed process left."""
        if not self._segments:
            return 0
        last = self._segments[-1]
        end = last
        with open(self._path(last), "rb") as file:
            content = file.read()
        at = content.find(_MAGIC)
        while at >= 0:
            header = _parse(content[at : at + _HEADER.size])
            if header and at + _HEADER.size + header.size <= len(content):
                end = max(end, header.first + header.count)
            at = content.find(_MAGIC, at + 1)
        if end == last:
            # nothing in it can be read, and its name would be needed again
            self._segments.pop()
            del self._sizes[last]
            os.unlink(self._path(last))
        return end

    def close(self) -> None:
        """Everything stays where it is."""
        self._end_segment()
        self._close_read()


def _parse(packed: bytes) -> _Header | None:
    if len(packed) < _HEADER.size or packed[:4] != _MAGIC:
        return None
    _, checksum, *values = _HEADER.unpack(packed)
    header = _Header(*values)
    return header if zlib.crc32(packed[8:]) == checksum and header.size <= _GREATEST_FRAME else None


def _records(header: _Header, payload: bytes) -> list[Record] | None:
    """None where the payload is not what was written."""
    if len(payload) != header.size or zlib.crc32(payload) != header.checksum:
        return None
    try:
        records = [from_line(line) for line in zlib.decompress(payload).split(b"\n")]
    except (ValueError, zlib.error):
        return None
    return records if len(records) == header.count else None


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_id() -> bytes:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))[:8]
    except (OSError, ValueError):
        return bytes(8)
