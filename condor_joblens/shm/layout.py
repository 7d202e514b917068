"""How the rows of a node lie in shared memory: a header of one page, then two buffers of rows.

The writer fills the buffer that is not in front and flips. `begun` and `published` count publications:

    begun     = n + 1   before the first byte of publication n + 1 is written, into buffer (n + 1) & 1
    published = n + 1   (store-release) after its last byte

A reader that saw `published == n` copies buffer n & 1. The copy is whole unless publication n + 2, the next
one into that buffer, has begun meanwhile: it then tries again. The writer waits for nobody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from condor_joblens.metrics import ROW, SCHEMA_HASH

MAGIC = b"JOBLENS\0"
LAYOUT_VERSION = 1
HEADER_BYTES = 4096

HEADER: np.dtype[Any] = np.dtype(
    [
        ("magic", "S8"),
        ("layout_version", "u4"),
        ("row_bytes", "u4"),
        ("schema_hash", "u8"),
        ("capacity", "u8"),  # rows a buffer holds
        ("writer_pid", "u4"),
        ("reserved", "u4"),
        ("begun", "u8"),
        ("published", "u8"),
        ("count", "u8", (2,)),  # rows in each buffer
        ("time", "f8", (2,)),  # epoch seconds at which each buffer was taken
    ],
    align=True,
)


def file_bytes(capacity: int) -> int:
    """Size of the shared file for `capacity` rows."""
    return HEADER_BYTES + 2 * capacity * ROW.itemsize


def offset(field: str) -> int:
    """Where a field of the header lies in the file."""
    fields = HEADER.fields
    assert fields is not None
    return int(fields[field][1])


def new_header(capacity: int, writer_pid: int) -> np.ndarray:
    """A header of a file in which nothing has been published yet, shape (1,)."""
    header: np.ndarray = np.zeros(1, HEADER)
    header["magic"] = MAGIC.rstrip(b"\0")
    header["layout_version"] = LAYOUT_VERSION
    header["row_bytes"] = ROW.itemsize
    header["schema_hash"] = SCHEMA_HASH
    header["capacity"] = capacity
    header["writer_pid"] = writer_pid
    return header
