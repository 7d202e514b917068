"""Which cgroups are made, removed, filled and emptied, as inotify reports it: for the tracer without BPF."""

from __future__ import annotations

import ctypes
import os
import struct

# include/uapi/linux/inotify.h
_IN_CLOEXEC, _IN_NONBLOCK = 0o2000000, 0o4000
_IN_MODIFY, _IN_MOVED_FROM, _IN_CREATE, _IN_DELETE = 0x2, 0x40, 0x100, 0x200
_IN_IGNORED, _IN_ISDIR = 0x8000, 0x40000000
_HEADER = struct.Struct("iIII")  # watch, what happened, cookie, length of the name

POPULATION = "cgroup.events"
"""Changes when a cgroup of version 2 gets its first process or loses its last one."""

_libc = ctypes.CDLL(None, use_errno=True)


class CgroupInotify:
    """One inotify instance that watches base folders for new cgroups, and cgroups for their population."""

    def __init__(self) -> None:
        """Raises OSError where the user's inotify instances are used up."""
        self._descriptor = _libc.inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._bases: dict[int, str] = {}
        self._populations: dict[int, str] = {}

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return int(self._descriptor)

    def watch(self, base: str) -> None:
        """Folders that are made or removed directly below `base` are told from now on."""
        watch = self._add(base, _IN_CREATE | _IN_DELETE | _IN_MOVED_FROM)
        if watch is not None:
            self._bases[watch] = base

    def watch_population(self, path: str) -> None:
        """It is told when the cgroup at `path` gets its first process or loses its last; not of version 1."""
        watch = self._add(os.path.join(path, POPULATION), _IN_MODIFY)
        if watch is not None:
            self._populations[watch] = path

    def forget(self, path: str) -> None:
        """Nothing more is told of the population of the cgroup at `path`."""
        for watch in [watch for watch, known in self._populations.items() if known == path]:
            del self._populations[watch]
            _libc.inotify_rm_watch(self._descriptor, watch)

    def _add(self, path: str, mask: int) -> int | None:
        watch = int(_libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask))
        return None if watch < 0 else watch

    def take(self) -> tuple[list[str], list[str], list[str]]:
        """Cgroups that were made, removed, and whose population changed, since the last call."""
        made: list[str] = []
        gone: list[str] = []
        changed: dict[str, None] = {}
        try:
            events = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            events = b""
        position = 0
        while position < len(events):
            watch, what, _, length = _HEADER.unpack_from(events, position)
            position += _HEADER.size
            name = events[position : position + length].rstrip(b"\0")
            position += length
            if what & _IN_IGNORED:
                self._populations.pop(watch, None)
            elif watch in self._populations:
                changed[self._populations[watch]] = None
            elif watch in self._bases and what & _IN_ISDIR:
                path = os.path.join(self._bases[watch], os.fsdecode(name))
                (made if what & _IN_CREATE else gone).append(path)
        return made, gone, list(changed)

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._descriptor)
