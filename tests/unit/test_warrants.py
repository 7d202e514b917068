"""Warrants and their answers, against whoever carries them: a relay that replays, swaps, invents and cuts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_joblens.control import frames, warrants
from condor_joblens.control.sealed_answers import BadAnswer, Opener, Sealer
from condor_joblens.control.warrants import Acceptance, BadWarrant, Meant, Warrant, sign, verify

NOW = 1_800_000_000.0
ACCESS_POINT, STRANGER, NODE = (Ed25519PrivateKey.from_private_bytes(bytes([each]) * 32) for each in (1, 2, 3))
ASKER, SERVER = (X25519PrivateKey.from_private_bytes(bytes([each]) * 32) for each in (4, 5))


def public(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


ACCESS_POINTS = public(ACCESS_POINT)
MEANT = Meant("alice@pool", "ap#12.0#1800000000#1", "slot1_1@node")


def warrant(begins: float = NOW, seconds: float = 60, nonce: bytes = b"n" * 16, **other: object) -> Warrant:
    made = Warrant(
        user=MEANT.user,
        by=MEANT.user,
        run=MEANT.run,
        node=MEANT.node,
        verb="tail",
        arguments={"file": b"log", "follow": b"1"},
        sealing_key=public(ASKER),
        nonce=nonce,
        begins=int(begins * 1000),
        ends=int((begins + seconds) * 1000),
    )
    return dataclasses.replace(made, **other)  # type: ignore[arg-type]


# -- the warrant ----------------------------------------------------------------------------------------------

CHARACTERS = st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_categories=["C", "Z"])
TEXTS = st.text(CHARACTERS, min_size=1, max_size=50)
ARGUMENTS = st.dictionaries(st.sampled_from(["file", "lines", "pid", "signal"]), st.binary(max_size=100))


@given(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, ARGUMENTS, st.binary(min_size=16, max_size=16), st.integers(1, 60_000))
def test_what_is_signed_is_what_is_verified(
    user: str, by: str, run: str, node: str, verb: str, arguments: dict[str, bytes], nonce: bytes, milliseconds: int
) -> None:
    made = Warrant(user, by, run, node, verb, arguments, public(ASKER), nonce, 1000, 1000 + milliseconds)
    packet = sign(made, ACCESS_POINT)
    assert verify(packet, ACCESS_POINTS) == made
    assert sign(verify(packet, ACCESS_POINTS), ACCESS_POINT) == packet, "there is one encoding"


@settings(max_examples=300)
@given(st.data())
def test_no_bit_can_be_changed_and_nothing_added_or_left_out(data: st.DataObject) -> None:
    packet = sign(warrant(), ACCESS_POINT)
    at = data.draw(st.integers(0, len(packet) * 8 - 1))
    flipped = bytearray(packet)
    flipped[at // 8] ^= 1 << at % 8
    cut = packet[: data.draw(st.integers(0, len(packet) - 1))]
    for wrong in (bytes(flipped), cut, packet + b"\0", packet + packet, b""):
        with pytest.raises(BadWarrant):
            verify(wrong, ACCESS_POINTS)


@pytest.mark.parametrize("key", [public(STRANGER), b"", b"x" * 31, bytes(32), b"\xff" * 32])
def test_another_key_or_none_is_not_the_access_points(key: bytes) -> None:
    with pytest.raises(BadWarrant):
        verify(sign(warrant(), ACCESS_POINT), key)


def test_nothing_is_parsed_before_the_signature_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(message: bytes) -> frames.Words:
        raise AssertionError("parsed")

    monkeypatch.setattr(frames, "decode_words", parsed)
    with pytest.raises(BadWarrant, match="has not signed this"):
        verify(sign(warrant(), STRANGER), ACCESS_POINTS)


def signed(body: bytes) -> bytes:
    """Whatever body, signed by the access point: one that is in bad hands, or of another version."""
    start = b"joblens-warrant/1\0"
    return start + ACCESS_POINT.sign(start + body) + body


def fields(**other: bytes) -> dict[str, bytes]:
    times = (1000).to_bytes(8, "little"), (2000).to_bytes(8, "little")
    known = {"User": b"a", "By": b"a", "Run": b"r", "Node": b"n", "SealingKey": b"k" * 32, "Nonce": b"n" * 16}
    return {**known, "From": times[0], "Until": times[1], **other}


ODD: dict[str, bytes] = {
    "no fields": frames.encode_words("ps", {}),
    "another order": frames.encode_words("ps", dict(reversed(fields().items()))),
    "arguments before": frames.encode_words("ps", {"file": b"x", **fields()}),
    "unsorted arguments": frames.encode_words("ps", fields(b=b"1", a=b"1")),
    "no text": frames.encode_words("ps", fields(User=b"\xff")),
    "an escape": frames.encode_words("ps", fields(User=b"\x1b[2J")),
    "an empty user": frames.encode_words("ps", fields(User=b"")),
    "nobody who asks": frames.encode_words("ps", fields(By=b"")),
    "an empty verb": frames.encode_words("", fields()),
    "a short key": frames.encode_words("ps", fields(SealingKey=b"k" * 31)),
    "a short nonce": frames.encode_words("ps", fields(Nonce=b"")),
    "a long life": frames.encode_words("ps", fields(Until=(62_000).to_bytes(8, "little"))),
    "an end before its beginning": frames.encode_words("ps", fields(Until=bytes(8))),
    "a long time": frames.encode_words("ps", fields(Until=bytes(9))),
    "twice": frames.encode_words("ps", fields()) + frames.encode_words("Run", {})[0:],
    "no frame": b"\xff" * 40,
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_a_signed_body_of_another_kind_is_refused_in_words(body: bytes) -> None:
    assert verify(signed(frames.encode_words("ps", fields())), ACCESS_POINTS).verb == "ps"
    with pytest.raises(BadWarrant):
        verify(signed(body), ACCESS_POINTS)


def test_nobody_signs_what_nobody_would_take() -> None:
    for wrong in (warrant(seconds=61), warrant(arguments={"file": b"x" * 20_000}), warrant(arguments={"Run": b"x"})):
        with pytest.raises(BadWarrant):
            sign(wrong, ACCESS_POINT)


# -- whether it is taken --------------------------------------------------------------------------------------


class Node:
    """A node whose clock a test sets."""

    def __init__(self) -> None:
        self.now: float = NOW - 60
        self.acceptance = Acceptance(lambda: self.now)
        self.now = NOW

    def takes(self, which: Warrant, meant: Meant = MEANT) -> str:
        """Why not; empty if it does."""
        try:
            self.acceptance.take(which, meant)
        except BadWarrant as error:
            return str(error)
        return ""


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize(
    "meant, why",
    [
        (dataclasses.replace(MEANT, run="ap#12.0#1800000000#2"), "another run"),
        (dataclasses.replace(MEANT, node="slot1_1@next"), "another node"),
        (dataclasses.replace(MEANT, user="alice@elsewhere"), "another user"),
        (dataclasses.replace(MEANT, user=""), "another user"),
        (dataclasses.replace(MEANT, node=""), "another node"),
    ],
)
def test_it_is_for_one_run_on_one_node_of_one_user(meant: Meant, why: str, node: Node) -> None:
    assert why in node.takes(warrant(), meant)
    assert node.takes(warrant()) == "", "what was refused was not used up"


def test_it_is_taken_once(node: Node) -> None:
    assert node.takes(warrant()) == ""
    assert "taken before" in node.takes(warrant())
    assert node.takes(warrant(nonce=b"m" * 16)) == ""


def test_it_has_its_time(node: Node) -> None:
    node.now = NOW + 100
    assert "40 s too old" in node.takes(warrant())
    assert "valid in 3600 s" in node.takes(warrant(NOW + 100 + 3600))
    assert node.takes(warrant(NOW + 101)) == "", "clocks may differ a little"
    assert "too old" in node.takes(warrant(NOW + 40, nonce=b"m" * 16)), "to the end"


def test_a_joblensd_that_was_started_since_takes_none_of_before(node: Node) -> None:
    held_back = warrant(NOW)
    node.now = NOW + 10
    node.acceptance = Acceptance(lambda: node.now)
    assert "before joblensd started" in node.takes(held_back)


def test_one_that_was_taken_early_is_not_taken_again_after_a_restart(node: Node) -> None:
    early = warrant(NOW + 2)  # the access point's clock is ahead
    assert node.takes(early) == ""
    node.now = NOW + 1
    node.acceptance = Acceptance(lambda: node.now)
    for later in (1.0, 2.0, 3.0, 30.0):
        node.now = NOW + later
        assert "before joblensd started" in node.takes(early)
    assert node.takes(warrant(NOW + 3, nonce=b"m" * 16)) == ""


def test_a_clock_that_is_set_back_makes_none_valid_again(node: Node) -> None:
    assert node.takes(warrant()) == ""
    node.now = NOW + 3600
    assert node.takes(warrant(NOW + 3600, nonce=b"m" * 16)) == ""
    node.now = NOW + 1
    assert "taken before" in node.takes(warrant())


def test_what_is_remembered_is_bounded_and_runs_out(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warrants, "MAX_REMEMBERED", 3)
    for number in range(3):
        assert node.takes(warrant(nonce=bytes([number]) * 16)) == ""
    assert "too many" in node.takes(warrant())
    node.now = NOW + 61
    assert node.takes(warrant(NOW + 61)) == ""
    assert len(node.acceptance._taken) == len(node.acceptance._by_end) == 1


def test_who_signs_for_himself_keeps_nobody_elses_commands_out(node: Node) -> None:
    mallory = dataclasses.replace(MEANT, user="mallory@pool")
    for number in range(warrants.REMEMBERED_OF_A_USER):
        made = warrant(nonce=number.to_bytes(16, "little"), user="mallory@pool", by="mallory@pool")
        assert node.takes(made, mallory) == ""
    more = warrant(nonce=b"m" * 16, user="mallory@pool", by="mallory@pool")
    assert "too many of your commands" in node.takes(more, mallory)
    assert node.takes(warrant()) == ""
    node.now = NOW + 61
    assert node.takes(warrant(NOW + 61, nonce=b"m" * 16, user="mallory@pool", by="mallory@pool"), mallory) == ""
    assert node.acceptance._of_user == {"mallory@pool": 1}


def test_names_of_super_users_that_he_invents_get_him_no_further(node: Node) -> None:
    mallory = dataclasses.replace(MEANT, user="mallory@pool")
    for number in range(warrants.REMEMBERED_OF_A_USER + 1):
        made = warrant(nonce=number.to_bytes(16, "little"), user="mallory@pool", by=f"root{number}@pool")
        why = node.takes(made, mallory)
        assert ("too many of your commands" in why) == (number == warrants.REMEMBERED_OF_A_USER)
    own = warrant(nonce=b"m" * 16, user="mallory@pool", by="mallory@pool")
    assert node.takes(own, mallory) == "", "what others ask for keeps him out of nothing"


@given(st.lists(st.tuples(st.integers(-100, 200), st.integers(0, 5), st.integers(-100, 200)), max_size=40))
def test_whatever_the_clock_does_none_is_taken_twice(steps: Sequence[tuple[int, int, int]]) -> None:
    node, taken = Node(), []
    for clock, nonce, begins in steps:
        node.now = NOW + clock
        made = warrant(NOW + begins, nonce=bytes([nonce]) * 16)
        if node.takes(made) == "":
            taken.append(made)
            assert made.begins - 2000 <= node.now * 1000 < made.ends
    assert len({(made.nonce, made.begins) for made in taken}) == len(taken)


# -- the answer -----------------------------------------------------------------------------------------------

PACKET = sign(warrant(), ACCESS_POINT)


def answer(*messages: bytes, packet: bytes = PACKET, node: Ed25519PrivateKey = NODE) -> list[bytes]:
    sealer = Sealer(packet, public(ASKER), node)
    *more, last = messages
    return [sealer.header, *map(sealer.seal, more), sealer.seal(last, is_last=True)]


def opened(packets: Sequence[bytes], key: X25519PrivateKey = ASKER, packet: bytes = PACKET) -> tuple[list[bytes], bool]:
    """What is believed, and whether it is whole."""
    opener = Opener(packet, key, public(NODE))
    found = [opener.open(each) for each in packets][1:]
    return found, opener.is_whole


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_an_answer_arrives(messages: list[bytes]) -> None:
    assert opened(answer(*messages)) == (messages, True)


def test_who_carries_it_reads_nothing() -> None:
    sent = answer(b"secret " * 100, b"secret")
    assert all(b"secret" not in each for each in sent)
    with pytest.raises(BadAnswer):
        opened(sent, SERVER)


def flipped(packets: list[bytes], at: int) -> list[bytes]:
    changed = bytearray(packets[at])
    changed[-1] ^= 1
    return [*packets[:at], bytes(changed), *packets[at + 1 :]]


ATTACKS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a bit of the header": lambda sent: flipped(sent, 0),
    "a bit of a message": lambda sent: flipped(sent, 1),
    "one is left out": lambda sent: [sent[0], *sent[2:]],
    "two are exchanged": lambda sent: [sent[0], sent[2], sent[1], *sent[3:]],
    "one comes twice": lambda sent: [*sent[:2], *sent[1:]],
    "an early end": lambda sent: [*sent[:2], b"l" + sent[2][1:]],
    "no end": lambda sent: [*sent[:-1], b"m" + sent[-1][1:]],
    "more after the end": lambda sent: [*sent, sent[-1]],
    "a message of another answer": lambda sent: [*sent[:2], answer(b"1", b"2", b"3")[2], *sent[3:]],
    "another node's": lambda _: answer(b"1", node=STRANGER),
    "to another question": lambda _: answer(b"1", packet=sign(warrant(nonce=b"m" * 16), ACCESS_POINT)),
    "no answer": lambda _: [b"joblens-answer/1\0"],
    "nothing": lambda sent: [sent[0], b""],
    "far too much": lambda sent: [sent[0], b"m" + bytes(10_000_000)],
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_answer_that_is_not_the_nodes_is_shown_as_such(attack: Callable[[list[bytes]], list[bytes]]) -> None:
    with pytest.raises(BadAnswer):
        opened(attack(answer(b"1", b"2", b"3")))


def test_an_answer_that_is_cut_off_is_not_whole() -> None:
    assert opened(answer(b"1", b"2", b"3")[:-1]) == ([b"1", b"2"], False)


def test_an_answer_is_sealed_to_no_key_that_everybody_shares() -> None:
    with pytest.raises(BadAnswer):
        Sealer(PACKET, bytes(32), NODE)
