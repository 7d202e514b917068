"""What the tracer counted, as columns of the metric table: what has ended plus what lives."""

from __future__ import annotations

import os

import numpy as np

from condor_joblens.tracer import map_layout

PAGE = os.sysconf("SC_PAGE_SIZE")
NANO, MICRO = 1e-9, 1e-6

# column of the row <- field of the counters; those in layout.TOTALS have a living part as well
COUNTS = {
    "io_call_read_bytes": "call_read_bytes",
    "io_call_write_bytes": "call_write_bytes",
    "io_read_calls": "read_calls",
    "io_write_calls": "write_calls",
    "io_storage_read_bytes": "storage_read_bytes",
    "io_storage_write_bytes": "storage_write_bytes",
    "memory_minor_faults": "minor_faults",
    "memory_major_faults": "major_faults",
    "memory_oom_kills": "oom_kills",
    "tcp_sent_bytes": "sent_bytes",
    "tcp_received_bytes": "received_bytes",
    "tcp_connected": "connected",
    "tcp_accepted": "accepted",
    "tcp_failed": "connect_failed",
    "tcp_retransmits": "retransmits",
    "process_forked": "forked",
    "process_executed": "executed",
    "process_exited": "exited",
    "process_failed": "failed",
    "process_signalled": "signalled",
    "process_core_dumps": "core_dumps",
}
LIVING = {
    "process_live": "processes",
    "process_threads": "threads",
    "process_runnable": "runnable",
    "process_uninterruptible": "uninterruptible",
}
LIVING_PAGES = {
    "memory_anon_bytes": "anon_pages",
    "memory_file_bytes": "file_pages",
    "memory_swap_bytes": "swap_pages",
}


def columns(ended: np.ndarray, living: np.ndarray, connections: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of n slots, each of shape (n,).

    `ended` (layout.COUNTERS) must have been read *before* the iterators filled `living` and `connections`
    (layout.LIVING): a thread that ends in between is then missing once, and never counted twice. Sums wrap as the
    kernel's do, so that a negative start comes out right.
    """
    found: dict[str, np.ndarray] = {}
    for column, field in COUNTS.items():
        total = ended[field]
        if field in map_layout.TOTALS:
            total = total + living[field] + connections[field]
        found[column] = total.astype("i8")
    found["cpu_run_queue_seconds"] = (ended["run_queue_ns"] + living["run_queue_ns"]).astype("i8") * NANO
    for column, field in LIVING.items():
        found[column] = living[field].astype("i8")
    for column, field in LIVING_PAGES.items():
        found[column] = living[field].astype("i8") * PAGE
    found["memory_resident_bytes"] = found["memory_anon_bytes"] + found["memory_file_bytes"]
    peak = np.maximum(ended["ended_peak_pages"], living["peak_pages"])
    found["memory_largest_process_peak_bytes"] = peak.astype("i8") * PAGE
    opened = (ended["connected"] + ended["accepted"] - ended["closed"]).astype("i8")
    found["tcp_open"] = np.maximum(opened, connections["connections"].astype("i8"))
    found["tcp_rtt_seconds"] = _mean_rtt(ended, connections)
    return found


def _mean_rtt(ended: np.ndarray, connections: np.ndarray) -> np.ndarray:
    count = ended["rtt_count"] + connections["rtt_count"]
    total = (ended["rtt_us"] + connections["rtt_us"]) * MICRO
    mean: np.ndarray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def held_bytes(found: np.ndarray) -> np.ndarray:
    """What the OOM killer's victims held when they were chosen, shape (n,).

    The kernel keeps a part of it per CPU (from 6.2 on) until a process ends. So where the exact peak is but little
    more than the rest, the process was at its peak: an eighth is more than those parts are of any victim worth it.
    """
    held: np.ndarray = found["resident_pages"].astype("i8")
    peak: np.ndarray = found["peak_pages"].astype("i8")
    at_peak = (held == 0) | (peak - held < peak // 8)
    bytes_held: np.ndarray = np.where(at_peak, peak, held) * PAGE
    return bytes_held
