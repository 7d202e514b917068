"""The packets between joblensd and the process that works as other users. Whatever does not fit is an error.

A request is one packet of a socket that keeps their bounds, with descriptors; the next one follows its answer, if
it has one. The
texts of ads are in memory that both have mapped to a file, one after the other: no packet is that long.
"""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.owner_files.notices import MOST_BYTES as MOST_NOTICE_BYTES
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.owner_files.operations import Ad
from condor_joblens.owner_files.progress import MOST_BYTES as MOST_PROGRESS_BYTES
from condor_joblens.owner_files.reports import MOST_BYTES as MOST_REPORT_BYTES
from condor_joblens.owner_files.reports import Report, ReportResult
from condor_joblens.publish.updatead import Version, WriteResult, Written

MAX_ADS = 200
"""Ads in one exchange. The kernel takes 253 descriptors with a packet."""

MAX_TEXT = 16 << 10
"""Bytes of one ad; publish/classad.py makes none that long."""

MEMORY_BYTES = MAX_ADS * MAX_TEXT
MAX_PACKET = 8192

MAX_PROGRESS = MAX_PACKET // (MOST_PROGRESS_BYTES + 8)
"""Folders whose jobs' own words are asked for in one exchange: the answer is a packet."""

_NUMBER = struct.Struct("<q")
_OPEN_AD = struct.Struct("<B?")
_WRITE = struct.Struct("<I?")
_REPORT = struct.Struct("<BI")
_SIZE = struct.Struct("<I")
_WRITTEN = struct.Struct("<B?QQ?QQ")
_ADS, _RESULTS, _REPORTS = list(Ad), list(WriteResult), list(Report)
REPORT_RESULTS = list(ReportResult)
"""The answer to WRITE_REPORT is a byte, the place in here."""
NOTICE_RESULTS = list(NoticeResult)
"""The same of ADD_NOTICE."""


class BadPacket(Exception):
    """It is no packet of ours."""


class Verb(enum.IntEnum):
    """The first byte of a request; of an answer: 0, or an error's number."""

    OPEN_FOLDERS = 1
    OPEN_AD = 2
    WRITE_ADS = 3
    VERSIONS = 4
    WATCH = 5
    PROCESS_IO = 6
    OPEN_LOG = 7
    CONFINE = 8
    WRITE_REPORT = 9
    LEASE_ADS = 10  # without an answer: what is urgent comes behind it
    ADD_NOTICE = 11
    PROGRESS = 12


DESCRIPTORS = {
    Verb.OPEN_FOLDERS: range(1),
    Verb.OPEN_AD: range(1, 2),
    Verb.WRITE_ADS: range(1, MAX_ADS + 1),
    Verb.VERSIONS: range(1, MAX_ADS + 1),
    Verb.WATCH: range(2, 3),
    Verb.PROCESS_IO: range(1),
    Verb.OPEN_LOG: range(1),
    Verb.CONFINE: range(1),
    Verb.WRITE_REPORT: range(1, 2),
    Verb.LEASE_ADS: range(1, MAX_ADS + 1),
    Verb.ADD_NOTICE: range(1, 2),
    Verb.PROGRESS: range(1, MAX_PROGRESS + 1),
}
"""How many descriptors come with each request."""


@dataclass(frozen=True)
class Request:
    """A request, taken apart. Only what its verb needs is set."""

    verb: Verb
    path: str = ""
    paths: tuple[str, ...] = ()
    number: int = 0  # process id of a starter or of a process
    ad: Ad = Ad.JOB
    not_owners: bool = False
    report: Report = Report.FLAME
    size: int = 0  # bytes of the report, or of the notice, in the memory
    writes: tuple[tuple[int, bool], ...] = ()  # bytes of the text in the memory, whether the folder is the job's


def encode(request: Request) -> bytes:
    """The packet of a request."""
    verb = bytes([request.verb])
    if request.verb is Verb.OPEN_FOLDERS:
        return verb + _NUMBER.pack(request.number) + os.fsencode(request.path)
    if request.verb is Verb.OPEN_AD:
        return verb + _OPEN_AD.pack(_ADS.index(request.ad), request.not_owners)
    if request.verb is Verb.WRITE_ADS:
        return verb + b"".join(_WRITE.pack(*write) for write in request.writes)
    if request.verb is Verb.WRITE_REPORT:
        return verb + _REPORT.pack(_REPORTS.index(request.report), request.size)
    if request.verb is Verb.ADD_NOTICE:
        return verb + _SIZE.pack(request.size)
    if request.verb is Verb.PROCESS_IO:
        return verb + _NUMBER.pack(request.number)
    if request.verb is Verb.CONFINE:
        return verb + b"\0".join(map(os.fsencode, request.paths))
    return verb + os.fsencode(request.path)


