"""What a child that has become a job's owner does for the reader of samples: tells mappings, and opens files.

It serves until its socket is closed. A file on a dead mount never opens. So an alarm, which begins with each
question, ends the child, and the reader goes on without that file.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import stat
from typing import Any

from condor_joblens.common import descriptors
from condor_joblens.profiling.process import Mapping, Process

REQUEST = b'{"programs":true}'
"""By which joblensd tells a child that has become a job's owner that it is to serve (look.py)."""

ANSWER_SECONDS = 10.0
MOST_REQUEST = 1000
MOST_ANSWER = 150_000
MAPPINGS_AT_ONCE = 25
"""In one packet, with paths of up to 4096 bytes, each of which can be six characters of JSON."""


def serve(channel: socket.socket) -> None:
    """Answers until the socket is closed."""
    last: Process | None = None
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        packet, _ = descriptors.receive(channel, MOST_REQUEST, 0)
        if not packet:
            return
        signal.setitimer(signal.ITIMER_REAL, ANSWER_SECONDS)
        request = json.loads(packet)
        if "maps" in request:
            last = Process(int(request["maps"]))
            _tell_mappings(channel, last)
        elif last is not None:
            _open_file(channel, last, int(request["open"]))


def _tell_mappings(channel: socket.socket, process: Process) -> None:
    found = [mapping for mapping in process.mappings if mapping.is_code]
    for at in range(0, max(1, len(found)), MAPPINGS_AT_ONCE):
        part = found[at : at + MAPPINGS_AT_ONCE]
        told = [[each.start, each.end, each.offset, os.makedev(*each.device), each.inode, each.path] for each in part]
        _answer(channel, {"mappings": told, "more": at + MAPPINGS_AT_ONCE < len(found)})


def _open_file(channel: socket.socket, process: Process, address: int) -> None:
    """The file behind the mapping at an address: by its path in the process's root, or as the process's program."""
    mapping = process.mapping_at(address)
    paths = () if mapping is None else (process.root + mapping.path, process.root.removesuffix("root") + "exe")
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            file = open_plain(path)
            try:
                if mapping is not None and is_behind(file, mapping):
                    _answer(channel, {"opened": address}, [file])
                    return
            finally:
                os.close(file)
    _answer(channel, {"opened": address})


def _answer(channel: socket.socket, answer: dict[str, Any], given: list[int] | None = None) -> None:
    descriptors.send(channel, json.dumps(answer, separators=(",", ":")).encode("ascii"), given or [])


def open_plain(path: str) -> int:
    """A descriptor to read a plain file; a device or a FIFO in its place is not opened at all. Raises OSError."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError("no plain file")
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)


def is_behind(file: int, mapping: Mapping) -> bool:
    """Whether this is the file of a mapping, compared as the kernel shows mappings.

    With layers of file systems, stat(2) says something else.
    """
    with mmap.mmap(file, 1, prot=mmap.PROT_READ) as memory:
        ours = Process(os.getpid()).mapping_at(_address_of(memory))
    return ours is not None and (ours.device, ours.inode) == (mapping.device, mapping.inode)


def _address_of(memory: mmap.mmap) -> int:
    import numpy as np

    array = np.frombuffer(memory, "u1")
    address = int(array.ctypes.data)
    del array
    return address
