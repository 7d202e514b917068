"""numpy's view of the maps: made from bpf_programs/lib/joblens.h, so that there is one definition of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from condor_joblens.tracer._bpf import ffi, lib

_TYPES = {
    "unsigned long long": "u8",
    "unsigned int": "u4",
    "int": "i4",
    "unsigned short": "u2",
    "unsigned char": "u1",
}


def _fields(kind: Any, start: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Name, type and offset of each member; of a struct inside the struct its members."""
    for name, field in kind.fields:
        if field.type.kind == "struct":
            yield from _fields(field.type, start + field.offset)
        else:
            yield name, field.type, start + field.offset


def _dtype(struct: str) -> np.dtype[Any]:
    names, formats, offsets = [], [], []
    for name, kind, offset in _fields(ffi.typeof(struct)):
        if kind.kind == "array" and kind.item.kind == "struct":
            code: Any = (_dtype(kind.item.cname), (kind.length,))
        elif kind.kind == "array":
            element = "u1" if kind.item.cname == "char" else _TYPES[kind.item.cname]
            code = f"S{kind.length}" if element == "u1" else (element, (kind.length,))
        else:
            code = _TYPES[kind.cname]
        names.append(name)
        formats.append(code)
        offsets.append(offset)
    # an array map's elements start at multiples of 8 bytes
    size = (ffi.sizeof(struct) + 7) // 8 * 8
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


COUNTERS = _dtype("struct slot_counters")
LIVING = _dtype("struct slot_living")
NODE = _dtype("struct node")
EVENT = _dtype("struct event")
IO_COUNTERS = _dtype("struct io_counters")
CALL_WAITS = _dtype("struct call_waits")
IO_URING = _dtype("struct io_uring_counters")
IO_RUNNING = _dtype("struct io_running")
IO_WAITING = _dtype("struct io_waiting")
IO_SUPERBLOCKS = _dtype("struct io_superblocks")
IO_FAILING = _dtype("struct io_failing")
IO_FAILURES = _dtype("struct io_failures")
IO_NODE = _dtype("struct io_node")
PROCESS_EVENT = _dtype("struct process_event")
ENDPOINT_KEY = _dtype("struct endpoint_key")
ENDPOINT = _dtype("struct endpoint")
FAILED_CONNECTIONS = _dtype("struct failed_connections")
FAILED_CALLS = _dtype("struct failed_calls")
SERVER_KEY = _dtype("struct server_key")
SERVER = _dtype("struct server")
FUSE_MOUNTED = _dtype("struct fuse_mounted")
EVIDENCE_QUESTION = _dtype("struct evidence_question")
PROFILED = _dtype("struct profiled")
SAMPLED = _dtype("struct sampled")
CODE_MAPPING = _dtype("struct code_mapping")
RECORDED = _dtype("struct recorded")
RECORDED_JOB = _dtype("struct recorded_job")
RECORDER_ROW = _dtype("struct recorder_row")
RECORDER_NODE = _dtype("struct recorder_node")
RECORDER_MAPS = "jl_rec_jobs", "jl_rec_rows", "jl_records"
"""The flight recorder's maps that the programs of traces write into as well, as they are given to these."""

TOTALS: tuple[str, ...] = tuple(name for name in COUNTERS.names or () if name in (LIVING.names or ()))
"""Columns that are summed over what has ended (COUNTERS) and what lives (LIVING)."""

ENDPOINT_COUNTED, ENDPOINT_BASE = int(lib.ENDPOINT_COUNTED), int(lib.ENDPOINT_BASE)
MAX_ENDPOINTS = int(lib.MAX_ENDPOINTS)
MAX_SERVERS, MAX_SERVERS_UNATTRIBUTED = int(lib.MAX_SERVERS), int(lib.MAX_SERVERS_UNATTRIBUTED)
FAILING_CONNECTORS = int(lib.FAILING_CONNECTORS)
FUSE_TYPE_BYTES = int(lib.FUSE_TYPE_BYTES)
SERVER_CLASSES, SERVER_NUMBERS = int(lib.SERVER_CLASSES), int(lib.SERVER_NUMBERS)

NO_SLOT: int = lib.NO_SLOT & 0xFFFFFFFF
FREE, LIVE, GONE, LEFT = int(lib.SLOT_FREE), int(lib.SLOT_LIVE), int(lib.SLOT_GONE), int(lib.SLOT_LEFT)
AWAITS_NOTHING, AWAITS_FIRST, AWAITS_JOB = int(lib.AWAITS_NOTHING), int(lib.AWAITS_FIRST), int(lib.AWAITS_JOB)
KEPT_WRAPPER, KEPT_INIT = int(lib.KEPT_WRAPPER), int(lib.KEPT_INIT)
BORN, MAIN_EXITED = int(lib.EVENT_BORN), int(lib.EVENT_MAIN_EXITED)
EMPTY, CGROUP_GONE = int(lib.EVENT_EMPTY), int(lib.EVENT_GONE)
PROCESS_EXEC, PROCESS_EXIT = int(lib.PROCESS_EXEC), int(lib.PROCESS_EXIT)
PROCESS_MAIN, PROCESS_OOM_VICTIM = int(lib.PROCESS_MAIN), int(lib.PROCESS_OOM_VICTIM)
COMMAND_BYTES = int(lib.COMMAND_BYTES)
KERNEL_FRAMES = int(lib.KERNEL_FRAMES)

WRAPPERS_MOST: dict[str, int] = {
    "executed": int(lib.WRAPPERS_PROGRAMS),
    "forked": int(lib.WRAPPERS_FORKS),
    "exited": int(lib.WRAPPERS_EXITS),
    "signalled": 0,
    "core_dumps": 0,
    "oom_kills": 0,
    "call_read_bytes": int(lib.WRAPPERS_READ_BYTES),
    "call_write_bytes": int(lib.WRAPPERS_WRITTEN_BYTES),
    "read_calls": int(lib.WRAPPERS_CALLS),
    "write_calls": int(lib.WRAPPERS_CALLS),
    "storage_read_bytes": int(lib.WRAPPERS_STORAGE_BYTES),
    "storage_write_bytes": int(lib.WRAPPERS_STORAGE_BYTES),
    "minor_faults": int(lib.WRAPPERS_FAULTS),
    "major_faults": int(lib.WRAPPERS_FAULTS),
}
"""Of COUNTERS, what the wrapper does at most until it becomes the job. The program at an exec compares the same."""

WRAPPERS_CPU_SECONDS: float = int(lib.WRAPPERS_CPU_MS) / 1000
"""The CPU time that the wrapper takes at most."""
