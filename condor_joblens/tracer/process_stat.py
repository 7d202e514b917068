"""What /proc tells of a process, where the kernel may not count for us.

If a process ends between two looks, only what was seen last is known. The processor time of all processes is exact none
the less, from the cgroup. Numbers of other users' processes are read as their owner (owner_files/), and not with
CAP_SYS_PTRACE, with which more than numbers could be read.
"""

from __future__ import annotations

import contextlib
import os

import psutil

from condor_joblens.owner_files.operations import OwnerFiles

PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGES_A_KILOBYTE = 1024 / PAGE

TOTALS = (
    *("call_read_bytes", "call_write_bytes", "read_calls", "write_calls", "storage_read_bytes", "storage_write_bytes"),
    *("minor_faults", "major_faults"),
)
"""Fields of map_layout.LIVING that grow as long as a process lives, and stay when it has ended."""

PRESENT = ("processes", "threads", "runnable", "uninterruptible", "anon_pages", "file_pages", "swap_pages")
"""Those that tell of now."""

FIELDS = (*TOTALS, *PRESENT, "peak_pages")
"""What is known of a process, in the order of its numbers."""

_IO = (b"rchar", b"wchar", b"syscr", b"syscw", b"read_bytes", b"write_bytes")
_PAGES = {
    b"RssAnon": "anon_pages", b"RssFile": "file_pages", b"RssShmem": "file_pages", b"VmSwap": "swap_pages",
    b"VmHWM": "peak_pages",
}  # fmt: skip
_MINOR, _MAJOR, _THREADS, _START = 7, 9, 17, 19  # fields of /proc/PID/stat, from its state on
_AT = {field: position for position, field in enumerate(FIELDS)}


class Process:
    """A process of the machine whose /proc is below `psutil.PROCFS_PATH`."""

    def __init__(self, pid: int, files: OwnerFiles) -> None:
        """Raises psutil.Error where it is gone."""
        self._files = files
        self._process = psutil.Process(pid)
        self._folder = os.path.join(psutil.PROCFS_PATH, str(pid))
        self.begun = float(self._process.create_time())
        self._start = self._stat()[_START]

    def look(self) -> list[int] | None:
        """Its numbers, those of FIELDS; None where another process has its id by now.

        What may not be read is 0; of a zombie only the faults are known. Raises psutil.Error where it is gone.
        """
        stat = self._stat()
        if stat[_START] != self._start:
            return None
        numbers = [0] * len(FIELDS)
        numbers[_AT["minor_faults"]], numbers[_AT["major_faults"]] = int(stat[_MINOR]), int(stat[_MAJOR])
        with self._process.oneshot():
            status = self._process.status()
            if status == psutil.STATUS_ZOMBIE:
                return numbers
            numbers[_AT["processes"]], numbers[_AT["threads"]] = 1, int(stat[_THREADS])
        numbers[_AT["runnable"]] = int(status == psutil.STATUS_RUNNING)
        numbers[_AT["uninterruptible"]] = int(status == psutil.STATUS_DISK_SLEEP)
        with contextlib.suppress(OSError, ValueError, KeyError):
            counters = dict(line.split(b": ") for line in self._files.process_io(self._process.pid).splitlines())
            numbers[: len(_IO)] = [int(counters[name]) for name in _IO]
        self._memory(numbers)
        return numbers

    def _stat(self) -> list[bytes]:
        try:
            # the name in parentheses may hold anything, also parentheses
            return self._read("stat").rpartition(b")")[2].split()
        except OSError:
            raise psutil.NoSuchProcess(self._process.pid) from None

    def _memory(self, numbers: list[int]) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._read("status").split(b"\n"):  # its name may have any other end of a line in it
                name, _, value = line.partition(b":")
                if name in _PAGES:
                    numbers[_AT[_PAGES[name]]] += int(int(value[:-3]) * _PAGES_A_KILOBYTE)

    def _read(self, name: str) -> bytes:
        descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 8192)
        finally:
            os.close(descriptor)
