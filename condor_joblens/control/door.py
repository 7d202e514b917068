"""What a person asks the access point's door, and its answer: a warrant (warrants.py), which somebody is to carry.

Over a unix socket of packets, in frames of joblens/2. The request's word is the verb that is meant. Its fields are Job
and SealingKey, then the verb's arguments. The answer is an END alone: `signed` with fields, or `refused`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError

SIGNED = "signed"

JOB, SEALING_KEY = "Job", "SealingKey"
"""Fields of a request. No argument of a verb begins with a capital."""

PATIENCE = 30.0
"""Seconds to wait for an answer: the door asks the schedd, for one person after the other."""


@dataclass(frozen=True)
class Signed:
    """What the door has vouched for."""

    packet: bytes  # the warrant
    job: str  # its GlobalJobId, by which the node looks for it
    node: str  # the slot with its host: slot1_1@host
    node_key: bytes  # public, Ed25519: the node signs its answer with the other half

    def fields(self) -> dict[str, bytes]:
        """As they are sent."""
        return {"Packet": self.packet, "Job": self.job.encode(), "Node": self.node.encode(), "NodeKey": self.node_key}


def sign(path: str, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes]) -> Signed:
    """Asks the door at `path`. Raises JobLensError if it refuses or does not answer."""
    message = frames.encode_words(verb, {JOB: job.encode(), SEALING_KEY: sealing_key, **arguments})
    assembler = frames.Assembler(frames.END, frames.MAX_ANSWER)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(path)
            for packet in frames.frames(frames.REQUEST, message):
                connection.send(packet)
            while packet := connection.recv(frames.MAX_PACKET + 1):
                if (found := assembler.add(packet)) is not None:
                    return _signed(frames.decode_words(found[1]))
    except OSError as error:
        why = error.strerror or f"no answer within {PATIENCE:g} s"
        raise JobLensError(f"{path}: {why}; is joblens-door running on this access point?") from None
    except FrameError:
        raise JobLensError("joblens-door answers in another protocol: install the same version of both") from None
    raise JobLensError("joblens-door has ended the connection: its log says why")


def _signed(words: frames.Words) -> Signed:
    fields = words.fields
    if words.word == SIGNED and {"Packet", "Job", "Node", "NodeKey"} <= fields.keys():
        job, node = (fields[name].decode("utf-8", "replace") for name in ("Job", "Node"))
        return Signed(fields["Packet"], job, node, fields["NodeKey"])
    reason = printable(fields.get("reason", b"it does not say why").decode("utf-8", "replace"), 300)
    raise JobLensError(f"joblens-door refuses: {reason}")
