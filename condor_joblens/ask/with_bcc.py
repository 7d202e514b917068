"""Compiles and runs an administrator's BPF program by bcc, and tells what it says, in lines of JSON.

    python3 -I with_bcc.py CGROUP SECONDS < FILE.c      as root

bcc is a package of the distribution for its own Python. JobLens may run under another one, so this file imports nothing
of the package that it is in. What its lines have:

    {"event": TABLE, "fields": {...}}                   what the program has sent by BPF_PERF_OUTPUT, as it comes
    {"table": TABLE, "log2": false, "rows": [[key, value], ...], "left_out": 0}   what a table has in the end
    {"began": true}, {"note": WORDS}, {"failed": WORDS}
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

JOB = """
#include <linux/sched.h>
BPF_CGROUP_ARRAY(joblens_job, 1);
static inline int joblens_is_of_job(void)
{
	return joblens_job.check_current_task(0) == 1;
}
#define JOB() joblens_is_of_job()
#line 1 "%s"
"""
"""What stands before the program; bcc takes no table in a macro. JOB(): whether it runs in a task of the job."""

MOST_EVENTS, MOST_ROWS = 10_000, 1000
MOST_MEMORY = 2 << 30
"""Bytes: bcc has a compiler in itself, which takes some 130 MB."""

COMPILING_SECONDS = 300
"""Of CPU, besides what the program may run for."""

_HASHES, _ARRAYS, _EVENTS, _PER_CPU = {1, 5, 9, 10}, {2, 6}, 4, {5, 6, 10}
"""Kinds of maps: enum bpf_map_type of linux/bpf.h."""

_LOG2_ROWS = (64, 65)
"""Elements of BPF_HISTOGRAM."""


def main(arguments: list[str]) -> int:
    """Exit code 1 if it failed, which the last line then tells."""
    cgroup, seconds, name = arguments[0], float(arguments[1]), arguments[2]
    resource.setrlimit(resource.RLIMIT_CPU, (COMPILING_SECONDS + int(seconds),) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    try:
        _run(sys.stdin.read(), cgroup, seconds, name)
    except Exception as error:  # the compiler has said on stderr what is wrong with the program
        _say(failed=f"{type(error).__name__}: {error}")
        return 1
    return 0


def _run(source: str, cgroup: str, seconds: float, name: str) -> None:
    bcc = importlib.import_module("bcc")
    folder = f"/lib/modules/{os.uname().release}/build"
    if not os.path.isdir(folder) and not os.path.exists("/sys/kernel/kheaders.tar.xz"):
        raise RuntimeError(f"{folder} is missing: install the headers of the kernel that runs (linux-headers)")
    program = _looking_alone(bcc.BPF)(text=JOB % name.replace("\\", "").replace('"', "") + source)
    program[b"joblens_job"][0] = cgroup
    kinds = dict(_tables(bcc, program))
    left = [MOST_EVENTS]
    for table, kind in kinds.items():
        if kind == _EVENTS:
            program[table].open_perf_buffer(_teller(program[table], table.decode(), left))
    _say(began=True)
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0 and left[0] > 0:
        program.perf_buffer_poll(timeout=max(1, min(100, int(rest * 1000))))
    if left[0] <= 0:
        _say(note=f"more than {MOST_EVENTS} events: it was ended after {seconds - rest:.1f} s")
    for table, kind in kinds.items():
        if kind in _HASHES | _ARRAYS and table != b"joblens_job":
            _tell_table(program[table], table.decode(), kind)


def _looking_alone(bpf: Any) -> Any:
    """bcc's class, which attaches each function by its name: names that macros make are known to nobody before."""

    def refuse(*_: Any, fn_name: bytes = b"", **__: Any) -> None:
        name = fn_name.decode(errors="replace")
        raise RuntimeError(f"{name} is a return probe, or does more than look: none is taken")

    return type("Program", (bpf,), dict.fromkeys(("attach_kretprobe", "attach_kretfunc", "attach_lsm"), refuse))


def _tables(bcc: Any, program: Any) -> Iterable[tuple[bytes, int]]:
    library = bcc.libbcc.lib
    library.bpf_table_name.restype = ctypes.c_char_p
    for number in range(library.bpf_num_tables(program.module)):
        yield library.bpf_table_name(program.module, number), library.bpf_table_type_id(program.module, number)


def _teller(table: Any, name: str, left: list[int]) -> Callable[[int, Any, int], None]:
    def tell(cpu: int, data: Any, size: int) -> None:
        left[0] -= 1
        if left[0] >= 0:
            _say(event=name, fields=plain(table.event(data)))

    return tell


def _tell_table(table: Any, name: str, kind: int) -> None:
    rows = [(plain(key), plain(table.sum(key) if kind in _PER_CPU else value)) for key, value in table.items()]
    is_log2 = kind in _ARRAYS and len(rows) in _LOG2_ROWS and all(isinstance(value, int) for _, value in rows)
    if kind in _ARRAYS:
        rows = [row for row in rows if row[1] not in (0, None)]
    if not is_log2:
        rows.sort(key=lambda row: row[1] if isinstance(row[1], (int, float)) else 0, reverse=True)
    _say(table=name, log2=is_log2, rows=rows[:MOST_ROWS], left_out=max(0, len(rows) - MOST_ROWS))


def plain(value: Any) -> Any:
    """A value of C as one of JSON: texts end at their first NUL."""
    if isinstance(value, bytes):
        return value.split(b"\0")[0].decode("utf-8", "backslashreplace")
    if isinstance(value, ctypes.Structure):
        return {each[0]: plain(getattr(value, each[0])) for each in value._fields_ if not each[0].startswith("__pad")}
    if isinstance(value, ctypes.Array):
        return plain(bytes(value)) if value._type_ is ctypes.c_char else [plain(each) for each in value]
    return plain(value.value) if hasattr(value, "value") else value


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    # The kernel takes all of it away. bcc's own end prints a traceback where there was BPF_PERF_OUTPUT.
    os._exit(main(sys.argv[1:]))
