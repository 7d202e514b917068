"""Commands on a job that runs elsewhere: the access point's door vouches, its relay carries, the node seals."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping

from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client, door, sealed_client

DOOR, RELAY = "/run/joblens-door.sock", "/run/joblens-relay.sock"
"""Where they are, unless JOBLENS_DOOR_SOCKET and JOBLENS_RELAY_SOCKET say otherwise."""


def asked(
    path: str, verb: str, arguments: Mapping[str, str], patience: float = client.PATIENCE
) -> Generator[bytes, None, dict[str, str]]:
    """The DATA messages of the answer: of the job on this node at `path`, or else from afar; returns its end's fields.

    Raises JobLensError.
    """
    here = client.stream(path, verb, arguments, patience)
    try:
        first = next(here)
    except StopIteration:
        return {}
    except JobLensError:
        if not is_there():
            raise
        return (yield from from_afar(verb, arguments))
    yield first
    yield from here
    return {}


def is_there() -> bool:
    """Whether this machine is an access point whose users can ask nodes."""
    return os.path.exists(DOOR) and os.path.exists(RELAY)


def from_afar(verb: str, arguments: Mapping[str, str]) -> Generator[bytes, None, dict[str, str]]:
    """The same of a job of this access point, wherever it runs. Raises JobLensError."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from condor_joblens.control.sealed_answers import Opener

    key = X25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    given = {name: value.encode("utf-8", "surrogateescape") for name, value in arguments.items() if name != "job"}
    signed = door.sign(DOOR, verb, arguments["job"], public, given)
    fields: dict[str, client.Value] = {"job": signed.job, "node": signed.node, "packet": signed.packet}
    carried = client.stream(RELAY, "warrant", fields, patience=60.0)
    return (yield from sealed_client.opened(carried, Opener(signed.packet, key, signed.node_key), verb))
