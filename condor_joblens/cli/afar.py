"""Commands on a job that runs elsewhere: the access point's door vouches, its relay carries, the node seals.

Whoever is on another machine than the access point has a relay of his own (elsewhere.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping

from condor_joblens.cli import accesspoint, elsewhere, staff_warrants
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import client, door, sealed_client
from condor_joblens.control.verbs import VERBS

DOOR, RELAY = "/run/joblens-door.sock", "/run/joblens-relay.sock"
"""Where they are, unless JOBLENS_DOOR_SOCKET and JOBLENS_RELAY_SOCKET say otherwise."""

PROVE = "JOBLENS_PROVE"
"""The variable of the environment that is 1 if who asks is to prove himself by condor_qedit."""

PATIENCE = 30.0
"""Seconds for the first part of an answer, and for each other one but of _LONGER."""

_LONGER = {"evidence": 150.0, "trace": None}
"""The same for verbs that are silent meanwhile. None: nobody knows when there is something to say."""

MOST_BYTES = 4 << 20
"""Of what is kept whole here, if it comes from afar; commands/artifacts.py and agent/evidence.py send no more."""

_JOB = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,10})?|[\w.@:-]+#(?P<id>[0-9]{1,10}\.[0-9]{1,10})#[0-9]+", re.ASCII)
"""How a job is named on an access point: 12.0, 12, or a GlobalJobId, which has that."""


def asked(
    path: str, verb: str, arguments: Mapping[str, str], patience: float = client.PATIENCE, most: int | None = None
) -> Generator[bytes, None, dict[str, str]]:
    """The DATA messages of the answer: of the job on this node at `path`, or else from afar; returns its end's fields.

    `patience` is for the first one on this node, in seconds; `most` bytes are taken from afar. Raises JobLensError.
    """
    here = client.stream(path, verb, arguments, patience)
    try:
        first = next(here)
    except StopIteration:
        return {}
    except UsageError:
        raise
    except JobLensError as error:
        if _would_be_twice(verb, error):
            raise
        answer = from_afar(verb, arguments, error)
        return (yield from answer if most is None else _bounded(answer, most))
    yield first
    yield from here
    return {}


def kept_whole(
    path: str, verb: str, arguments: Mapping[str, str], patience: float = client.PATIENCE
) -> Generator[bytes, None, dict[str, str]]:
    """The same for an answer that its reader keeps whole: from afar, it has MOST_BYTES at most. Raises JobLensError."""
    return asked(path, verb, arguments, patience, MOST_BYTES)


def told(path: str, verb: str, arguments: Mapping[str, str]) -> dict[str, str]:
    """The same for a verb whose answer is its end alone. Raises JobLensError."""
    try:
        return client.ask(path, verb, arguments)
    except UsageError:
        raise
    except JobLensError as error:
        if _would_be_twice(verb, error):
            raise
        answer = from_afar(verb, arguments, error)
    try:
        next(answer)
    except StopIteration as end:
        fields: dict[str, str] = end.value
        return fields
    raise JobLensError(f"the node answers with more than {verb} has: install the same version of all parts")


def _would_be_twice(verb: str, error: JobLensError) -> bool:
    """Whether this node has had the request: by the relay it would have it twice. If it is silent, who looks may look
    again: the job can be elsewhere."""
    return isinstance(error, client.Lost) and (VERBS[verb].acts or not isinstance(error, client.Silent))


def _bounded(answer: Generator[bytes, None, dict[str, str]], most: int) -> Generator[bytes, None, dict[str, str]]:
    while True:
        try:
            message = next(answer)
        except StopIteration as end:
            fields: dict[str, str] = end.value
            return fields
        most -= max(1, len(message))
        if most < 0:
            raise JobLensError("the node has sent more than any answer to this has: the rest is not taken")
        yield message


def from_afar(verb: str, arguments: Mapping[str, str], here: JobLensError) -> Generator[bytes, None, dict[str, str]]:
    """The same of a job of this access point, wherever it runs.

    Raises JobLensError; `here`, why it is not done on this machine, if this is no access point from which nodes can be
    asked.
    """
    named = _JOB.fullmatch(arguments["job"])
    if named is None and accesspoint.is_slot(arguments["job"]):
        raise here
    found = _sockets()
    if found is None:
        raise here
    if named is None:
        name = printable(arguments["job"], 60)
        raise UsageError(f"{name} is no job id, as 12.0, by which another machine is asked. On this one: {here}")
    job = named["id"] or arguments["job"]
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        from condor_joblens.control.sealed_answers import Opener
    except ImportError:
        raise JobLensError("the Python package cryptography is missing here: make install EXTRAS=relay") from None
    key = X25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    given = {name: value.encode("utf-8", "surrogateescape") for name, value in arguments.items() if name != "job"}
    if isinstance(found, elsewhere.Server):
        signed, relay_socket = elsewhere.sign(found, verb, job, public, given)
        between = client.ELSEWHERE
    else:
        door_socket, relay_socket = found
        signed, between = _sign(door_socket, verb, job, public, given), client.RELAY
    if named["id"] and signed.job != arguments["job"]:
        raise JobLensError(f"job {job} of this access point is another one, {printable(signed.job, 200)}")
    fields: dict[str, client.Value] = {"job": signed.job, "node": signed.node, "packet": signed.packet}
    silence = None if arguments.get("follow") == "1" else _LONGER.get(verb, PATIENCE)
    carried = client.stream(relay_socket, "warrant", fields, PATIENCE, between, silence)
    answer = yield from sealed_client.opened(carried, Opener(signed.packet, key, signed.node_key), verb)
    return {**answer, "slot": signed.node} if "slot" in answer else answer  # with its machine


def _sign(path: str, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes]) -> door.Signed:
    """A warrant of this access point's door, at `path`, or by a key of the staff's. Raises JobLensError."""
    staff_key = os.environ.get(staff_warrants.KEY)
    if staff_key:
        return staff_warrants.sign(staff_key, verb, job, sealing_key, arguments)
    if os.environ.get(PROVE) == "1":
        return _proved(path, verb, job, sealing_key, arguments)
    return door.sign(path, verb, job, sealing_key, arguments)


def _proved(path: str, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes]) -> door.Signed:
    """The same for whom the door does not know as the job's user, if HTCondor lets him edit the job."""
    whole = job if "." in job else f"{job}.0"
    nonce = door.nonce(path, whole)
    proof = door.proof(nonce, verb, whole, sealing_key, arguments)
    elsewhere.write_proof(whole, proof)
    return door.sign(path, verb, whole, sealing_key, arguments, nonce)


def _sockets() -> tuple[str, str] | elsewhere.Server | None:
    """Those of the door and of the relay, if both are there, or the server by which an access point is reached.

    HTCondor is asked last: that takes longest.
    """
    if elsewhere.KNOB not in os.environ and os.path.exists(DOOR) and os.path.exists(RELAY):
        return DOOR, RELAY
    from condor_joblens.common.condor_config import read_macros
    from condor_joblens.common.config_parser import parse

    try:
        config = parse(read_macros("JOBLENS_(DOOR_SOCKET|RELAY_(SOCKET|CA_FILE|SERVER|SERVER_TOKEN_FILE))"))[0]
    except JobLensError:
        return None
    if config.relay_server:
        return elsewhere.Server(config.relay_server, config.relay_server_token_file, config.relay_ca_file)
    found = config.door_socket, config.relay_socket
    return found if all(os.path.exists(path) for path in found) else None
