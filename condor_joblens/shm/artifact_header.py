"""The header of an artifact: struct joblens_artifact in joblens_shm.h, as Python has it."""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import text
from condor_joblens.shm import layout
from condor_joblens.shm._shm import ffi, lib

HEADER_BYTES: int = layout.ARTIFACT.itemsize

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_NAME = re.compile(r"([1-9][0-9]{0,19})\.([a-z][a-z0-9_]{0,31})")
_NO_UID = 0xFFFFFFFF
_TEXTS = (
    *("kind", "content_type", "content_encoding", "run", "owner", "slot", "sinks", "node"),
    *("claimed_run", "claimed_owner"),
)


@dataclass(frozen=True)
class Artifact:
    """What a header says. Its producer gives the first part, the store the second."""

    kind: str  # profile, trace, hang ...: small letters, digits and _, a letter first
    content_type: str  # a media type
    run_number: int  # the run that it is about
    begun: float  # of the time that it shows, epoch seconds
    ended: float
    content_encoding: str = ""  # as in HTTP: gzip; empty: none
    run: str = ""  # GlobalJobId#n
    owner: str = ""  # whom the job runs for: his artifacts share what the store has room for
    slot: str = ""
    sinks: str = ""  # the sinks that get it, with commas between; empty: all
    node: str = ""
    uid: Optional[int] = None  # the user as whom the job runs, who may have it; None: only root may
    claimed_run: str = ""  # what the job's own ad calls the run, if no startd has confirmed that: anybody's name
    claimed_owner: str = ""  # and its owner

    sequence: int = 0  # rises, and is never used twice on a node
    length: int = 0  # bytes of the content
    sha256: bytes = bytes(32)  # of the content

    @property
    def name(self) -> str:
        """The name of its file. Nothing in it comes from a user."""
        return f"{self.sequence}.{self.kind}"


def check_kind(kind: str) -> None:
    """Raises ValueError if this can't be the kind of an artifact."""
    if not _KIND.fullmatch(kind):
        raise ValueError(f"{kind[:40]!r} is no kind of an artifact: small letters, digits and _, a letter first")


def split_name(name: str) -> tuple[int, str] | None:
    """Sequence and kind of the artifact whose file has this name; None if no artifact's file has such a name."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2]) if found and int(found[1]) < 1 << 64 else None


def pack(artifact: Artifact) -> bytes:
    """The header, HEADER_BYTES long. Texts that are too long are cut at a character. Raises ValueError."""
    check_kind(artifact.kind)
    header: np.ndarray = np.zeros(1, layout.ARTIFACT)
    header["magic"] = np.void(layout.ARTIFACT_MAGIC)
    header["version"], header["byte_order"] = layout.ARTIFACT_VERSION, layout.BYTE_ORDER
    header["content_at"] = HEADER_BYTES
    for name in ("sequence", "run_number", "length", "begun", "ended"):
        header[name] = getattr(artifact, name)
    header["uid"] = _NO_UID if artifact.uid is None else artifact.uid
    header["sha256"] = np.void(artifact.sha256)
    for name in _TEXTS:
        encoded = getattr(artifact, name).encode("utf-8", "backslashreplace")[: header[name].itemsize]
        header[name] = encoded.decode("utf-8", "ignore").encode()
    header["header_crc"] = zlib.crc32(header.tobytes())
    return header.tobytes()


def parse(packed: bytes, file_bytes: int) -> Artifact:
    """What the header `packed` says, of a file of so many bytes. Raises JobLensError in words for what is wrong."""
    memory = ffi.from_buffer(packed)
    wrong = lib.joblens_check_artifact(memory, file_bytes if len(packed) >= HEADER_BYTES else len(packed))
    if wrong != ffi.NULL:
        raise JobLensError(ffi.string(wrong).decode())
    header = np.frombuffer(packed, layout.ARTIFACT, 1).copy()[0]
    crc = int(header["header_crc"])
    header["header_crc"] = 0
    values = _values(header)
    is_right = zlib.crc32(header.tobytes()) == crc and _KIND.fullmatch(values["kind"])
    if not is_right or not math.isfinite(values["begun"]) or not math.isfinite(values["ended"]):
        raise JobLensError("is damaged: its header's checksum is wrong")
    return Artifact(**values)


def parse_alone(packed: bytes) -> Artifact:
    """What a header says, of which nobody knows how long its file is. Raises JobLensError."""
    if len(packed) < HEADER_BYTES:
        raise JobLensError("an artifact's header did not arrive whole: try again")
    length = int(np.frombuffer(packed, layout.ARTIFACT, 1)["length"][0])
    try:
        return parse(packed, min(HEADER_BYTES + length, (1 << 64) - 1))
    except JobLensError as error:
        raise JobLensError(f"an artifact's header {error}") from None


def _values(header: np.void) -> dict[str, Any]:
    values: dict[str, Any] = {field.name: header[field.name].item() for field in dataclasses.fields(Artifact)}
    values.update({name: text(values[name]) for name in _TEXTS})
    values["uid"] = None if values["uid"] == _NO_UID else values["uid"]
    values["sha256"] = bytes(header["sha256"].tobytes())
    return values
