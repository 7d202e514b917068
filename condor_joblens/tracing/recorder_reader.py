"""Makes words of what the flight recorder has kept of a job: `python -m condor_joblens.tracing.recorder_reader`.

A process without any right, for one copy of a job's rings, or for the rings of its Pythons (python_ring.py). Its
descriptor 0 is a socket, over which comes a file with the copy, or those rings. What is in it is the job's, so it is
taken apart here: secrets go, and the rest is escaped. It answers with the bytes of the artifact
(profiles/last_events.py, profiles/traced_calls.py): first how many there are, then all of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from condor_joblens.common import descriptors, own_process, privilege, seccomp
from condor_joblens.common.redact import Redactor, printable
from condor_joblens.common.system_calls import numbers
from condor_joblens.profiles import last_events
from condor_joblens.profiles.last_events import Coverage, Event
from condor_joblens.profiling import demangle
from condor_joblens.tracer import map_layout
from condor_joblens.tracer._bpf import lib
from condor_joblens.tracing import python_ring

MODULE = "condor_joblens.tracing.recorder_reader"

HEAD_BYTES = 4096
"""Of a copy: JSON, filled up with spaces. Behind it are the records, map_layout.RECORDED."""

MOST_BYTES = 65 << 20
PIECE = 60_000
CALLS = b"calls"
"""The begin of a packet with rings of calls of Pythons (python_ring.py); JSON follows, python_ring.About.

The first descriptor is of what is known of rings that are over, which may be nothing."""

MOST_RINGS = 16
LOOK_SECONDS = 2.0
"""CPU time for secrets in texts: what is left then is not shown."""

CPU_SECONDS = 20
_MEMORY_BYTES = 1 << 30

_CALLS = (
    *seccomp.INTERPRETERS,
    "fstat", "getsockopt", "newfstatat", "poll", "ppoll", "pread64", "recvmsg", "sendmsg", "sendto", "gettid",
    "sched_yield",
)  # fmt: skip

_CALL_NAMES = {number: name for name, number in numbers().items()}
_WHAT = {
    int(lib.RECORDED_FAILED): "failed",
    int(lib.RECORDED_EXEC): "exec",
    int(lib.RECORDED_EXIT): "exit",
    int(lib.RECORDED_SIGNAL): "signal",
    int(lib.RECORDED_OPEN): "open",
    int(lib.RECORDED_FORK): "fork",
    int(lib.RECORDED_CONNECT): "connect",
    int(lib.RECORDED_REFUSED): "refused",
    int(lib.RECORDED_CALL): "call",
    int(lib.RECORDED_RETURN): "return",
    int(lib.RECORDED_COMMAND): "command",
    int(lib.RECORDED_THROW): "throw",
}
_UNREAD = "(not resident)"
_TYPE_NAME = "_ZTS"
"""Before the mangled name of a type: so it is the name of its type_info's name."""


def main() -> int:
    """Serves one copy; exit code 0."""
    own_process.ignore_signals()
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    channel = socket.socket(fileno=0)
    for limit, value in (
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_FSIZE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))
    asked, given = descriptors.receive(channel, PIECE, MOST_RINGS)
    demangle.warm_up()
    confine()
    if asked.startswith(CALLS):
        known, *rings = [os.pread(each, python_ring.RING_BYTES, 0) for each in given]
        made = python_ring.read(rings, python_ring.About(**json.loads(asked[len(CALLS) :])), known)
    else:
        made = made_of(os.pread(given[0], MOST_BYTES, 0))
    channel.send(b"%d" % len(made))
    for at in range(0, len(made), PIECE):
        channel.send(made[at : at + PIECE])
    return 0


def confine() -> None:
    """This process opens, starts and signals nothing any more. For good."""
    privilege.no_new_privileges()
    seccomp.allow_only(_CALLS)


def head_of(told: dict[str, Any]) -> bytes:
    """The head of a copy. Raises ValueError if it is too long."""
    head = json.dumps(told).encode()
    if len(head) > HEAD_BYTES:  # texts of exceptions that are all but ASCII
        head = json.dumps({**told, "raised": []}).encode()
    if len(head) > HEAD_BYTES:
        raise ValueError("too much is to be said of a copy")
    return head.ljust(HEAD_BYTES)


def made_of(copy: bytes) -> bytes:
    """The artifact of a copy."""
    told = json.loads(copy[:HEAD_BYTES])
    usable = (len(copy) - HEAD_BYTES) // map_layout.RECORDED.itemsize
    records: np.ndarray = np.frombuffer(copy, map_layout.RECORDED, usable, HEAD_BYTES)
    coverage = Coverage(**told["coverage"])
    events = events_of(records, float(told["epoch"]), Redactor(LOOK_SECONDS))
    return last_events.encode(coverage, with_raised(events, told.get("raised", ())))


