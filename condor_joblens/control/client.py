"""Asks joblensd over its control socket, and waits for the answer."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from condor_joblens.common.errors import JobLensError, Refusal, UsageError, printable
from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError, Words
from condor_joblens.control.verbs import REFUSED, VERBS, Refused, understand

PATIENCE = 10.0
"""Seconds to wait for an answer: joblensd takes its time if many ask."""


class Lost(JobLensError):
    """The connection has ended before the answer: what was asked for may have been done."""


class Silent(Lost):
    """No answer has come in time: what was asked for may be done yet."""


@dataclass(frozen=True)
class Server:
    """Who answers at a socket, in words for people."""

    refuses: str
    is_it_there: str
    has_ended: str  # the answer, before its time


JOBLENSD = Server(
    "joblensd refuses",
    "is joblensd running on this node? `joblens doctor` tells",
    "joblensd has ended the stream: it was restarted, or what it sends was not read fast enough",
)
RELAY = Server(
    "this was said on the way, and nobody has signed it",
    "is joblens-relay running on this access point?",
    "joblens-relay of this access point has ended the connection: it was restarted, or has too many",
)
ELSEWHERE = Server(
    "this was said on the way, and nobody has signed it",
    "the connection to JOBLENS_RELAY_SERVER is gone: try again",
    "the connection to JOBLENS_RELAY_SERVER was lost: try again",
)
HUB = Server(
    "the relay server refuses",
    "does `joblens-hub relay` run on this machine, with --entries?",
    "the relay server has ended the connection: it was restarted, or has too many",
)

Value = Union[str, bytes]
"""Of an argument: text, or bytes as they are."""


def ask(path: str, verb: str, arguments: Mapping[str, str], patience: float = PATIENCE) -> dict[str, str]:
    """The fields of joblensd's answer, fit to print. Raises JobLensError if it refuses.

    Lost is raised if nobody knows whether it was done.
    In version 1, which any joblensd understands: a request has 4096 bytes at most, and of an answer 512 arrive.
    """
    check(verb, arguments)
    packet = frames.encode_packet(verb, _values(arguments), frames.MAX_REQUEST_1 + 1)
    if len(packet) > frames.MAX_REQUEST_1:
        raise JobLensError(f"a request has at most {frames.MAX_REQUEST_1} bytes: write less")
    with _connected(path, patience) as connection:
        connection.send(packet)
        answer = connection.recv(frames.MAX_ANSWER_1)
    if not answer:
        raise Lost("joblensd has ended the connection before its answer: it was restarted, and may have done this")
    return granted(verb, read_answer(answer))


def stream(
    path: str,
    verb: str,
    arguments: Mapping[str, Value],
    patience: float = PATIENCE,
    server: Server = JOBLENSD,
    silence: float | None = None,
    grants: str = "",
) -> Generator[bytes, None, None]:
    """The DATA messages of an answer as they come, until it ends; `patience` is for the first one, in seconds.

    `grants` is the word that ends it well, if the verb is none of joblensd's.
    `silence` is for each after it; None: it lives, and when there is more to say is for the verb to know.

    Raises JobLensError if joblensd refuses, Silent if it does not answer, and Lost if it ends it before its time.
    Whoever stops iterating and closes the generator cancels the request.
    """
    if server is JOBLENSD:
        check(verb, arguments)
    assembler = frames.Assembler(frames.DATA + frames.END, frames.MAX_ANSWER)
    request = frames.encode_words(verb, _values(arguments))
    if len(request) > frames.MAX_REQUEST:
        raise JobLensError(f"a request has at most {frames.MAX_REQUEST} bytes: write less")
    with _connected(path, patience, server) as connection:
        for packet in frames.frames(frames.REQUEST, request):
            connection.send(packet)
        while packet := connection.recv(frames.MAX_PACKET + 1):
            connection.settimeout(silence)
            message = _assembled(assembler, packet)
            if message is not None and message[0] == frames.DATA:
                yield message[1]
            elif message is not None:
                granted(verb, _words(message[1]), server, grants)
                return
    raise Lost(server.has_ended)


def granted(verb: str, words: Words, server: Server = JOBLENSD, grants: str = "") -> dict[str, str]:
    """The fields of an answer that grants, fit to print. Raises Refusal, or JobLensError if it makes no sense."""
    fields = {name: printable(value.decode("utf-8", "replace"), 1000) for name, value in words.fields.items()}
    if words.word == (grants or VERBS[verb].granted):
        return fields
    if words.word != REFUSED:
        raise JobLensError(f"{server.refuses}: its answer makes no sense")
    raise Refusal(f"{server.refuses}: {fields.get('reason', 'it does not say why')}")


def read_answer(packet: bytes) -> Words:
    """The answer in a packet of version 1. Raises JobLensError."""
    try:
        return frames.decode_packet(packet)
    except FrameError:
        raise _other_protocol() from None


def _assembled(assembler: frames.Assembler, packet: bytes) -> tuple[bytes, bytes] | None:
    if packet.startswith(frames.VERSION_1 + b"\0"):
        # joblensd 0.1 refuses in the only protocol that it knows
        raise JobLensError("joblensd is older than this command: run joblens restart")
    try:
        return assembler.add(packet)
    except FrameError:
        raise _other_protocol() from None


def _words(message: bytes) -> Words:
    try:
        return frames.decode_words(message)
    except FrameError:
        raise _other_protocol() from None


def _other_protocol() -> JobLensError:
    return JobLensError("joblensd answers in another protocol: install the same version of both")


def check(verb: str, arguments: Mapping[str, Value]) -> None:
    """Raises UsageError for arguments of which nobody has to be asked: no joblensd takes them."""
    try:
        understand(Words(verb, _values(arguments)), 0, 0, 2)
    except Refused as refused:
        raise UsageError(printable(str(refused), 300)) from None


def _values(arguments: Mapping[str, Value]) -> dict[str, bytes]:
    return {
        name: value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        for name, value in arguments.items()
    }


@contextlib.contextmanager
def _connected(path: str, patience: float, server: Server = JOBLENSD) -> Iterator[socket.socket]:
    """A connection to the socket. Raises JobLensError if it can't be had, Silent if reading or writing fails within."""
    kind: type[JobLensError] = JobLensError
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            kind = Silent
            yield connection
    except OSError as error:
        why = error.strerror or f"no answer within {patience:g} s"
        raise kind(f"{path}: {why}; {server.is_it_there}") from None
