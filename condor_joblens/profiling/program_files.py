"""What a child that has become a job's owner does for the reader of samples, and for traces.

It tells mappings, opens files, and looks up what was thrown (thrown.py).

It serves until its socket is closed. A file on a dead mount never opens. So an alarm, which begins with each
question and with each file, ends the child, and the reader goes on without that file.
"""

from __future__ import annotations

import base64
import contextlib
import json
import mmap
import os
import signal
import socket
import stat
from typing import Any

from condor_joblens.common import descriptors
from condor_joblens.common.pace import Pace
from condor_joblens.profiling import debug_files, python, users_mounts
from condor_joblens.profiling._eh_frame import ffi
from condor_joblens.profiling.process import Mapping, Process, both_ends
from condor_joblens.profiling.python import NO_NAME, Interpreter
from condor_joblens.profiling.reader_messages import MOST_MAPPINGS
from condor_joblens.profiling.symbols import Files, paths_of
from condor_joblens.profiling.thrown import Exceptions

REQUEST = b'{"programs":true}'
"""By which joblensd tells a child that has become a job's owner that it is to serve (look.py)."""

ANSWER_SECONDS = 10.0
MOST_REQUEST = 24_000
"""A stack of 12 kB is in that of an exception."""

MOST_ANSWER = 150_000
MOST_FILES = 2
"""Descriptors in an answer: of a program's file, and of the one that has its symbols."""

OPEN_AT_ONCE = 32
"""Files that are asked for in one packet, in the order in which they are answered. The kernel bounds how many
descriptors of a user are on their way. With those of symbols this is a quarter of what the child may have."""

MAPPINGS_AT_ONCE = 25
"""In one packet, with paths of up to 4096 bytes, each of which can be six characters of JSON."""


MOST_LINE_TABLE = 30_000
"""Bytes of a code object's line table that are told; a function with more has no lines."""

AGAIN_AT_ONCE, AGAIN_A_SECOND = 50, 1.0
"""How often a job's mappings are read anew, if its functions are where nothing was known: in a row, and from then on.
A job can have a hundred thousand mappings, and functions that are gone at once."""

MOST_PYTHONS = 100
"""Processes with a Python whose memory can be asked for, the latest."""


def serve(channel: socket.socket) -> None:
    """Answers until the socket is closed."""
    last: Process | None = None
    pythons, exceptions = Pythons(), Exceptions()
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
        elif "thrown" in request:
            _answer(channel, exceptions.answer(request))
        elif "prepare" in request:
            _answer(channel, exceptions.prepare(int(request["prepare"])))
        elif "codes" in request:
            codes = [(int(address), int(identity)) for address, identity in request["codes"]]
            pythons.tell_codes(channel, int(request["of"]), codes)
        elif "python" in request:
            # another question about the same one comes if it has read its program by then: its mappings are read anew
            process, last = last, None
            pid = int(request["python"])
            pythons.tell(channel, process if process is not None and process.pid == pid else Process(pid))
        elif last is not None:
            for address in request["open"]:
                signal.setitimer(signal.ITIMER_REAL, ANSWER_SECONDS)
                _open_file(channel, last, int(address))