def with_raised(events: list[Event], raised: Iterable[Any]) -> list[Event]:
    """Exceptions that processes have told of themselves, each a time, a process and words, among the other events."""
    programs = {event.pid: event.program for event in events if event.pid}
    told = [
        Event(round(float(when), 6), int(pid), programs.get(int(pid), ""), "raised", "", "", str(words))
        for when, pid, words in raised
    ]
    return sorted([*events, *told], key=lambda event: event.time)


def events_of(records: Iterable[Any], epoch: float, redactor: Redactor) -> list[Event]:
    """`records` (map_layout.RECORDED) in words; `epoch` is the time, in epoch seconds, at which CLOCK_MONOTONIC was 0.

    What is about the same as before costs no second look.
    """
    known: dict[tuple[int, bytes, bool], str] = {}
    found: list[Event] = []
    exits: set[tuple[int, int]] = set()
    for record in records:
        kind, subject, size = int(record["kind"]), int(record["subject"]), int(record["text_bytes"])
        what = _WHAT.get(kind)
        if what is None:
            continue
        if what == "exit":  # several of its last threads may have told of it
            end = int(record["pid"]) or -int(record["thread"]), int(record["value"])
            if end in exits:
                continue
            exits.add(end)
        raw = bytes(record["text"]).ljust(size, b"\0")[:size]
        is_cut = size >= lib.RECORDED_TEXT_BYTES - 1
        if (subject, raw, is_cut) not in known:
            known[subject, raw, is_cut] = _about(subject, raw, is_cut, redactor)
        about = known[subject, raw, is_cut]
        result = _result(what, int(record["value"]), int(record["other"]), about)
        if what == "throw":
            about, result = _thrown(raw, redactor)
        found.append(
            Event(
                round(epoch + float(record["time_ns"]) * 1e-9, 6),
                int(record["pid"]),
                _line(redactor, bytes(record["program"])),
                what,
                _CALL_NAMES.get(int(record["other"]), "") if what == "failed" else "",
                result,
                "" if what == "signal" else about,
            )
        )
    return found


def _line(redactor: Redactor, text: bytes, is_cut: bool = False) -> str:
    return redactor.line(text, is_cut) if text else ""


def _about(subject: int, raw: bytes, is_cut: bool, redactor: Redactor) -> str:
    if subject == lib.RECORDED_UNREAD:
        return _UNREAD
    if subject == lib.RECORDED_ADDRESS:
        return address(raw)
    if subject in (lib.RECORDED_PATH, lib.RECORDED_FILE, lib.RECORDED_ARGUMENTS, lib.RECORDED_NAME):
        return _line(redactor, raw.rstrip(b"\0"), is_cut)
    return ""


def _thrown(raw: bytes, redactor: Redactor) -> tuple[str, str]:
    """The type of an exception of C++, and what it says."""
    width = lib.RECORDED_TYPE_BYTES
    mangled, said = (part.partition(b"\0")[0] for part in (raw[:width], raw[width:]))
    name = demangle.demangled(_TYPE_NAME + mangled.decode("ascii", "replace")).removeprefix("typeinfo name for ")
    kind = printable(name.removeprefix(_TYPE_NAME))
    return kind, _line(redactor, said, len(said) >= lib.RECORDED_TEXT_BYTES - width - 1)


def address(raw: bytes) -> str:
    """A struct sockaddr: `192.0.2.1:443`, `[2001:db8::1]:443`; of any other what it is."""
    family, port = int.from_bytes(raw[:2], sys.byteorder), int.from_bytes(raw[2:4], "big")
    if family == socket.AF_INET and len(raw) >= 8:
        return f"{socket.inet_ntop(family, raw[4:8])}:{port}"
    if family == socket.AF_INET6 and len(raw) >= 24:
        return f"[{socket.inet_ntop(family, raw[8:24])}]:{port}"
    # of its path no more than a beginning has been kept
    return "a unix socket" if family == socket.AF_UNIX else f"an address of family {family}"


def _result(what: str, value: int, other: int, about: str) -> str:
    results: dict[str, Callable[[], str]] = {
        "failed": lambda: errno.errorcode.get(value, f"error {value}"),
        "refused": lambda: errno.errorcode.get(value, f"error {value}"),
        "exit": lambda: ended(value),
        "signal": lambda: _signal(value) + (f" from {about} ({other})" if about else ""),
        "open": lambda: f"descriptor {value}",
        "fork": lambda: f"process {value}",
        "command": lambda: f"line {value}" + (f", after status {other}" if other else ""),
    }
    return results.get(what, str)()


def ended(code: int) -> str:
    """How a process ended, of its status as wait(2) has it: `status 3`, `SIGSEGV, core dumped`."""
    number = code & 0x7F
    if not number:
        return f"status {code >> 8 & 0xFF}"
    return _signal(number) + (", core dumped" if code & 0x80 else "")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


if __name__ == "__main__":
    sys.exit(main())
