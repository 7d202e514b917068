"""Frames of the control socket: what is encoded is decoded, and any other bytes are refused with a reason."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from condor_joblens.control import frames
from condor_joblens.control.frames import Assembler, FrameError, Words, decode_packet, decode_words, encode_packet
from condor_joblens.control.verbs import VERBS, Refused, Request, understand
from condor_joblens.model.levels import Level

GOOD = b"joblens/1\0activate\0slot=slot1_1\0scratch=/var/lib/condor/execute/dir_1\0"


# -- version 1 ------------------------------------------------------------------------------------------------


def test_what_the_wrapper_of_0_1_sends_is_understood_for_ever() -> None:
    assert frames.version_of(GOOD) == 1
    assert understand(decode_packet(GOOD), 7, 1000, version=1) == Request(
        "activate", {"slot": "slot1_1", "scratch": "/var/lib/condor/execute/dir_1"}, 7, 1000
    )


def test_what_is_no_claim_and_what_is_unknown_is_left_alone() -> None:
    words = decode_packet(b"joblens/1\0activate\0nothing\0later=1\0slot=a=b\0")
    assert words == Words("activate", {"later": b"1", "slot": b"a=b"})
    assert understand(words, 1, 1, version=1).arguments == {"slot": "a=b"}


def test_a_job_without_a_slot_or_a_folder_may_say_so() -> None:
    """The helper sends an empty value for a variable that is empty, as _CONDOR_SLOT is in the local universe."""
    words = decode_packet(b"joblens/1\0activate\0slot=\0scratch=\0")
    assert understand(words, 1, 1, version=1).arguments == {"slot": "", "scratch": ""}


@pytest.mark.parametrize(
    "packet, reason",
    [
        (b"joblens/1\0activate", "NUL-terminated"),
        (b"", "protocol"),
        (b"\0", "protocol"),
        (b"joblens/9\0activate\0", "protocol"),
        (b"joblens/10\0activate\0", "protocol"),
        (b"joblens/1", "protocol"),
        (b"joblens/1\0", "verb"),
        (b"GET / HTTP/1.1\r\n\r\n\0", "protocol"),
        (GOOD + b"x" * 4096 + b"\0", "4096 bytes"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(packet: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        frames.version_of(packet)
        decode_packet(packet)


@given(st.binary(max_size=5000))
@example(b"joblens/1\0\0")
@example(b"joblens/1\0activate\0=\0")
def test_any_bytes_are_a_request_or_refused(packet: bytes) -> None:
    try:
        request = understand(decode_packet(packet), 1, 2, version=1)
    except (FrameError, Refused):
        return
    assert (request.pid, request.uid) == (1, 2) and request.verb in VERBS


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    arguments = understand(decode_packet(b"joblens/1\0activate\0scratch=/a\xff\n\0"), 1, 1, version=1).arguments
    assert os.fsencode(arguments["scratch"]) == b"/a\xff\n"


@given(st.text(), st.dictionaries(st.text(), st.binary(max_size=600)))
@example("refused", {"reason": b"x" * 1000})
@example("refused", {"reason": "é".encode() * 400})
@example("\udcff", {"\udcff": b"\xff"})
def test_an_answer_is_always_a_packet_that_the_helper_has_room_for(word: str, fields: dict[str, bytes]) -> None:
    packet = encode_packet(word, fields, frames.MAX_ANSWER_1)
    assert len(packet) <= 512
    assert packet.startswith(b"joblens/1\0") and packet.endswith(b"\0")


NAMES = st.from_regex("[a-z]{1,8}", fullmatch=True)
VALUES = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20).map(str.encode)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_packed_can_be_parsed(fields: dict[str, bytes]) -> None:
    assert decode_packet(encode_packet("traced", fields, 512)) == Words("traced", fields)


# -- version 2 ------------------------------------------------------------------------------------------------

FIELDS = st.dictionaries(st.text(st.characters(codec="utf-8")), st.binary(max_size=40000), max_size=4)


@given(st.text(st.characters(codec="utf-8")), FIELDS)
@example("", {})
@example("watch", {"job": b"\0" * 16384, "x": b""})
@example("watch", {f"{number}": b"" for number in range(frames.MAX_FIELDS)})
def test_words_come_through_whatever_their_bytes_are(word: str, fields: dict[str, bytes]) -> None:
    assert decode_words(frames.encode_words(word, fields)) == Words(word, fields)


@given(st.binary(min_size=1, max_size=100_000), st.sampled_from([frames.REQUEST, frames.DATA, frames.END]))
@example(b"x" * frames.MAX_PAYLOAD, frames.DATA)
@example(b"x" * (frames.MAX_PAYLOAD + 1), frames.DATA)
def test_a_message_is_put_together_from_its_packets(message: bytes, kind: bytes) -> None:
    packets = list(frames.frames(kind, message))
    assert all(len(packet) <= frames.MAX_PACKET and frames.version_of(packet) == 2 for packet in packets)
    assembler = Assembler(frames.REQUEST + frames.DATA + frames.END, 100_000)
    for _ in range(2):
        found = [assembler.add(packet) for packet in packets]
        assert found == [None] * (len(packets) - 1) + [(kind, message)]


def frame(kind: bytes, left: int, payload: bytes) -> bytes:
    return b"joblens/2\0" + kind + struct.pack("<I", left) + payload


@pytest.mark.parametrize(
    "packets, reason",
    [
        ([b"joblens/2\0"], "header"),
        ([b"joblens/2\0Q\0\0\0"], "header"),
        ([frame(b"Q", 0, b"")], "1 to 16384"),
        ([frame(b"Q", 1, b"")], "1 to 16384"),
        ([frame(b"Q", 20000, b"x" * 16385)], "1 to 16384"),
        ([frame(b"D", 1, b"x")], "kind"),
        ([frame(b"?", 1, b"x")], "kind"),
        ([frame(b"Q", 1, b"xx")], "longer than its message"),
        ([frame(b"Q", 65537, b"x")], "at most 65536"),
        ([frame(b"Q", 0xFFFFFFFF, b"x")], "at most 65536"),
        ([frame(b"Q", 3, b"x"), frame(b"Q", 3, b"x")], "does not go on"),
        ([frame(b"Q", 3, b"x"), frame(b"Q", 1, b"x")], "does not go on"),
        ([frame(b"Q", 3, b"x"), GOOD], "header"),
    ],
)
def test_a_frame_that_is_none_is_refused_with_the_reason(packets: list[bytes], reason: str) -> None:
    assembler = Assembler(frames.REQUEST, frames.MAX_REQUEST)
    for packet in packets[:-1]:
        assert assembler.add(packet) is None
    with pytest.raises(FrameError, match=reason):
        assembler.add(packets[-1])


def words(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


@pytest.mark.parametrize(
    "message, reason",
    [
        (b"", "a word"),
        (b"\1\0\0", "length is cut"),
        (b"\2\0\0\0x", "longer than its message"),
        (b"\xff\xff\xff\xffx", "longer than its message"),
        (words(b"watch", b"job"), "a name and a value"),
        (words(b"watch", b"job", b"1", b"job", b"2"), "twice"),
        (words(b"watch", b"\xff", b"1", b"\xfe", b"2"), "twice"),
        (words(b"watch", *[part for n in range(65) for part in (b"%d" % n, b"")]), "at most 64 fields"),
        (words(*[b""] * 16000), "at most 64 fields"),
    ],
)
def test_a_message_that_is_none_is_refused_with_the_reason(message: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        decode_words(message)


@given(st.lists(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: b"joblens/2\0Q" + tail)))
def test_any_packets_are_a_message_or_refused_and_never_more_than_the_limit(packets: Iterable[bytes]) -> None:
    assembler = Assembler(frames.REQUEST, 100)
    for packet in packets:
        try:
            found = assembler.add(packet)
        except FrameError:
            return
        if found is not None:
            assert found[0] == frames.REQUEST and 0 < len(found[1]) <= 100


@given(st.binary(max_size=300))
def test_any_message_is_words_or_refused(message: bytes) -> None:
    try:
        found = decode_words(message)
    except FrameError:
        return
    assert sum(map(len, found.fields.values())) <= len(message)


@given(st.integers(0, 2**32 - 1), st.data())
def test_a_torn_or_changed_message_is_never_another_one_that_is_longer(seed: int, data: st.DataObject) -> None:
    """Bytes of a good request, changed, cut or repeated: an argument of the result is within its bounds."""
    chance = random.Random(seed)
    message = bytearray(frames.encode_words("level", {"job": b"12.0", "level": b"io", "for": b"600"}))
    for _ in range(chance.randint(1, 3)):
        message[chance.randrange(len(message))] = chance.randrange(256)
    message = message[: data.draw(st.integers(0, len(message)))]
    try:
        request = understand(decode_words(bytes(message)), 1, 1, version=2)
    except (FrameError, Refused):
        return
    if request.verb == "level":
        assert 1 <= request.arguments.get("for", 1) <= 86400 and request.arguments["job"]


# -- verbs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, word, fields, reason",
    [
        (1, "dance", {}, "no such verb: dance"),
        (2, "dance", {}, "no such verb: dance"),
        (2, "", {}, "no such verb"),
        (2, "level", {}, "level needs the argument job"),
        (2, "level", {"job": b"12.0", "colour": b"red"}, "level has no argument colour"),
        (2, "level", {"job": b""}, "job: has 0 bytes"),
        (2, "level", {"job": b"1", "level": b"io" + b" " * 30 + b"x"}, "level: io .* is not a level"),
        (2, "level", {"job": b"1", "for": b"86401"}, "1 s to 24 h"),
        (2, "level", {"job": b"1", "for": "²".encode()}, "1 s to 24 h"),
        (2, "level", {"job": b"1", "clear": b"yes"}, "clear: is 1 or 0"),
        (2, "watch", {"job": b"1"}, "watch needs the argument schema"),
        (1, "watch", {"job": b"1", "schema": b"1"}, "watch needs joblens/2"),
    ],
)
def test_what_can_not_be_asked_is_refused_with_the_reason(
    version: int, word: str, fields: dict[str, bytes], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        understand(Words(word, fields), 1, 1, version)


def test_arguments_have_types() -> None:
    fields = {"job": b"12.0", "level": b"2", "for": b"60", "clear": b"0"}
    assert understand(Words("level", fields), 1, 1, 2).arguments == {
        "job": "12.0", "level": Level.IO, "for": 60, "clear": False,
    }  # fmt: skip


@given(st.sampled_from([*VERBS, "dance"]), st.dictionaries(NAMES | st.sampled_from(["job", "level"]), st.binary()))
def test_any_arguments_are_understood_or_refused(word: str, fields: dict[str, bytes]) -> None:
    for version in (1, 2):
        try:
            request = understand(Words(word, fields), 1, 1, version)
        except Refused:
            continue
        assert set(request.arguments) <= set(VERBS[word].arguments)
