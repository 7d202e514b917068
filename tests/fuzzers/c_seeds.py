"""What the fuzzers in C begin with: small files that are right."""

from __future__ import annotations

import struct

import numpy as np

from condor_joblens.shm import layout
from condor_joblens.shm.artifact_header import Artifact, pack
from condor_joblens.tracer import map_layout

_RECORD, _CAPACITY = 16, 4
_COLUMNS_AT = layout.HEADER.itemsize
_PLACES_AT = _COLUMNS_AT + layout.COLUMN.itemsize


def _shared_memory(magic: bytes) -> bytes:
    """Two records of one column, in a file of rows or of events."""
    buffers = 2 if magic == layout.ROWS_MAGIC else 1
    records_at = _PLACES_AT + (buffers * _CAPACITY * 8 if buffers == 2 else 0)
    header: np.ndarray = np.zeros(1, layout.HEADER)
    header["magic"] = np.void(magic)
    header["layout"], header["byte_order"] = layout.LAYOUT_VERSION, layout.BYTE_ORDER
    header["record_bytes"], header["capacity"], header["columns"] = _RECORD, _CAPACITY, 1
    header["columns_at"], header["records_at"] = _COLUMNS_AT, records_at
    header["places_at"] = _PLACES_AT if buffers == 2 else 0
    header["begun"] = header["published"] = 2
    header["count"], header["first"], header["head"] = 2, 1, 2
    column: np.ndarray = np.zeros(1, layout.COLUMN)
    column["name"], column["type"], column["bytes"] = b"cpu_user_seconds", b"f", 8
    places = np.arange(records_at - _PLACES_AT, dtype="u1").tobytes()
    records = np.arange(buffers * _CAPACITY * _RECORD // 8, dtype="u8").tobytes()
    return header.tobytes() + column.tobytes() + places + records


def _processes() -> np.ndarray:
    found: np.ndarray = np.zeros(2, map_layout.PROCESS_EVENT)
    found["kind"] = [map_layout.PROCESS_EXEC, map_layout.PROCESS_EXIT]
    found["pid"], found["tgid"], found["time_ns"], found["program"] = 7, 7, 5, b"python3"
    command = b"python3\0run.py\0--token\0tulip\0"
    found["command"], found["command_bytes"] = [command, b""], [len(command), 0]
    return found


def _in_ring(events: np.ndarray) -> bytes:
    records = [event.tobytes() for event in events]
    return bytes(2) + b"".join(b"\0" + len(record).to_bytes(2, "little") + record for record in records)


def _eh_frame() -> bytes:
    """One CIE and one function of 64 bytes: it pushes the frame pointer, and pops it before it returns."""
    common = bytes([1]) + b"zR\0" + bytes([1, 0x78, 16, 1, 0x1B, 0x0C, 7, 8, 0x90, 1, 0, 0])
    common = (4 + len(common)).to_bytes(4, "little") + bytes(4) + common
    rules = bytes([0x41, 0x0E, 16, 0x86, 2, 0x43, 0x0D, 6, 0x0A, 0x7A, 0x0C, 7, 8, 0x41, 0x0B, 0, 0, 0])
    here = len(common) + 8
    function = (0x1000 - here).to_bytes(4, "little", signed=True) + (64).to_bytes(4, "little") + bytes([0]) + rules
    return common + (4 + len(function)).to_bytes(4, "little") + (len(common) + 4).to_bytes(4, "little") + function


def _symbols() -> bytes:
    """An address, and symbols: two functions that do not lie in their order, the second without a size, and data."""
    found = [(1, 2, 1, 0x1080, 0), (7, 2, 1, 0x1000, 0x40), (9, 1, 2, 0x3000, 8)]
    return struct.pack("<Q", 0x1010) + b"".join(
        struct.pack("<IBBHQQ", name, kind, 0, section, value, size) for name, kind, section, value, size in found
    )


SEEDS: dict[str, list[bytes]] = {
    "shm_rows": [_shared_memory(layout.ROWS_MAGIC)],
    "shm_events": [bytes(8) + _shared_memory(layout.EVENTS_MAGIC)],
    "shm_artifact": [pack(Artifact("hang", "text/plain", 1, 0.0, 0.0, length=2)) + b"it"],
    "cgroup_files": [
        b"usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\n",
        b"some avg10=0.00 avg60=1.23 avg300=0.50 total=4500000\nfull avg10=0.00 total=9\n",
        b"anon 4096\nfile 8192\nkernel_stack 1\npagetables 2\npercpu 3\nslab 4\nvmalloc 5\n",
        b"low 0\nhigh 0\nmax 0\noom 1\noom_kill 1\n",
        b"8192\n",
    ],
    "eh_frame": [_eh_frame() + bytes(4)],
    "elf_symbols": [_symbols()],
    "process_ring": [_in_ring(_processes())],
    "event_records": [_processes().tobytes()],
}
