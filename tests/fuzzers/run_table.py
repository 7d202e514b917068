"""The head of the file of the table of runs: an input is its numbers and its description, and gets a right checksum."""

from __future__ import annotations

import struct

import numpy as np

from condor_joblens.jobs import run_table_file
from condor_joblens.jobs.run_table_file import BYTE_ORDER, FORMAT, MAGIC, Unreadable, read_layout

_NUMBERS = struct.Struct("=QQQQ")  # capacity, where rows and states begin, size of the file
_HEADER = struct.Struct("=8sIIQQQQ32s")
_HEAD = run_table_file.preamble(
    np.dtype([("level_number", "i4"), ("run", "S8")]), np.dtype([("cgroup_id", "u8"), ("used", "?")]), 2
)
_CAPACITY, _LENGTH, _ROWS_AT, _STATE_AT = _HEADER.unpack(_HEAD[: _HEADER.size])[3:7]
_DESCRIPTION = _HEAD[_HEADER.size : _HEADER.size + _LENGTH]
SEEDS = [
    _NUMBERS.pack(_CAPACITY, _ROWS_AT, _STATE_AT, _STATE_AT + 100) + _DESCRIPTION,
    _NUMBERS.pack(_CAPACITY, _ROWS_AT, _STATE_AT, _STATE_AT + 100) + _DESCRIPTION.replace(b"i4", b"S99999"),
    _NUMBERS.pack(1, _ROWS_AT, _ROWS_AT, 1 << 20) + b'{"row":' * 300,
]
WORDS = [b'"bytes":', b'"columns":', b'["used","|b1",0]', b'"|V8"', b"99999999999999999999", b"[2,3]"]


def check(data: bytes) -> None:
    """A head is a layout that lies within the file, or Unreadable."""
    if len(data) < _NUMBERS.size:
        return
    capacity, rows_at, state_at, file_bytes = _NUMBERS.unpack_from(data)
    description = data[_NUMBERS.size :]
    known = (MAGIC, FORMAT, BYTE_ORDER, capacity, len(description), rows_at, state_at)
    head = _HEADER.pack(*known, run_table_file._checksum(known, description)) + description
    for begin in (head, data):
        try:
            layout = read_layout(begin, file_bytes)
        except Unreadable:
            continue
        assert 0 <= layout.rows_at <= layout.state_at <= layout.file_bytes <= file_bytes
        assert layout.row.names and layout.state.names
