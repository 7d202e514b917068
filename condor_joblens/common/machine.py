"""A machine's load, memory, disk and pressure, as everybody on it can see them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any

from condor_joblens import __version__

_MEMORY = {"MemTotal": "MemoryBytes", "MemAvailable": "MemoryAvailableBytes"}
_PRESSURE = {"cpu": "CpuPressure", "memory": "MemoryPressure", "io": "IoPressure"}
_SOME = re.compile(r"some avg10=([0-9]{1,3}\.[0-9]{2}) ")


def machine() -> dict[str, Any]:
    """What it is and how it does now: bytes, seconds, cores, and pressures in percent, as names say."""
    system = os.uname()
    load = (_read("/proc/loadavg").split() or ["0"])[0]
    return {
        "Kernel": f"{system.release} {system.machine}",
        "JobLens": __version__,
        "UptimeSeconds": int(time.clock_gettime(time.CLOCK_BOOTTIME)),
        "Cpus": os.cpu_count() or 0,
        "Load": _number(load),
        **_memory(_read("/proc/meminfo")),
        **{name: _pressure(_read(f"/proc/pressure/{kind}")) for kind, name in _PRESSURE.items()},
    }


def disk(name: str, folder: str | int) -> dict[str, int]:
    """NAMEBytes and NAMEFreeBytes of a folder's file system; a path or a descriptor. Raises OSError."""
    found = os.statvfs(folder)
    return {f"{name}Bytes": found.f_blocks * found.f_frsize, f"{name}FreeBytes": found.f_bavail * found.f_frsize}


def _memory(text: str) -> dict[str, int]:
    found = dict.fromkeys(_MEMORY.values(), 0)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in _MEMORY:
            with contextlib.suppress(ValueError, IndexError):
                found[_MEMORY[name]] = int(value.split()[0]) * 1024
    return found


def _pressure(text: str) -> float:
    """Percent of the last 10 seconds in which something waited; -1 if this kernel does not tell."""
    found = _SOME.match(text)
    return float(found[1]) if found else -1.0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
