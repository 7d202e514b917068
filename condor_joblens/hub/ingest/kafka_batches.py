"""kafka-python's batches, bounded: who may write to a topic chooses how his batches are packed.

A megabyte of gzip can become a gigabyte, and a broker hands it on as it came. What can't be read is worse: the library
raises at the same batch for ever, so one writer could stop the hub. So a batch that is too long unpacked, or is
broken, ends there. What is before that place is taken, the rest is left out and counted here.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from kafka import codec
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record import default_records, memory_records

from condor_joblens.hub.ingest.records import MOST_BYTES, MOST_LINE

_XERIAL = b"\x82SNAPPY\0" + bytes(8)
"""How Kafka's snappy begins: a name, and two numbers."""

BROKEN = [0]
"""Batches so far that could not be read to their end."""


_NOT_THE_BATCH = (MemoryError, UnsupportedCodecError)
"""What is wrong with us, not with what came: it is read again once there is memory, or the package."""


class _TooLong(CorruptRecordError):  # type: ignore[misc]  # it has no types
    pass


class _Batch(default_records.DefaultRecordBatch):  # type: ignore[misc]
    """One that ends where it can't be read. Of a record it keeps the value alone, and none that is too long."""

    _is_broken = False

    def __iter__(self) -> Any:
        try:
            return super().__iter__()
        except _NOT_THE_BATCH:
            raise
        except Exception:  # whatever a library says of bytes that anybody has written
            return self._broken()

    def __next__(self) -> Any:
        try:
            if self._is_broken:
                raise StopIteration
            found = super().__next__()
        except (StopIteration, *_NOT_THE_BATCH):
            raise
        except Exception:
            self._broken()
            raise StopIteration from None
        value = found.value
        if value is not None and len(value) > MOST_LINE:
            value = value[: MOST_LINE + 1]  # refused as too long, where all others are
        return default_records.DefaultRecord(
            found.size_in_bytes, found.offset, found.timestamp, found.timestamp_type, None, value, []
        )

    next = __next__

    def _broken(self) -> Any:
        BROKEN[0] += 1
        self._is_broken = True
        self._buffer = bytearray()
        return self


def install() -> None:
    """From now on, in this process."""
    memory_records.DefaultRecordBatch = _Batch
    default_records.gzip_decode = _gzip
    default_records.lz4_decode = _lz4
    default_records.zstd_decode = _zstd
    default_records.snappy_decode = _snappy


def _gzip(packed: Any) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    return _checked(unpacker.decompress(packed, MOST_BYTES + 1))


def _lz4(packed: bytes) -> bytes:
    import lz4.frame  # type: ignore[import-untyped,unused-ignore]

    unpacker = lz4.frame.LZ4FrameDecompressor()
    return _checked(unpacker.decompress(packed, max_length=MOST_BYTES + 1))


def _zstd(packed: bytes) -> bytes:
    import zstandard

    with zstandard.ZstdDecompressor(max_window_size=MOST_BYTES).stream_reader(io.BytesIO(packed)) as reader:
        return _checked(reader.read(MOST_BYTES + 1))


def _snappy(packed: bytes) -> bytes:
    """Each block says first how long it is unpacked, and the library makes room for that."""
    size, at = 0, len(_XERIAL)
    if packed[:8] != _XERIAL[:8]:
        size = _snappy_length(packed)
    while packed[:8] == _XERIAL[:8] and at < len(packed):
        (length,) = struct.unpack_from("!i", packed, at)
        if length <= 0:
            raise CorruptRecordError
        size, at = size + _snappy_length(packed[at + 4 : at + 14]), at + 4 + length
    if size > MOST_BYTES:
        raise _TooLong
    return bytes(codec.snappy_decode(packed))


def _snappy_length(block: bytes) -> int:
    found = 0
    for place, byte in enumerate(block[:5]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found
    raise CorruptRecordError


def _checked(found: bytes) -> bytes:
    if len(found) > MOST_BYTES:
        raise _TooLong
    return found