def decode(packet: bytes, descriptors: int) -> Request:
    """The request of a packet that came with so many descriptors. Raises BadPacket."""
    request = _decode(packet, descriptors)
    if encode(request) != packet:
        raise BadPacket("there is another way to say this")
    return request


def _decode(packet: bytes, descriptors: int) -> Request:
    try:
        verb, rest = Verb(packet[0]), packet[1:]
        if descriptors not in DESCRIPTORS[verb]:
            raise BadPacket("it has another number of descriptors")
        if verb is Verb.OPEN_FOLDERS:
            return Request(verb, path=_path(rest[_NUMBER.size :]), number=_pid(rest[: _NUMBER.size]))
        if verb is Verb.OPEN_AD:
            index, not_owners = _OPEN_AD.unpack(rest)
            return Request(verb, ad=_ADS[index], not_owners=not_owners)
        if verb is Verb.WRITE_ADS:
            return Request(verb, writes=_writes(rest, descriptors))
        if verb is Verb.WRITE_REPORT:
            index, size = _REPORT.unpack(rest)
            return Request(verb, report=_REPORTS[index], size=_size(size, MOST_REPORT_BYTES))
        if verb is Verb.ADD_NOTICE:
            (size,) = _SIZE.unpack(rest)
            return Request(verb, size=_size(size, MOST_NOTICE_BYTES))
        if verb is Verb.PROCESS_IO:
            return Request(verb, number=_pid(rest))
        if verb is Verb.OPEN_LOG:
            return Request(verb, path=_path(rest))
        if verb is Verb.CONFINE:
            return Request(verb, paths=tuple(_path(path) for path in rest.split(b"\0")))
    except (ValueError, IndexError, struct.error) as error:
        raise BadPacket(str(error)) from None
    if rest:
        raise BadPacket("it is too long")
    return Request(verb)


def _path(encoded: bytes) -> str:
    if encoded[:1] != b"/" or b"\0" in encoded or b".." in encoded.split(b"/") or len(encoded) > 4096:
        raise BadPacket("it has no whole path")
    return os.fsdecode(encoded)


def _size(size: int, most: int) -> int:
    if not 0 < size <= most:
        raise BadPacket("an impossible size")
    return size


def _pid(encoded: bytes) -> int:
    (number,) = _NUMBER.unpack(encoded)
    if not 0 < number < 1 << 31:
        raise BadPacket("it has an impossible process id")
    return int(number)


def _writes(encoded: bytes, descriptors: int) -> tuple[tuple[int, bool], ...]:
    writes = tuple(_WRITE.iter_unpack(encoded))
    if len(writes) != descriptors or any(length > MAX_TEXT for length, _ in writes):
        raise BadPacket("its texts don't fit")
    return writes


def encode_written(written: Sequence[Written]) -> bytes:
    """The answer to WRITE_ADS."""
    return b"".join(
        _WRITTEN.pack(_RESULTS.index(each.result), *_of_version(each.version), *_of_version(each.replaced))
        for each in written
    )


def decode_written(answer: bytes) -> list[Written]:
    """The other way round."""
    return [
        Written(_RESULTS[index], _as_version(*numbers[:3]), _as_version(*numbers[3:]))
        for index, *numbers in _WRITTEN.iter_unpack(answer)
    ]


def _of_version(version: Version) -> tuple[bool, int, int]:
    return (False, 0, 0) if version is None else (True, *version)


def _as_version(is_there: bool, inode: int, changed: int) -> Version:
    return (inode, changed) if is_there else None


def encode_versions(versions: Sequence[Version]) -> bytes:
    """The answer to VERSIONS."""
    return encode_written([Written(WriteResult.DONE, version) for version in versions])


def decode_versions(answer: bytes) -> list[Version]:
    """The other way round."""
    return [each.version for each in decode_written(answer)]


def encode_progress(said: Sequence[bytes]) -> bytes:
    """The answer to PROGRESS."""
    return b"".join(_SIZE.pack(len(each)) + each for each in said)


def decode_progress(answer: bytes) -> list[bytes]:
    """The other way round. Raises ValueError."""
    said, at = [], 0
    while at < len(answer):
        (size,) = _SIZE.unpack_from(answer, at)
        if size > MOST_PROGRESS_BYTES or at + _SIZE.size + size > len(answer):
            raise ValueError("it does not fit")
        at += _SIZE.size
        said.append(answer[at : at + size])
        at += size
    return said
