"""Reads one file of a job in a process of its own, which has no right and is ended if it takes too long.

What it says of a file can only harm who made that file: another one is read by another process. That matters, because
a probe within an instruction breaks the program, and a set-user-id program may have the same library.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from condor_joblens.common import descriptors, privilege, seccomp
from condor_joblens.common.errors import JobLensError
from condor_joblens.model import trace_spec as specs
from condor_joblens.profiling import demangle
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.tracing import shell_file
from condor_joblens.tracing.answers import deadline, wait_for
from condor_joblens.tracing.exits import ENTRY, JUMP, LEAVE, RETURN, Place
from condor_joblens.tracing.functions import MOST_FUNCTIONS, MOST_PLACES, Found, Function, find

SECONDS = 20.0
"""For so long a file is read."""

MOST_ANSWER = 4 << 20
MOST_NAME = 1000
_PACKET = 60_000
_MEMORY_BYTES = 1 << 30
_MOST_DISTANCE = 1 << 31
_KINDS = frozenset({ENTRY, RETURN, LEAVE, JUMP, shell_file.COMMAND, shell_file.SHELL_END})
_CALLS = (*seccomp.INTERPRETERS, "fstat", "gettid", "newfstatat", "sendmsg", "sendto")


def read(file: int, spec: str, meanwhile: Callable[[], None] | None = None) -> Found:
    """What `spec` means in the file that is open. Raises JobLensError with what is wrong with it.

    `meanwhile` is called again and again while that takes its time.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            _answer(theirs, file, spec)
            code = 0
        finally:
            os._exit(code)
    theirs.close()
    try:
        return understood(_receive(ours, meanwhile))
    finally:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def warm_up() -> None:
    """Loads what is needed, before anything is given up."""
    import contextlib

    demangle.warm_up()
    with contextlib.suppress(ImportError):
        import capstone

        list(capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm(b"\xc3", 0))


def _answer(channel: socket.socket, file: int, spec: str) -> None:
    """In the process without rights. It keeps nothing of the trace but what it reads, and whom it tells."""
    kept = sorted((channel.fileno(), file))
    os.closerange(3, kept[0])
    os.closerange(kept[0] + 1, kept[1])
    os.closerange(kept[1] + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if kept[0] > 0:
        os.close(0)  # the trace's own channel
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(deadline(SECONDS)), int(deadline(SECONDS))))
    privilege.keep_only(())
    privilege.not_dumpable()
    seccomp.allow_only(_CALLS)
    try:
        meant = specs.parse(spec)
        told = _told(shell_file.find(Elf(file)) if meant.is_of_shell else find(Elf(file), meant))
    except (ElfError, OSError, ValueError) as error:
        told = {"error": f"can't be read: {error}"}
    except JobLensError as error:
        told = {"error": str(error)}
    text = json.dumps(told, separators=(",", ":")).encode()
    for at in range(0, len(text), _PACKET):
        descriptors.send(channel, text[at : at + _PACKET])


def _receive(channel: socket.socket, meanwhile: Callable[[], None] | None) -> dict[str, Any]:
    until, said = time.monotonic() + deadline(SECONDS), bytearray()
    while True:
        try:
            wait_for(channel, max(0.0, until - time.monotonic()), meanwhile)
        except TimeoutError:
            raise JobLensError("does not answer: it may be on a file server that is down") from None
        packet = channel.recv(_PACKET)
        said += packet
        if len(said) > MOST_ANSWER:
            raise JobLensError("has too much to say")
        if not packet:
            break
    try:
        told = json.loads(said)
    except (ValueError, RecursionError):
        raise JobLensError("can't be read") from None
    if not isinstance(told, dict):
        raise JobLensError("can't be read")
    return told


def _told(found: Found) -> dict[str, Any]:
    return {
        "functions": [
            [
                each.name[:MOST_NAME],
                each.offset,
                each.size,
                list(each.cold),
                [list(vars(place).values()) for place in each.places],
                each.is_entry_alone,
                list(each.variables),
            ]
            for each in found.functions
        ],
        "refused": [each[:MOST_NAME] for each in found.refused],
        "nearest": [each[:MOST_NAME] for each in found.nearest],
    }


def understood(told: Mapping[str, Any]) -> Found:
    """What a reader has said, if it makes sense; it may be in the hands of the file. Raises JobLensError."""
    if "error" in told:
        raise JobLensError(str(told["error"])[:MOST_NAME])
    try:
        functions = [_function(*each) for each in told["functions"]]
        refused, nearest = ([str(text)[:MOST_NAME] for text in told[key]] for key in ("refused", "nearest"))
    except (TypeError, ValueError, KeyError, OverflowError):
        raise JobLensError("can't be read") from None
    if len(functions) > MOST_FUNCTIONS:
        raise JobLensError("can't be read")
    return Found(functions, refused[:MOST_FUNCTIONS], nearest[:3])


def _function(
    name: str,
    offset: int,
    size: int,
    cold: list[int],
    places: list[list[Any]],
    is_entry_alone: bool,
    variables: Sequence[int] = (),
) -> Function:
    distance, length = cold
    if not 0 < len(places) <= MOST_PLACES:
        raise ValueError("probes")
    found = tuple(_place(*each) for each in places)
    return Function(
        str(name)[:MOST_NAME],
        _within(offset, 0, 1 << 62),
        _within(size, 1, _MOST_DISTANCE),
        (_within(distance, -_MOST_DISTANCE, _MOST_DISTANCE), _within(length, 0, _MOST_DISTANCE)),
        found,
        bool(is_entry_alone),
        tuple(_within(each, -_MOST_DISTANCE, _MOST_DISTANCE) for each in variables[: len(shell_file.VARIABLES)]),
    )


def _place(distance: int, kind: int, base: int, index: int, scale: int, is_memory: bool, displacement: int) -> Place:
    return Place(
        _within(distance, -_MOST_DISTANCE, _MOST_DISTANCE),
        _kind(kind),
        _within(base, 0, 256),
        _within(index, 0, 256),
        _within(scale, 0, 9),
        bool(is_memory),
        _within(displacement, -_MOST_DISTANCE, _MOST_DISTANCE),
    )


def _kind(value: int) -> int:
    if type(value) is not int or value not in _KINDS:
        raise ValueError("a number that makes no sense")
    return value


def _within(value: int, least: int, end: int) -> int:
    if type(value) is not int or not least <= value < end:
        raise ValueError("a number that makes no sense")
    return value