class Pythons:
    """Interpreters of Python in processes that were looked at."""

    def __init__(self) -> None:
        self._files = Files()
        self._found: dict[int, tuple[Process, Interpreter]] = {}
        self._again = Pace(AGAIN_AT_ONCE, AGAIN_A_SECOND)

    def tell(self, channel: socket.socket, process: Process) -> None:
        """Tells which Python is in the process, where it keeps what, and which code runs functions of Python.

        One that has just begun may not have read its own file so far: "later" says that it is worth another question.
        """
        interpreter = self._find(process)
        if interpreter is None:
            is_near = any("python" in each.path.rpartition("/")[2] for each in process.mappings if each.is_code)
            process.close()
            _answer(channel, {"python": None, "later": is_near})
            return
        code = interpreter.code
        mapping = process.mapping_at(code.start) if len(code) else None
        place = [0, 0, 0, 0]
        if mapping is not None:
            first = code.start - mapping.start + mapping.offset
            place = [os.makedev(*mapping.device), mapping.inode, first, first + len(code)]
        _answer(
            channel,
            {
                "python": [*interpreter.version],
                "layout": [*interpreter.layout],
                "head": interpreter.head,
                "runs": place,
            },
        )

    def tell_codes(self, channel: socket.socket, pid: int, codes: list[tuple[int, int]]) -> None:
        """Tells of code objects, each by its address and which one it was; a packet each, and of the last that it is.

        Empty texts: another one is there now.
        """
        if pid not in self._found:
            self._find(Process(pid))
        process, interpreter = self._found.get(pid, (None, None))
        may_look_again = True
        for asked in codes:
            code = interpreter.code_as(*asked) if interpreter is not None else None
            if process is not None and interpreter is not None and may_look_again and code in (None, NO_NAME):
                may_look_again = False
                if self._again.may(""):
                    process.forget_mappings()  # it may lie in memory that came later
                    code = interpreter.code_as(*asked)
            told: list[Any] = []
            if code is not None:
                table = code.line_table if len(code.line_table) <= MOST_LINE_TABLE else b""
                told = [code.name, code.file, base64.b64encode(table).decode("ascii"), code.first_line, code.size]
            _answer(channel, {"code": asked, "told": told, "more": asked != codes[-1]})

    def _find(self, process: Process) -> Interpreter | None:
        """The interpreter in a process, whose memory stays open."""
        found = python.find(process, self._files)
        self._forget(process.pid)
        if not found:
            return None
        while len(self._found) >= MOST_PYTHONS:
            self._forget(next(iter(self._found)))
        self._found[process.pid] = process, found[0]
        return found[0]

    def _forget(self, pid: int) -> None:
        known = self._found.pop(pid, None)
        if known is not None:
            known[0].close()


def _tell_mappings(channel: socket.socket, process: Process) -> None:
    found = both_ends([mapping for mapping in process.mappings if mapping.is_code], MOST_MAPPINGS)
    for at in range(0, max(1, len(found)), MAPPINGS_AT_ONCE):
        part = found[at : at + MAPPINGS_AT_ONCE]
        told = [[each.start, each.end, each.offset, os.makedev(*each.device), each.inode, each.path] for each in part]
        _answer(channel, {"mappings": told, "more": at + MAPPINGS_AT_ONCE < len(found)})


def _open_file(channel: socket.socket, process: Process, address: int) -> None:
    """The file behind the mapping at an address, if it can be had, and the job's user can't keep its reader waiting."""
    mapping = process.mapping_at(address)
    for path in () if mapping is None else paths_of(process, mapping):
        with contextlib.suppress(OSError, ValueError):
            file = open_plain(path)
            try:
                if mapping is not None and is_behind(file, mapping) and not users_mounts.is_users(file):
                    _hand_over(channel, address, file)
                    return
            finally:
                os.close(file)
    _answer(channel, {"opened": address})


def _hand_over(channel: socket.socket, address: int, file: int) -> None:
    """The file, and behind it the one that has its symbols, if there is one."""
    symbols = debug_files.opened(file)
    try:
        _answer(channel, {"opened": address}, [file] if symbols is None else [file, symbols])
    finally:
        if symbols is not None:
            os.close(symbols)


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
    """Whether this is the file of a mapping, compared as the kernel shows mappings if stat(2) does not say it."""
    if mapping.is_told_by(os.fstat(file)):
        return True
    with mmap.mmap(file, 1, prot=mmap.PROT_READ) as memory:
        ours = Process(os.getpid()).mapping_from(_address_of(memory))
    return ours is not None and (ours.device, ours.inode) == (mapping.device, mapping.inode)


def _address_of(memory: mmap.mmap) -> int:
    with ffi.from_buffer(memory) as content:
        return int(ffi.cast("uintptr_t", content))
