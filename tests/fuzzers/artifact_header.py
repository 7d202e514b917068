"""The header of an artifact, as it comes over the control socket or stands in a file. It gets a right checksum."""

from __future__ import annotations

import zlib

from condor_joblens.common.errors import JobLensError
from condor_joblens.shm import layout
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact, pack, parse_alone, split_name

_CRC_AT = layout.ARTIFACT.fields["header_crc"][1]  # type: ignore[index]
SEEDS = [
    pack(Artifact("hang", "text/plain", 7, 1.0, 2.0, run="a#12.0#1#1", owner="alice", uid=1000, sequence=3, length=8)),
    pack(Artifact("profile", "application/json", 1, 0.0, 0.0, "gzip", slot="slot1_1", sinks="file,kafka")),
]
WORDS = [b"JLARTFCT", b"\xff" * 8, b"\xc3\xa9", b"hang\0"]


def check(data: bytes) -> None:
    """A header is an artifact with a name that is its file's, or refused."""
    whole = data[:_CRC_AT] + bytes(4) + data[_CRC_AT + 4 : HEADER_BYTES]
    right = whole[:_CRC_AT] + zlib.crc32(whole).to_bytes(4, "little") + whole[_CRC_AT + 4 :]
    for packed in (data, right):
        try:
            found = parse_alone(packed)
        except JobLensError:
            continue
        assert not found.sequence or split_name(found.name) == (found.sequence, found.kind)
        assert found.uid is None or 0 <= found.uid < 1 << 32
