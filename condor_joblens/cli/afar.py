"""Commands on a job that runs elsewhere: the access point's door vouches, its relay carries, the node seals."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping

from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client, door, sealed_client

DOOR, RELAY = "/run/joblens-door.sock", "/run/joblens-relay.sock"
"""Where they are, unless JOBLENS_DOOR_SOCKET and JOBLENS_RELAY_SOCKET say otherwise."""

PATIENCE = 30.0
"""Seconds for the first part of an answer, and for each other one but of a file that is followed."""


def asked(path: str, verb: str, arguments: Mapping[str, str]) -> Generator[bytes, None, dict[str, str]]:
    """The DATA messages of the answer: of the job on this node at `path`, or else from afar; returns its end's fields.

    Raises JobLensError.
    """
    here = client.stream(path, verb, arguments)
    try:
        first = next(here)
    except StopIteration:
        return {}
    except JobLensError as error:
        return (yield from from_afar(verb, arguments, error))
    yield first
    yield from here
    return {}


def from_afar(verb: str, arguments: Mapping[str, str], here: JobLensError) -> Generator[bytes, None, dict[str, str]]:
    """The same of a job of this access point, wherever it runs.

    Raises JobLensError; `here`, why it is not done on this machine, if this is no access point from which nodes can be
    asked.
    """
    found = _sockets()
    if found is None:
        raise here
    door_socket, relay_socket = found
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        from condor_joblens.control.sealed_answers import Opener
    except ImportError:
        raise JobLensError("the Python package cryptography is missing here: make install EXTRAS=relay") from None
    key = X25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    given = {name: value.encode("utf-8", "surrogateescape") for name, value in arguments.items() if name != "job"}
    signed = door.sign(door_socket, verb, arguments["job"], public, given)
    fields: dict[str, client.Value] = {"job": signed.job, "node": signed.node, "packet": signed.packet}
    silence = None if arguments.get("follow") == "1" else PATIENCE
    carried = client.stream(relay_socket, "warrant", fields, PATIENCE, client.RELAY, silence)
    return (yield from sealed_client.opened(carried, Opener(signed.packet, key, signed.node_key), verb))


def _sockets() -> tuple[str, str] | None:
    """Those of the door and of the relay, if both are there. HTCondor is asked last: that takes longest."""
    if os.path.exists(DOOR) and os.path.exists(RELAY):
        return DOOR, RELAY
    from condor_joblens.common.condor_config import read_macros
    from condor_joblens.common.config_parser import parse

    try:
        config = parse(read_macros("JOBLENS_(DOOR|RELAY)_SOCKET"))[0]
    except JobLensError:
        return None
    found = config.door_socket, config.relay_socket
    return found if all(os.path.exists(path) for path in found) else None
