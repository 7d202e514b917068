"""What a person asks the access point's door, and its answer: a warrant (warrants.py), which somebody is to carry.

Over a unix socket of packets, in frames of joblens/2. The request's word is the verb that is meant. Its fields are Job
and SealingKey, then the verb's arguments. The answer is an END alone: `signed` with fields, or `refused`.

Whose user id is not the job's user at the access point proves by condor_qedit that he may edit the job. He asks for a
nonce (`prove`, with Job), and writes `proof` of his request into the job's ad. Then he sends that request with Nonce.
Nobody who only carries it can exchange a part: the proof is of another request then.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError, Refusal, printable
from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError

SIGNED = "signed"

PROVE, PROVING = "prove", "nonce"
"""The word by which a nonce is asked for, and that of its answer, which has the field Nonce."""

JOB, SEALING_KEY, NONCE = "Job", "SealingKey", "Nonce"
"""Fields of a request. No argument of a verb begins with a capital."""

BY_PROOF = " by condor_qedit"
"""How the name of somebody ends who has proved himself so."""

_PROOF = b"joblens-proof/1\0"

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


def proof(nonce: bytes, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes]) -> str:
    """Of a request: what JobLensProof of the job (12.0) has to be when it is sent."""
    fields = {NONCE: nonce, JOB: job.encode(), SEALING_KEY: sealing_key, **dict(sorted(arguments.items()))}
    return hashlib.sha256(_PROOF + frames.encode_words(verb, fields)).hexdigest()


def nonce(path: str, job: str) -> bytes:
    """One for the next request about this job (12.0). Raises JobLensError as `sign` does."""
    words = _asked(path, PROVE, {JOB: job.encode()})
    if words.word == PROVING and words.fields.get(NONCE):
        return words.fields[NONCE]
    raise _refusal(words)


def sign(
    path: str, verb: str, job: str, sealing_key: bytes, arguments: Mapping[str, bytes], nonce: bytes = b""
) -> Signed:
    """Asks the door at `path`. `nonce` is that of a proof. Raises JobLensError if it refuses or does not answer."""
    fields = {JOB: job.encode(), SEALING_KEY: sealing_key, **({NONCE: nonce} if nonce else {})}
    return _signed(_asked(path, verb, {**fields, **arguments}))


def _asked(path: str, word: str, fields: Mapping[str, bytes]) -> frames.Words:
    """What the door answers. Raises JobLensError."""
    message = frames.encode_words(word, fields)
    assembler = frames.Assembler(frames.END, frames.MAX_ANSWER)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(path)
            for packet in frames.frames(frames.REQUEST, message):
                connection.send(packet)
            while packet := connection.recv(frames.MAX_PACKET + 1):
                if (found := assembler.add(packet)) is not None:
                    return frames.decode_words(found[1])
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
    raise _refusal(words)


def _refusal(words: frames.Words) -> Refusal:
    reason = printable(words.fields.get("reason", b"it does not say why").decode("utf-8", "replace"), 300)
    return Refusal(f"joblens-door refuses: {reason}")
