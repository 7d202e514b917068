"""Rows as joblensd would publish them, for the tests of the command line."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import numpy as np

from condor_joblens.model import metrics
from condor_joblens.model.endpoints import Scope
from condor_joblens.shm.writer import Writer

NOW = 1_800_000_000.0
GIB = 2**30


def row(**columns: Any) -> np.ndarray:
    """One row of a one-core job of alice's that has run for 3 h 12 min; `columns` replace what it says."""
    values = {
        "run": "ap.example#12.0#1799980000#1", "global_job_id": "ap.example#12.0#1799980000",
        "job_id": "12.0", "owner": "alice", "slot": "slot1_1", "execute": "/var/lib/condor/execute",
        "cgroup": "/htcondor/slot1_1@node", "source": "bpf", "level": "basic", "level_number": 1,
        "policy": "10-default.lua", "reason": "default", "period_seconds": 1.0,
        "start_time": int(NOW) - 11520, "update_time": int(NOW), "complete": True, "request_cpus": 1.0,
        "request_memory_bytes": 2 * GIB, "cpu_seconds": 10944.0, "cpu_user_seconds": 10500.0,
        "cpu_system_seconds": 444.0, "cpu_recent_cores": 0.98, "cpu_average_cores": 0.95,
        "cpu_run_queue_seconds": 12.0, "memory_resident_bytes": int(1.2 * GIB), "memory_anon_bytes": GIB,
        "memory_file_bytes": int(0.2 * GIB), "memory_largest_process_peak_bytes": int(1.4 * GIB),
        "memory_oom_kills": 0, "memory_swap_bytes": 0, "io_call_read_bytes": 3_400_000_000,
        "io_call_write_bytes": 12_000_000, "io_read_calls": 52_000, "io_write_calls": 900,
        "io_storage_read_bytes": 3_300_000_000, "io_storage_write_bytes": 12_000_000,
        "tcp_sent_bytes": 1_200_000, "tcp_received_bytes": 900_000_000, "tcp_connected": 12,
        "tcp_accepted": 0, "tcp_failed": 1, "tcp_open": 3, "tcp_retransmits": 7, "tcp_rtt_seconds": 0.0123,
        "process_live": 4, "process_threads": 18, "process_runnable": 1, "process_uninterruptible": 0,
        "process_forked": 3400, "process_executed": 3300, "process_exited": 3396, "process_failed": 2,
        "process_signalled": 0, "process_core_dumps": 0,
    }  # fmt: skip
    return _filled({**values, **columns})


def bob(**columns: Any) -> np.ndarray:
    """A row of a young job of bob's that asked for 8 cores and little else is known of."""
    values = {
        "run": "ap.example#13.4#1799999900#1", "global_job_id": "ap.example#13.4#1799999900",
        "job_id": "13.4", "owner": "bob", "slot": "slot1_10", "level": "basic", "level_number": 1,
        "requested": "io", "start_time": int(NOW) - 65, "update_time": int(NOW), "complete": True,
        "request_cpus": 8.0, "request_memory_bytes": GIB // 2, "cpu_recent_cores": 0.02,
        "cpu_average_cores": 0.3, "cpu_seconds": 19.5, "memory_resident_bytes": 600 * 2**20,
        "note": "level io does what basic does in this version", "process_live": 1,
        "process_uninterruptible": 1,
    }  # fmt: skip
    return _filled({**values, **columns})


def busy(**columns: Any) -> np.ndarray:
    """A row of alice's job, watched at level io: it waits for cvmfs, and looks for what is not there."""
    values = {
        "level": "io", "level_number": 2, "wait_running_seconds": 3400, "wait_run_queue_seconds": 120,
        "wait_uninterruptible_seconds": 60, "wait_sleep_seconds": 7700, "wait_cvmfs_blocked_seconds": 7140,
        "wait_local_blocked_seconds": 60, "wait_socket_blocked_seconds": 210, "fs_cvmfs_opens": 12034,
        "fs_cvmfs_failed_opens": 1204, "fs_cvmfs_read_bytes": 3_300_000_000, "fs_cvmfs_read_calls": 52000,
        "fs_local_opens": 310, "fs_local_read_bytes": 30_000_000, "fs_local_read_calls": 2000,
        "fs_local_write_bytes": 12_000_000, "fs_local_write_calls": 900, "fs_tmpfs_opens": 0, "fs_tmpfs_read_bytes": 0,
        "syscall_read_calls": 54020, "syscall_read_errors": 0, "syscall_read_bytes": 3_330_000_000,
        "syscall_open_calls": 13548, "syscall_open_errors": 1204, "syscall_metadata_calls": 98000,
        "syscall_metadata_errors": 1540, "syscall_wait_calls": 1200, "syscall_wait_errors": 30,
        "syscall_other_calls": 10, "errors_enoent": 2704, "errors_eacces": 40, "errors_eagain": 30, "errors_other": 2,
    }  # fmt: skip
    rows = row(**{**values, **columns})
    for place, (name, address, port, scope, received, refused) in enumerate(
        (
            (b"xrootd-cern", "::ffff:192.0.2.7", 1094, Scope.OUTSIDE, 880_000_000, 0),
            (b"", "2001:db8::1", 443, Scope.OUTSIDE, 20_000_000, 1),
            (b"", "::", 0, Scope.REST, 500, 0),
        )
    ):
        entry = rows["endpoints"][0][place]
        entry["name"], entry["port"], entry["scope"] = name, port, scope
        entry["address"] = ipaddress.ip_address(address).packed
        entry["received_bytes"], entry["sent_bytes"], entry["connections"] = received, received // 1000, 3
        entry["refused"], entry["rtt_seconds"] = refused, 0.0123 if port else float("nan")
    return rows


def _filled(values: dict[str, Any]) -> np.ndarray:
    rows = metrics.empty_rows(1)
    for column, value in values.items():
        rows[column] = metrics.cut(value, column) if isinstance(value, str) else value
    return rows


def publish(folder: Path, name: str, *rows: np.ndarray, time: float = NOW) -> Writer:
    """Writes `rows` into the shared file `name` (rows or ended) of `folder`, as joblensd does."""
    writer = Writer(str(folder / name), 64, folder.stat().st_gid)
    writer.publish(np.concatenate(rows) if rows else metrics.empty_rows(0), time)
    return writer
