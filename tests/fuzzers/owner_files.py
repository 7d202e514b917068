"""The packets between joblensd and the process that works as other users: either may be compromised."""

from __future__ import annotations

import contextlib
import struct

from condor_joblens.owner_files import messages
from condor_joblens.owner_files.messages import BadPacket, Request, Verb
from condor_joblens.owner_files.operations import Ad

_REQUESTS = (
    Request(Verb.OPEN_FOLDERS, path="/var/lib/condor/execute", number=4711),
    Request(Verb.OPEN_AD, ad=Ad.JOB, not_owners=True),
    Request(Verb.WRITE_ADS, writes=((100, True), (messages.MAX_TEXT, False))),
    Request(Verb.VERSIONS),
    Request(Verb.WATCH),
    Request(Verb.PROCESS_IO, number=1),
    Request(Verb.OPEN_LOG, path="/var/log/condor/JobLensdLog"),
    Request(Verb.CONFINE, paths=("/scratch", "/var/log/condor")),
)
SEEDS = [
    *(bytes([messages.DESCRIPTORS[request.verb][-1]]) + messages.encode(request) for request in _REQUESTS),
    b"\2" + messages.encode(_REQUESTS[2]),
    b"\0" + messages.encode(_REQUESTS[0]).replace(b"condor", b"../x"),
]
WORDS = [bytes([verb]) for verb in Verb] + [b"/..", b"\0", struct.pack("<q", -1), struct.pack("<I", 1 << 31)]


def check(data: bytes) -> None:
    """A packet is a request within its bounds, which makes the very same packet again, or a BadPacket."""
    with contextlib.suppress(BadPacket):
        request = messages.decode(data[1:], data[0] if data else 0)
        assert messages.encode(request) == data[1:]
        _check_request(request)
    with contextlib.suppress(struct.error, IndexError):
        messages.decode_written(data)


def _check_request(request: Request) -> None:
    assert 0 <= request.number < 1 << 31
    for path in (request.path, *request.paths):
        assert "\0" not in path and "/../" not in f"{path}/"
    assert sum(length for length, _ in request.writes) <= messages.MEMORY_BYTES
