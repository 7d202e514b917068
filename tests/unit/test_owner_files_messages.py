"""What the process that works as other users is told, and as whom it may; its work itself is in tests/kernel."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.owner_files import messages, notices
from condor_joblens.owner_files.allowed_ids import AllowedIds, allowed_ids
from condor_joblens.owner_files.messages import MAX_ADS, MAX_TEXT, BadPacket, Request, Verb
from condor_joblens.owner_files.operations import Ad, Operations
from condor_joblens.owner_files.progress import MOST_BYTES as MOST_PROGRESS
from condor_joblens.owner_files.reports import MOST_BYTES, Report
from condor_joblens.publish.updatead import WriteResult, Written

REQUESTS = {
    Request(Verb.OPEN_FOLDERS, path="/var/lib/condor/execute", number=4711): 0,
    Request(Verb.OPEN_AD, ad=Ad.MACHINE, not_owners=True): 1,
    Request(Verb.WRITE_ADS, writes=((5, True), (MAX_TEXT, False))): 2,
    Request(Verb.VERSIONS): MAX_ADS,
    Request(Verb.WATCH): 2,
    Request(Verb.PROCESS_IO, number=1): 0,
    Request(Verb.OPEN_LOG, path="/var/log/condor/JobLensdLog"): 0,
    Request(Verb.WRITE_REPORT, report=Report.FLAME, size=MOST_BYTES): 1,
    Request(Verb.LEASE_ADS): MAX_ADS,
    Request(Verb.ADD_NOTICE, size=7): 1,
    Request(Verb.PROGRESS): messages.MAX_PROGRESS,
    Request(Verb.CONFINE, paths=("/var/lib/condor/execute", "/scratch")): 0,
}


@pytest.mark.parametrize("request_, descriptors", REQUESTS.items(), ids=lambda value: str(value)[:30])
def test_a_request_arrives_as_it_was(request_: Request, descriptors: int) -> None:
    packet = messages.encode(request_)
    assert messages.decode(packet, descriptors) == request_
    for wrong in (descriptors + 1, descriptors - 1, MAX_ADS + 1):
        if request_.verb not in (Verb.VERSIONS, Verb.LEASE_ADS, Verb.PROGRESS) or wrong > MAX_ADS:
            with pytest.raises(BadPacket):
                messages.decode(packet, wrong)


@settings(max_examples=examples(500))
@given(packet=st.binary(max_size=64), descriptors=st.integers(0, 4))
def test_any_other_packet_is_refused(packet: bytes, descriptors: int) -> None:
    try:
        request = messages.decode(packet, descriptors)
    except BadPacket:
        return
    assert messages.encode(request) == packet
    assert request.number >= 0
    for path in (request.path, *request.paths):
        assert ".." not in path.split("/")


@pytest.mark.parametrize(
    "packet, descriptors",
    [
        (bytes([Verb.OPEN_FOLDERS]) + (7).to_bytes(8, "little") + b"relative", 0),
        (bytes([Verb.OPEN_FOLDERS]) + (7).to_bytes(8, "little") + b"/home/../root", 0),
        (bytes([Verb.OPEN_FOLDERS]) + (7).to_bytes(8, "little") + b"/home\0/x", 0),
        (bytes([Verb.OPEN_FOLDERS]) + (-7).to_bytes(8, "little", signed=True) + b"/home", 0),
        (bytes([Verb.WRITE_ADS]) + (MAX_TEXT + 1).to_bytes(4, "little") + b"\0", 1),
        (bytes([Verb.WATCH]) + b"more", 2),
        (bytes([Verb.WRITE_REPORT]) + b"\0" + (MOST_BYTES + 1).to_bytes(4, "little"), 1),
        (bytes([Verb.WRITE_REPORT]) + b"\0" + bytes(4), 1),
        (bytes([Verb.WRITE_REPORT]) + b"\x07" + b"\1\0\0\0", 1),
        (bytes([Verb.ADD_NOTICE]) + (notices.MOST_BYTES + 1).to_bytes(4, "little"), 1),
        (bytes([Verb.ADD_NOTICE]) + bytes(4), 1),
        (b"", 0),
    ],
)
def test_what_would_lead_elsewhere_is_refused(packet: bytes, descriptors: int) -> None:
    with pytest.raises(BadPacket):
        messages.decode(packet, descriptors)


def test_answers_arrive_as_they_were() -> None:
    versions = (None, (2**63, 1), (1, 2**63))
    written = [Written(result, one, other) for result in WriteResult for one in versions for other in versions]
    assert messages.decode_written(messages.encode_written(written)) == written
    assert messages.decode_versions(messages.encode_versions([None, (1, 2)])) == [None, (1, 2)]


def test_what_jobs_say_arrives_as_it_was_and_fits_into_a_packet() -> None:
    said = [b"", b"x" * MOST_PROGRESS, *[bytes(MOST_PROGRESS)] * (messages.MAX_PROGRESS - 2)]
    answer = messages.encode_progress(said)
    assert messages.decode_progress(answer) == said and len(answer) < messages.MAX_PACKET
    for wrong in (answer[:-1], answer + b"\0", (MOST_PROGRESS + 1).to_bytes(4, "little") + bytes(MOST_PROGRESS + 1)):
        with pytest.raises((ValueError, struct.error)):
            messages.decode_progress(wrong)


def test_descriptors_that_nobody_asked_for_are_closed(tmp_path: Path) -> None:
    """Operations give descriptors to their caller, and keep none."""
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "dir_7").mkdir()
    files = Operations()
    found = files.open_folders(str(tmp_path), 7)
    assert found is not None and found[0] == found[1]
    assert files.open_ad(found[0], Ad.JOB) is None and files.versions([found[0]]) == [None]
    os.close(found[0])
    assert len(os.listdir("/proc/self/fd")) == before


# -- as whom ---------------------------------------------------------------------------------------------------------


def test_who_may_be_worked_for(tmp_path: Path) -> None:
    (tmp_path / "login.defs").write_text("# UID_MIN 5\nUID_MIN\t\t 500\nSYS_UID_MIN 100\nGID_MIN 600 \n")
    macros = {"CONDOR_IDS": "64.65", "SLOT1_USER": "daemon", "Slot2_1_User": "root", "SLOT_TYPE_1": "bin"}
    found = allowed_ids(macros, [str(tmp_path), "/", "/missing"], str(tmp_path / "login.defs"))
    assert (found.least_uid, found.least_gid) == (500, 600)
    daemon = 1  # in Debian and in Red Hat's systems: with group 1 and 2
    assert {64, daemon} <= set(found.uids) and 0 not in found.uids and 0 not in found.gids
    assert 65 in found.gids
    assert AllowedIds.decode(found.encode()) == found


@pytest.mark.parametrize("text", ["", "UID_MIN many\n", "UID_MIN 0\n", "UID_MIN -1\n"])
def test_a_file_that_says_nothing_lets_nobody_in(tmp_path: Path, text: str) -> None:
    (tmp_path / "login.defs").write_text(text)
    found = allowed_ids({}, [], str(tmp_path / "login.defs"))
    assert found.least_uid == (1 if text == "UID_MIN 0\n" else 1000)
    assert allowed_ids({}, [], "/missing").least_uid == 1000
