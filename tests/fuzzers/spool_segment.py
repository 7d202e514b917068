"""A file of the spool, damaged or torn in any way. Its frames get right checksums, so that their contents count too."""

from __future__ import annotations

import os
import tempfile
import zlib

from condor_joblens.export import spool
from condor_joblens.export.spool import Spool, SpoolLimits
from condor_joblens.sinks import Record, RecordKind

_LIMITS = SpoolLimits(1 << 20, 1e9, "never")
_MOST_FRAMES = 1000
_LINE = b'{"Type":"event","Id":"n/1","Node":"n","Time":1.5}'
_HEADER = spool._HEADER
_EMPTY = _HEADER.pack(b"JLSP", 0, 0, 0, 1, 0, 0.0, 0.0, bytes(8))


def _written() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Spool(folder, _LIMITS)
        record = Record(RecordKind.EVENT, "n/1", "n", 1.5, _LINE)
        made.append([record])
        made.append([record, record])
        made.close()
        with open(f"{folder}/{0:020d}.spool", "rb") as file:
            return file.read()


SEEDS = [
    b"\0" + _written(),
    b"\0" + _written()[:-5],
    b"\1" + _EMPTY + _LINE,
    b"\1" + _EMPTY + _LINE.replace(b"1.5", b"1" + b"0" * 400),
    b"\1" + _EMPTY + b"[" * 2000,
]
WORDS = [b"JLSP", b'"Type":"event"', b'"Time":', b'"Id":', b'"Node":', b"\n"]


def check(data: bytes) -> None:
    """Each record comes out or is counted, whatever is in the file, and it ends."""
    content = data[1:] if data[:1] == b"\0" else _mended(data[1:])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with open(f"{folder}/{0:020d}.spool", "wb") as file:
            file.write(content)
        opened = Spool(folder, _LIMITS)
        for _ in range(_MOST_FRAMES):
            frame = opened.oldest()
            if frame is None:
                break
            assert frame.first + len(frame.records) == frame.end
            opened.delivered(frame)
        else:
            raise AssertionError("it does not end")
        opened.close()
        assert opened.pending == 0 and len(os.listdir(folder)) <= 1


def _mended(content: bytes) -> bytes:
    """A frame whose lines are what follows the header, with the sizes and checksums of these."""
    if len(content) < _HEADER.size:
        return content
    _, _, _, _, _, first, written, uptime, boot = _HEADER.unpack_from(content)
    lines = content[_HEADER.size :]
    payload = zlib.compress(lines, 1)
    values = (len(payload), zlib.crc32(payload), lines.count(b"\n") + 1, first % (1 << 48), written, uptime, boot)
    header = _HEADER.pack(b"JLSP", 0, *values)
    return _HEADER.pack(b"JLSP", zlib.crc32(header[8:]), *values) + payload
