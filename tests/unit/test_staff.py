"""Keys of the site's staff: a node takes from each what its line says, and none from a file that others can write."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_socket import Server
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from test_remote_commands import ACCESS_POINT, ASKED, ASKER, ELSEWHERE, MEANT, NODE, Far, FarSite, Older, public

from condor_joblens.cli import accesspoint, afar, staff_warrants
from condor_joblens.cli.main import main
from condor_joblens.commands.authority import MAY, Caller
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import audit, client, keys, sealed_client, warrants
from condor_joblens.control.sealed_answers import Opener
from condor_joblens.control.staff import parse_staff, read_staff
from condor_joblens.control.warrants import BadWarrant, Warrant

# the same in all processes of pytest: they are in names of tests
CAROL, DAVE = (Ed25519PrivateKey.from_private_bytes(who * 32) for who in (b"c", b"d"))
CAROLS, DAVES = (keys.text_of(public(key)) for key in (CAROL, DAVE))


# -- the file -------------------------------------------------------------------------------------------------


def test_a_line_says_for_which_verbs_users_and_jobs_a_key_is() -> None:
    text = f"# the site's\n\ncarol {CAROLS} ps,kill user=alice@pool,*@example.org job=ap#12.*\ndave {DAVES} *\n"
    known = parse_staff(text)
    carol, dave = known[public(CAROL)], known[public(DAVE)]
    assert (carol.name, dave.name) == ("carol", "dave")
    assert carol.refusal("ps", "alice@pool", "ap#12.0#1") == carol.refusal("kill", "x@example.org", "ap#12.7#1") == ""
    assert "not for cat on this node" in carol.refusal("cat", "alice@pool", "ap#12.0#1")
    assert "not for jobs of bob@pool" in carol.refusal("ps", "bob@pool", "ap#12.0#1")
    assert "not for this job" in carol.refusal("ps", "alice@pool", "ap#120.0#1")
    assert dave.refusal("cat", "bob@pool", "other#1.0#1") == ""


@pytest.mark.parametrize(
    "line, why",
    [
        ("carol", "write NAME KEY VERBS"),
        (f"carol {CAROLS}", "write NAME KEY VERBS"),
        ("carol ed25519:AAAA ps", "is no key"),
        (f"car\x1bol {CAROLS} ps", "write NAME"),
        (f"carol {CAROLS} ps,reboot", "no verb reboot"),
        (f"carol {CAROLS} ps,", "no verb"),
        (f"carol {CAROLS} ps users=alice@pool", "is not user="),
        (f"carol {CAROLS} ps user=", "is not user="),
        (f"carol {CAROLS} ps user=a user=b", "is not user="),
        (f"carol {CAROLS} ps user=[a-z]*", "is not user="),
        (f"carol {CAROLS} ps user=?lice@pool", "is not user="),
        (f"dave {DAVES} ps\nelse {DAVES} *", "has the key of dave once more"),
    ],
)
def test_one_wrong_line_and_no_key_counts(line: str, why: str) -> None:
    with pytest.raises(JobLensError, match=why):
        parse_staff(f"good {keys.text_of(public(NODE))} *\n{line}\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "staff.keys"
    file.write_text(f"carol {CAROLS} ps,env,log user=alice@pool\ndave {DAVES} *\n")
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    return file


def test_a_file_that_is_missing_knows_nobody(tmp_path: Path) -> None:
    assert read_staff(str(tmp_path / "missing")) == {}


def test_a_file_or_folder_that_others_can_write_is_not_taken(path: Path) -> None:
    assert read_staff(str(path)).keys() == {public(CAROL), public(DAVE)}
    for mode in (0o664, 0o646):
        path.chmod(mode)
        with pytest.raises(JobLensError, match="may be written by others"):
            read_staff(str(path))
    path.chmod(0o644)
    path.parent.chmod(0o777)
    with pytest.raises(JobLensError, match="is not taken"):
        read_staff(str(path))


def test_what_is_no_such_file_is_not_taken(path: Path, tmp_path: Path) -> None:
    link, fifo, great = (tmp_path / name for name in ("link", "fifo", "great"))
    link.symlink_to(path)
    os.mkfifo(fifo)
    great.write_bytes(b"#" * 70_000)
    for wrong in (link, fifo, great, tmp_path):
        with pytest.raises(JobLensError):
            read_staff(str(wrong))


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_another_user_s_file_is_not_taken(path: Path) -> None:
    os.chown(path, 4711, 4711)
    with pytest.raises(JobLensError, match="no file of root's"):
        read_staff(str(path))


# -- what a node does -----------------------------------------------------------------------------------------


class Staffed(Far):
    """A node, and the staff that asks it."""

    def signed(self, verb: str, key: Ed25519PrivateKey = CAROL, **other: Any) -> bytes:
        warrant = replace(self.warrant(verb, **ASKED.get(verb, {})), by=keys.text_of(public(key)), **other)
        return warrants.sign(warrant, key, warrants.staff_start(public(key)))

    def answer(self, packet: bytes, verb: str = "ps") -> list[bytes]:
        return list(sealed_client.opened(self.carry(packet), Opener(packet, ASKER, public(NODE)), verb))


@pytest.fixture
def serve(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Staffed]]:
    monkeypatch.setattr(warrants, "Acceptance", Older)
    servers = []

    def begin(**facts: Any) -> Staffed:
        site, at = FarSite(config=Config(staff_keys=str(path)), **facts), str(tmp_path / "activate.sock")
        servers.append(Server(at, Dispatcher(site).stream))
        return Staffed(at, site)

    yield begin
    for server in servers:
        server.stop()


def test_what_the_key_is_for_is_done_as_the_owner_and_said_in_the_log(serve: Callable[..., Staffed]) -> None:
    far = serve()
    assert far.answer(far.signed("ps")) == [b"=hello"]
    assert far.site.done[0][1]["verb"] == "ps"
    assert "staff carol (from afar by his key, for alice@pool) asks for ps by warrant " in far.site.lines[0]


def test_what_a_user_and_his_super_users_ask_for_takes_nothing_of_the_staff_s_pace(
    serve: Callable[..., Staffed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "A_SECOND", 0.0)
    far = serve()
    for by in ("alice@pool", "root@pool"):
        for _ in range(audit.IN_A_ROW):
            far.ask(replace(far.warrant("ps"), by=by))
        with pytest.raises(JobLensError, match="from now on one a second"):
            far.ask(replace(far.warrant("ps"), by=by))
    for _ in range(audit.IN_A_ROW):
        assert far.answer(far.signed("ps")) == [b"=hello"]
    with pytest.raises(JobLensError, match="from now on one a second"):
        far.answer(far.signed("ps"))
    assert far.answer(far.signed("ps", DAVE)) == [b"=hello"], "each has his own"


def test_it_needs_no_key_of_the_job_s_access_point(serve: Callable[..., Staffed]) -> None:
    far = serve(remote=SimpleNamespace(key=NODE, meant=lambda _: (MEANT, b"")))
    assert far.answer(far.signed("ps")) == [b"=hello"]


@pytest.mark.parametrize("verb", [verb for verb in ASKED if verb not in ("ps", "env", "log")])
def test_a_verb_that_the_key_is_not_for_is_refused_in_words(verb: str, serve: Callable[..., Staffed]) -> None:
    far = serve()
    with pytest.raises(JobLensError, match=f"joblensd refuses: .*{verb}"):
        far.answer(far.signed(verb), verb)
    assert far.site.done == [] and any("was refused" in line for line in far.site.lines)
    assert not any(b"refuses" in each or b"carol" in each for each in far.carried), "the refusal is sealed"


def test_a_level_is_nothing_for_a_staff_key(serve: Callable[..., Staffed]) -> None:
    far = serve()
    with pytest.raises(JobLensError, match="by an entry"):
        far.answer(far.signed("level", DAVE), "level")


@pytest.mark.parametrize("verb", ["activate", "watch", "say", "entries", "warrant", "reboot"])
def test_a_star_is_for_what_is_done_from_afar_alone(verb: str, serve: Callable[..., Staffed]) -> None:
    far = serve()
    with pytest.raises(JobLensError, match="not done from afar"):
        far.answer(far.signed(verb, DAVE))
    assert far.site.done == []


def test_jobs_that_the_key_is_not_for_are_left_alone(serve: Callable[..., Staffed]) -> None:
    bobs = replace(MEANT, user="bob@pool")
    far = serve(remote=SimpleNamespace(key=NODE, meant=lambda _: (bobs, public(ACCESS_POINT))))
    with pytest.raises(JobLensError, match="not for jobs of bob@pool"):
        far.answer(far.signed("ps", user="bob@pool"))
    with pytest.raises(JobLensError, match="another user"):
        far.answer(far.signed("ps"))  # nor if it says that the job is alice's
    assert far.site.done == []
    assert far.answer(far.signed("ps", DAVE, user="bob@pool")) == [b"=hello"]


def test_nobody_sees_values_of_an_environment_but_its_user(serve: Callable[..., Staffed]) -> None:
    far = serve()
    far.answer(far.signed("env"), "env")
    assert far.site.done[0][1]["values"] is False


def test_a_key_that_is_taken_away_counts_nothing_from_then_on(serve: Callable[..., Staffed], path: Path) -> None:
    far = serve()
    packet = far.signed("ps")
    path.write_text(f"dave {DAVES} *\n")
    with pytest.raises(JobLensError, match="none of the site's staff"):
        far.answer(packet)
    path.write_text("nonsense\n")
    with pytest.raises(JobLensError, match="no key of the staff counts here: line 1"):
        far.answer(far.signed("ps", DAVE))
    path.unlink()
    with pytest.raises(JobLensError, match="none of the site's staff"):
        far.answer(far.signed("ps", DAVE))
    assert far.site.done == []


def test_it_is_done_once_and_for_this_run_alone(serve: Callable[..., Staffed]) -> None:
    far = serve()
    packet = far.signed("ps")
    far.answer(packet)
    with pytest.raises(JobLensError, match="taken before"):
        far.answer(packet)
    for other in ({"run": f"{MEANT.run}9"}, {"node": "slot1_1@next"}, {"begins": 1000, "ends": 61_000}):
        with pytest.raises(JobLensError, match=r"another|too old"):
            far.answer(far.signed("ps", **other))
    assert len(far.site.done) == 1


def test_whoever_carries_it_swaps_neither_the_verb_nor_the_sealing_key_nor_the_person(
    serve: Callable[..., Staffed],
) -> None:
    far = serve()
    packet, kill = far.signed("ps"), far.signed("kill", DAVE)
    head = len(warrants.staff_start(public(CAROL))) + warrants.SIGNATURE_BYTES
    swapped = [
        packet[:head] + kill[head:],  # another body
        warrants.staff_start(public(DAVE)) + packet[len(warrants.staff_start(public(CAROL))) :],  # another person
        packet.replace(public(ASKER), public(ELSEWHERE)),  # who could read the answer
        warrants.WARRANT + packet[len(warrants.staff_start(public(CAROL))) :],  # an access point's
        far.signed("ps", ELSEWHERE).replace(public(ELSEWHERE), public(CAROL), 1),
    ]
    for wrong in swapped:
        assert wrong != packet
        with pytest.raises(JobLensError, match="has not signed this"):
            far.answer(wrong)
    assert far.site.done == []


def test_a_person_signs_nothing_as_an_access_point_and_none_as_a_person(serve: Callable[..., Staffed]) -> None:
    far = serve()
    as_access_point = warrants.sign(far.warrant("ps"), CAROL)
    with pytest.raises(JobLensError, match="access point has not signed"):
        far.answer(as_access_point)
    as_person = warrants.sign(far.warrant("ps"), ACCESS_POINT, warrants.staff_start(public(ACCESS_POINT)))
    with pytest.raises(JobLensError, match="none of the site's staff"):
        far.answer(as_person)
    assert far.site.done == []


def test_what_is_cut_is_no_warrant() -> None:
    warrant = Warrant("a@p", CAROLS, "r", "n", "ps", {}, public(ASKER), b"n" * 16, 1000, 2000)
    start = warrants.staff_start(public(CAROL))
    packet = warrants.sign(warrant, CAROL, start)
    assert warrants.verify(packet, public(CAROL), start) == warrant
    for length in range(len(packet)):
        with pytest.raises(BadWarrant):
            key = warrants.staff_key(packet[:length])
            warrants.verify(packet[:length], key, warrants.staff_start(key))


def test_a_staff_key_has_a_right_of_its_own_for_each_verb() -> None:
    assert {verb for verb, may in MAY.items() if Caller.STAFF in may} == set(ASKED) - {"level"}


# -- who asks -------------------------------------------------------------------------------------------------

JOB = "ap#12.0#1700000000"
AD: dict[str, Any] = {
    "User": "alice@pool",
    "GlobalJobId": JOB,
    "NumShadowStarts": 1,
    "RemoteHost": "slot1_1@node",
    "JobStatus": 2,
    "JobLensUsage": {"NodeKey": keys.text_of(public(NODE)), "Run": f"{JOB}#1"},
}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "staff.key"
    path.write_bytes(CAROL.private_bytes_raw())
    path.chmod(0o600)
    return path


def test_a_person_signs_for_the_run_that_the_queue_has(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesspoint, "read_ads", lambda *_, **__: [AD])
    signed = staff_warrants.sign(str(key_file), "kill", "12.0", public(ASKER), {"signal": b"15"})
    assert warrants.staff_key(signed.packet) == public(CAROL)
    warrant = warrants.verify(signed.packet, public(CAROL), warrants.staff_start(public(CAROL)))
    assert (warrant.user, warrant.run, warrant.node, warrant.verb) == (MEANT.user, MEANT.run, MEANT.node, "kill")
    assert warrant.ends - warrant.begins == 60_000 and abs(warrant.begins / 1000 - time.time()) < 3600
    assert (signed.job, signed.node, signed.node_key) == (JOB, "slot1_1@node", public(NODE))


@pytest.mark.parametrize(
    "ads, why",
    [
        ([], "condor_q knows no jobs 12.0"),
        ([AD, AD], "knows 2 jobs"),
        ([{**AD, "JobStatus": 5}], "the job is held"),
        ([{**AD, "User": None}], "a text of it is empty"),
    ],
)
def test_what_can_not_be_signed_is_said(
    ads: list[Any], why: str, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accesspoint, "read_ads", lambda *_, **__: ads)
    with pytest.raises(JobLensError, match=why):
        staff_warrants.sign(str(key_file), "ps", "12.0", public(ASKER), {})


def test_a_key_that_others_can_read_is_not_used_and_none_is_made(key_file: Path, tmp_path: Path) -> None:
    key_file.chmod(0o640)
    with pytest.raises(JobLensError, match="is not its owner's alone"):
        staff_warrants.sign(str(key_file), "ps", "12.0", public(ASKER), {})
    with pytest.raises(JobLensError, match="No such file"):
        staff_warrants.sign(str(tmp_path / "none"), "ps", "12.0", public(ASKER), {})
    assert not (tmp_path / "none").exists()


def test_with_a_staff_key_the_door_is_not_asked(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def carried(path: str, verb: str, fields: dict[str, bytes], *_: object) -> Iterator[bytes]:
        asked.append(path)
        assert warrants.staff_key(fields["packet"]) == public(CAROL)
        yield from ()

    monkeypatch.setenv(staff_warrants.KEY, str(key_file))
    monkeypatch.setattr(afar, "_sockets", lambda: ("/no/door", "/the/relay"))
    monkeypatch.setattr(accesspoint, "read_ads", lambda *_, **__: [AD])
    monkeypatch.setattr(client, "stream", carried)
    with pytest.raises(JobLensError, match="cut off"):
        list(afar.from_afar("ps", {"job": "12.0"}, JobLensError("not here")))
    assert asked == ["/the/relay"]


def test_the_helper_makes_a_key_and_a_line_that_nodes_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.key"
    command = ["staff", str(file), "--name", "carol", "--verbs", "ps,log", "--user", "*@pool"]
    for _ in range(2):  # the key stays
        assert main([*command, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        key = public(keys.known_key(str(file)))
        person = parse_staff(said["Line"])[key]
        assert (person.name, person.verbs, person.users) == ("carol", {"ps", "log"}, ("*@pool",))
    assert file.stat().st_mode & 0o777 == 0o600
    assert main(command) == 0
    assert said["Line"] in capsys.readouterr().out


def test_the_helper_makes_no_key_for_a_line_that_no_node_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my.key"
    assert main(["staff", str(file), "--name", "carol", "--verbs", "reboot"]) == 1
    assert "there is no verb reboot" in capsys.readouterr().err and not file.exists()
