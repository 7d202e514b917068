"""How the files in shared memory lie in bytes: joblens_shm.h, in numpy's words.

    header      struct joblens_header
    columns     what a record is made of, so that a reader in any language finds a column by its name
    places      rows only: which of the table's places each row of a buffer is, in both buffers
    records     rows: two buffers of `capacity` records; events: one ring of them

Columns, places and records begin at a page. What makes reading without a lock right is in the header's own comments,
in docs/shared-memory.md, and proved by the models in tests/model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.shm._shm import ffi

ROWS_MAGIC, EVENTS_MAGIC, ARTIFACT_MAGIC = b"JLROWS\0\0", b"JLEVENTS", b"JLARTFCT"
LAYOUT_VERSION = 2
ARTIFACT_VERSION = 2
BYTE_ORDER = 0x01020304
PAGE = 4096

HEADER: np.dtype[Any] = np.dtype(
    [
        ("magic", "V8"),
        ("layout", "u4"),
        ("byte_order", "u4"),
        ("schema_hash", "u8"),
        ("record_bytes", "u8"),
        ("capacity", "u8"),
        ("columns", "u8"),
        ("columns_at", "u8"),
        ("places_at", "u8"),
        ("records_at", "u8"),
        ("identity", "u8"),
        ("generation", "u8"),
        ("writer_start", "u8"),
        ("writer_pid", "u4"),
        ("reserved", "u4"),
        ("begun", "u8"),
        ("published", "u8"),
        ("count", "u8", (2,)),
        ("time", "f8", (2,)),
        ("first", "u8"),
        ("head", "u8"),
        ("wake", "u4"),
        ("reserved_too", "u4"),
    ],
    align=True,
)
"""struct joblens_header."""

COLUMN: np.dtype[Any] = np.dtype(
    [("name", "S48"), ("type", "S1"), ("reserved", "V7"), ("offset", "u4"), ("bytes", "u4")], align=True
)
"""struct joblens_column."""

ARTIFACT: np.dtype[Any] = np.dtype(
    [
        ("magic", "V8"),
        ("version", "u4"),
        ("byte_order", "u4"),
        ("content_at", "u4"),
        ("header_crc", "u4"),
        ("sequence", "u8"),
        ("run_number", "u8"),
        ("length", "u8"),
        ("begun", "f8"),
        ("ended", "f8"),
        ("uid", "u4"),
        ("reserved", "u4"),
        ("sha256", "V32"),
        ("kind", "S32"),
        ("content_type", "S64"),
        ("content_encoding", "S16"),
        ("run", "S176"),
        ("owner", "S64"),
        ("slot", "S64"),
        ("sinks", "S64"),
        ("node", "S256"),
        ("claimed_run", "S176"),
        ("claimed_owner", "S64"),
    ],
    align=True,
)
"""struct joblens_artifact."""


def _check_against_header(dtype: np.dtype[Any], struct: str) -> None:
    for name, field in ffi.typeof(struct).fields:
        assert dtype.fields is not None and dtype.fields[name][1] == field.offset, (struct, name)
    assert dtype.itemsize == ffi.sizeof(struct), struct


_check_against_header(HEADER, "struct joblens_header")
_check_against_header(COLUMN, "struct joblens_column")
_check_against_header(ARTIFACT, "struct joblens_artifact")


@dataclass(frozen=True)
class FilePlan:
    """Where everything lies in a file of `capacity` records of type `record`, in `buffers` buffers."""

    magic: bytes
    record: np.dtype[Any]
    schema_hash: int
    capacity: int
    buffers: int  # 2: rows, with places; 1: the ring

    @property
    def columns_at(self) -> int:
        """Offset of the table of columns."""
        return PAGE

    @property
    def places_at(self) -> int:
        """Offset of the places."""
        assert self.record.names is not None
        return _paged(self.columns_at + len(self.record.names) * COLUMN.itemsize)

    @property
    def records_at(self) -> int:
        """Offset of the records."""
        return _paged(self.places_at + (8 * 2 * self.capacity if self.buffers == 2 else 0))

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self.records_at + self.buffers * self.capacity * self.record.itemsize

    def header(self, identity: int, generation: int, first: int) -> bytes:
        """The first bytes of a file in which nothing has been published yet, up to the records' table of columns."""
        header: np.ndarray = np.zeros(1, HEADER)
        header["magic"] = np.void(self.magic)
        header["layout"], header["byte_order"] = LAYOUT_VERSION, BYTE_ORDER
        header["schema_hash"], header["record_bytes"] = self.schema_hash, self.record.itemsize
        header["capacity"] = self.capacity
        header["columns"], header["columns_at"] = len(self.record.fields or ()), self.columns_at
        header["places_at"] = self.places_at if self.buffers == 2 else 0
        header["records_at"] = self.records_at
        header["identity"], header["generation"] = identity, generation
        header["writer_pid"], header["writer_start"] = os.getpid(), _started()
        header["first"], header["head"] = first, first - 1
        return header.tobytes().ljust(self.columns_at, b"\0") + _columns(self.record).tobytes()


def _columns(record: np.dtype[Any]) -> np.ndarray:
    columns: np.ndarray = np.zeros(len(record.fields or ()), COLUMN)
    for column, name in zip(columns, record.names or ()):
        assert record.fields is not None
        kind, offset = record.fields[name][:2]
        assert len(name) < 48
        column["name"], column["type"] = name.encode(), kind.kind.encode()
        column["offset"], column["bytes"] = offset, kind.itemsize
    return columns


def _paged(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _started() -> int:
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])
