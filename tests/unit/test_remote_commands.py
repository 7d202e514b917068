"""Commands from afar: joblensd does what a job's access point vouches for, once, and answers who has asked alone."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_node import OWNER, Made, make
from control_socket import Server
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from test_commands import Site

from condor_joblens.agent import remote_commands
from condor_joblens.agent.lifecycle import startd_truth
from condor_joblens.commands import authority
from condor_joblens.commands.authority import MAY, Caller
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.user_names import NOBODY, UserNames
from condor_joblens.control import audit, client, frames, keys, sealed_client, warrants
from condor_joblens.control.sealed_answers import Opener
from condor_joblens.control.verbs import VERBS, Payer, Refused
from condor_joblens.control.warrants import Meant, Warrant
from condor_joblens.model.metrics import cut
from condor_joblens.publish import node_key
from condor_joblens.startd.startd_answers import SlotJob

ACCESS_POINT, NODE, ELSEWHERE = (Ed25519PrivateKey.generate() for _ in range(3))
ASKER, CARRIER = (X25519PrivateKey.generate() for _ in range(2))
MEANT = Meant("alice@pool", "ap#12.0#1700000000#1", "slot1_1@node")


def public(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return found


@dataclass
class FarSite(Site):
    """A node that takes commands from afar; a child of it says `hello` to whatever it is asked."""

    remote: Any = field(
        default_factory=lambda: SimpleNamespace(key=NODE, meant=lambda _: (MEANT, public(ACCESS_POINT)))
    )

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Any) -> None:
        self.done.append((whose, dict(request)))
        stream.send(b"=hello")
        stream.end({})


@dataclass
class Far:
    """A node behind its control socket, and who asks it from afar."""

    path: str
    site: FarSite
    carried: list[bytes] = field(default_factory=list)  # what whoever carries it has seen

    def warrant(self, verb: str, **arguments: bytes) -> Warrant:
        now = int(time.time() * 1000)
        nonce, key = warrants.new_nonce(), public(ASKER)
        return Warrant(MEANT.user, MEANT.user, MEANT.run, MEANT.node, verb, arguments, key, nonce, now, now + 60_000)

    def carry(self, packet: bytes) -> Iterator[bytes]:
        for data in client.stream(self.path, "warrant", {"job": "12.0", "packet": packet}):
            self.carried.append(data)
            yield data

    def ask(self, warrant: Warrant, key: Ed25519PrivateKey = ACCESS_POINT) -> tuple[list[bytes], dict[str, str]]:
        """The messages of the answer, and the fields of its end. Raises JobLensError."""
        packet = warrants.sign(warrant, key)
        verb = warrant.verb if warrant.verb in VERBS else "ps"
        answer = sealed_client.opened(self.carry(packet), Opener(packet, ASKER, public(NODE)), verb)
        found = []
        while True:
            try:
                found.append(next(answer))
            except StopIteration as end:
                return found, end.value


class Older(warrants.Acceptance):
    """Of a joblensd that was started a minute ago."""

    def __init__(self) -> None:
        super().__init__()
        self._started -= 60


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Far]]:
    monkeypatch.setattr(warrants, "Acceptance", Older)
    servers = []

    def begin(**facts: Any) -> Far:
        site, path = FarSite(**facts), str(tmp_path / "activate.sock")
        servers.append(Server(path, Dispatcher(site).stream))
        return Far(path, site)

    yield begin
    for server in servers:
        server.stop()


ASKED: dict[str, dict[str, bytes]] = {
    "ps": {},
    "tail": {"file": b"stdout", "lines": b"3", "follow": b"1"},
    "head": {"file": b"logs/x", "lines": b"3"},
    "cat": {"file": b"logs/x"},
    "log": {"lines": b"3", "follow": b"1"},
    "get": {"file": b"logs/x", "offset": b"70000"},
    "env": {"pid": b"7"},
    "peek": {"spec": b"prog:counter", "follow": b"1", "every": b"2", "seconds": b"60"},
    "node": {},
    "ls": {"folder": b"logs"},
    "kill": {"signal": b"15", "pid": b"7"},
    "notify": {"text": b"stop soon"},
    "level": {},
    "evidence": {},
    "last": {},
    "trace": {"spec": b"prog:main", "seconds": b"5"},
    "artifacts": {"name": b"hang"},
}


def test_every_verb_that_may_be_asked_from_afar_is_asked_here() -> None:
    assert {verb for verb, may in MAY.items() if Caller.VOUCHED in may} == set(ASKED)


@pytest.mark.parametrize("verb", ["ps", "tail", "kill", "trace"])
def test_it_is_done_as_the_jobs_owner_and_said_in_the_log(verb: str, serve: Callable[..., Far]) -> None:
    far = serve()
    asked = far.warrant(verb, **ASKED[verb])
    assert far.ask(asked) == ([b"=hello"], {})
    ((uid, request),) = far.site.done
    assert uid == OWNER and request["verb"] == verb
    assert f"alice@pool (from afar) asks for {verb} by {warrants.name_of(asked)}" in far.site.lines[0]
    while len(far.site.lines) < 2:  # it is said when it has begun
        time.sleep(0.01)
    assert f"alice@pool (from afar) asked for {verb}" in far.site.lines[1]


def test_a_level_is_given_as_the_owner_would_give_it(serve: Callable[..., Far]) -> None:
    far = serve()
    _, fields = far.ask(far.warrant("level"))
    assert (fields["job_id"], fields["level"]) == ("12.0", "basic")
    far.ask(far.warrant("level", level=b"io"))
    state = far.site.runs.state[0]
    assert far.site.settled == [0] and state["override_level"] == 2 and not state["override_by_root"]
    with pytest.raises(JobLensError, match="it was changed a moment ago"):
        far.ask(far.warrant("level", level=b"off"))
    assert far.ask(far.warrant("level"))[1]["job_id"] == "12.0"  # to ask what it is, it is never too soon


@pytest.mark.parametrize("by", ["root@pool", "bob@pool by condor_qedit"])
def test_a_level_that_another_gives_for_the_owner_has_his_name(by: str, serve: Callable[..., Far]) -> None:
    far = serve()
    far.ask(replace(far.warrant("level", level=b"io"), by=by))
    assert far.site.runs.state["override_reason"][0].startswith(f"by {by} until ".encode())
    assert not far.site.runs.state["override_by_root"][0]


def test_what_its_threads_wait_for_is_looked_at_as_the_owner(
    serve: Callable[..., Far], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[tuple[int, int]]()

    def take(site: Site, run: int, uid: int, stream: Any) -> None:
        looked.append((run, uid))
        stream.send(b'{"Threads":[]}\n')
        stream.end({})

    monkeypatch.setattr(FarSite, "take_evidence", take)
    far = serve()
    far.site.appear(1, 8)
    far.site.runs.rows["job_id"][1], far.site.runs.rows["slot"][1] = b"13.0", b"slot1_2"
    assert far.ask(far.warrant("evidence")) == ([b'{"Threads":[]}\n'], {})
    assert looked == [(0, OWNER)]


def test_what_it_did_last_is_kept_for_its_owner(serve: Callable[..., Far]) -> None:
    far = serve()
    assert far.ask(far.warrant("last")) == ([], {"tagged": "1.000000"})
    assert far.site.done == [(OWNER, {"run": 0})]


def test_whoever_carries_it_reads_nothing(serve: Callable[..., Far]) -> None:
    far = serve()
    far.ask(far.warrant("ps"))
    assert len(far.carried) == 3 and not any(b"hello" in each for each in far.carried)
    packet = warrants.sign(far.warrant("ps"), ACCESS_POINT)
    with pytest.raises(JobLensError, match="not believed"):
        list(sealed_client.opened(far.carry(packet), Opener(packet, CARRIER, public(NODE)), "ps"))


def test_a_super_user_s_commands_are_done_as_the_owner_and_the_log_has_both(serve: Callable[..., Far]) -> None:
    far = serve()
    asked = replace(far.warrant("ps"), by="root@pool")
    assert far.ask(asked) == ([b"=hello"], {})
    ((whose, _),) = far.site.done
    assert whose == "super users, for alice@pool,"
    assert f"root@pool (from afar, for alice@pool) asks for ps by {warrants.name_of(asked)}" in far.site.lines[0]


@pytest.mark.parametrize("by, has_values", [("alice@pool", True), ("root@pool", False), ("alice@elsewhere", False)])
def test_values_of_an_environment_are_for_the_job_s_own_user(
    by: str, has_values: bool, serve: Callable[..., Far]
) -> None:
    far = serve()
    far.ask(replace(far.warrant("env"), by=by))
    ((_, request),) = far.site.done
    assert request["values"] is has_values


@pytest.mark.parametrize("verb", ["ps", "notify"])
def test_a_user_who_asks_for_all_that_he_may_takes_nothing_of_a_super_user_s_pace(
    verb: str, serve: Callable[..., Far], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "A_SECOND", 0.0)
    far = serve()

    def ask(by: str) -> None:
        far.ask(replace(far.warrant(verb, **ASKED.get(verb, {})), by=by))

    for number in range(audit.IN_A_ROW):
        # bob may edit the job, and pays as its user
        ask("bob@elsewhere by condor_qedit" if number % 2 else "alice@pool")
    for by in ("alice@pool", "bob@elsewhere by condor_qedit"):
        with pytest.raises(JobLensError, match="from now on one a second"):
            ask(by)
    for number in range(audit.IN_A_ROW):
        ask(f"root{number}@pool")  # the access point can write any name
    with pytest.raises(JobLensError, match="from now on one a second"):
        ask("another@pool")


@pytest.mark.parametrize("user", ["root@pool", "bob@pool"])
def test_a_super_user_s_warrant_is_for_the_job_s_own_user(user: str, serve: Callable[..., Far]) -> None:
    far = serve()
    with pytest.raises(JobLensError, match="another user"):
        far.ask(replace(far.warrant("kill", **ASKED["kill"]), user=user, by="root@pool"))
    assert far.site.done == []


def test_it_is_done_once(serve: Callable[..., Far]) -> None:
    far = serve()
    asked = far.warrant("kill", **ASKED["kill"])
    far.ask(asked)
    with pytest.raises(JobLensError, match="taken before"):
        far.ask(asked)
    assert len(far.site.done) == 1
    assert any("brought a warrant, and was refused: this has been taken before" in line for line in far.site.lines)


@pytest.mark.parametrize(
    ("hours", "said"),
    [(1, "the node's clock or the access point's is wrong"), (-1, "too old: it came late, or a clock is wrong")],
)
def test_a_clock_that_is_an_hour_off_is_said_to_who_asks_and_in_the_log(
    hours: int, said: str, serve: Callable[..., Far]
) -> None:
    far = serve()
    asked, off = far.warrant("kill", **ASKED["kill"]), hours * 3_600_000
    with pytest.raises(JobLensError, match=said):
        far.ask(replace(asked, begins=asked.begins + off, ends=asked.ends + off))
    assert far.site.done == [] and said in far.site.lines[0]
    assert far.ask(far.warrant("kill", **ASKED["kill"])) == ([b"=hello"], {}), "another one is taken"


def test_from_afar_the_jobs_of_another_access_point_are_not_named(serve: Callable[..., Far]) -> None:
    far = serve()
    far.site.appear(1, 8)
    rows = far.site.runs.rows
    for run, job, name in ((0, b"12.0", b"ap#12.0#1700000000"), (1, b"4712.0", b"other#4712.0#1700000000")):
        rows["job_id"][run], rows["global_job_id"][run], rows["slot"][run] = job, name, b"slot1_%d" % run
    far.ask(far.warrant("node"))
    asked: Any = far.site.done.pop()[1]
    assert [each["JobId"] for each in asked["jobs"]] == ["12.0"]


class Unfinished(FarSite):
    """Whatever it is asked goes on."""

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Any) -> None:
        stream.send(b"=hello")


def test_commands_of_one_user_take_no_place_of_who_carries_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warrants, "Acceptance", Older)
    far = Far(str(tmp_path / "activate.sock"), Unfinished())
    server = Server(far.path, Dispatcher(far.site).stream)
    answers = [far.carry(warrants.sign(far.warrant("ps"), ACCESS_POINT)) for _ in range(9)]
    assert [len(list(itertools.islice(answer, 2))) for answer in answers] == [2] * 9
    server.stop()


@pytest.mark.parametrize(
    "other, why",
    [
        ({"user": "bob@pool"}, "another user"),
        ({"user": "alice@elsewhere"}, "another user"),
        ({"run": "ap#12.0#1700000000#2"}, "another run"),
        ({"node": "slot1_1@next"}, "another node"),
        ({"begins": 1000, "ends": 61_000}, "too old"),
    ],
)
def test_what_is_for_somebody_or_something_else_is_refused(
    other: dict[str, Any], why: str, serve: Callable[..., Far]
) -> None:
    far = serve()
    with pytest.raises(JobLensError, match=why):
        far.ask(replace(far.warrant("kill", **ASKED["kill"]), **other))
    assert far.site.done == [] and far.carried == []


def test_another_access_point_s_word_counts_nothing(serve: Callable[..., Far]) -> None:
    far = serve()
    with pytest.raises(JobLensError, match="has not signed this"):
        far.ask(far.warrant("ps"), ELSEWHERE)
    assert far.site.done == []


@pytest.mark.parametrize("verb", [*sorted(set(VERBS) - set(ASKED)), "reboot"])
def test_other_verbs_are_not_done_from_afar_and_the_node_says_so_itself(verb: str, serve: Callable[..., Far]) -> None:
    far = serve()
    with pytest.raises(JobLensError, match="is not done from afar"):
        far.ask(far.warrant(verb))
    assert far.site.done == [] and far.site.began == []
    assert far.carried, "the refusal is sealed"


def test_wrong_arguments_are_refused_by_the_node_itself(serve: Callable[..., Far]) -> None:
    far = serve()
    for arguments in ({"signal": b"0"}, {"signal": b"15", "uid": b"0"}, {}):
        with pytest.raises(JobLensError, match="joblensd refuses"):
            far.ask(far.warrant("kill", **arguments))
    assert far.site.done == []


def test_the_job_that_was_looked_up_is_the_one_that_was_vouched_for(serve: Callable[..., Far]) -> None:
    far = serve()
    far.site.appear(1, 8)
    far.site.runs.rows["job_id"][1], far.site.runs.rows["slot"][1] = b"13.0", b"slot1_2"
    far.ask(far.warrant("ps", job=b"13.0"))
    assert "run 12.0" in far.site.lines[0] and len(far.site.done) == 1


@pytest.mark.parametrize("owner, why", [(None, "nobody knows"), (0, "runs as root")])
def test_nothing_is_done_as_root_or_as_nobody_knows_whom(
    owner: int | None, why: str, serve: Callable[..., Far]
) -> None:
    far = serve(owner=owner)
    with pytest.raises(JobLensError, match=why):
        far.ask(far.warrant("ps"))
    assert far.site.done == []


def test_nothing_is_done_in_a_job_that_runs_as_nobody(
    serve: Callable[..., Far], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "name_of", lambda uid: "nfsnobody")
    far = serve(owner=NOBODY)
    with pytest.raises(JobLensError, match="runs as nfsnobody"):
        far.ask(far.warrant("ps"))


def test_a_user_who_is_removed_while_his_warrant_lives_is_his_number_and_nobody_else(
    serve: Callable[..., Far], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done has the number of the user as whom the job runs: no name is looked up for it."""
    monkeypatch.setattr(authority, "NAMES", UserNames(lambda uid: None))
    far = serve()
    asked = far.warrant("kill", **ASKED["kill"])
    assert far.ask(asked) == ([b"=hello"], {})
    assert [whose for whose, _ in far.site.done] == [OWNER]
    assert f"alice@pool (from afar) asks for kill by {warrants.name_of(asked)}" in far.site.lines[0]


def test_a_node_that_takes_none_says_so(serve: Callable[..., Far]) -> None:
    far = serve(remote=None)
    with pytest.raises(JobLensError, match="takes no commands from afar"):
        far.ask(far.warrant("ps"))


# -- what a carrier can do to the answer ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "invented",
    [
        [b"=hello"],
        [b"D=hello", b"E"],
        [frames.DATA + b"=hello", frames.END + frames.encode_words("over", {})],
    ],
)
def test_an_answer_that_the_node_has_not_made_is_not_believed(invented: list[bytes]) -> None:
    with pytest.raises(JobLensError, match="not believed"):
        list(sealed_client.opened(invented, Opener(b"packet", ASKER, public(NODE)), "ps"))


def test_an_answer_without_its_end_is_said_to_be_cut_off(serve: Callable[..., Far]) -> None:
    far = serve()
    packet = warrants.sign(far.warrant("ps"), ACCESS_POINT)
    carried = list(far.carry(packet))
    for kept in (carried[:-1], carried[:1], []):
        with pytest.raises(JobLensError, match="cut off"):
            list(sealed_client.opened(kept, Opener(packet, ASKER, public(NODE)), "ps"))


# -- what joblensd knows of the access point ------------------------------------------------------------------

GLOBAL_ID = "ap#12.0#1700000000"


def slot_job(**other: str) -> SlotJob:
    facts = {
        "Name": "slot1_1@node", "GlobalJobId": GLOBAL_ID, "RemoteUser": "alice@pool",
        "JobLensKey": keys.text_of(public(ACCESS_POINT)), **other,
    }  # fmt: skip
    return SlotJob("slot1_1", 5, "".join(f'{name} = "{value}"\n' for name, value in facts.items()).encode())


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    it = make(tmp_path, monkeypatch, remote_commands=True)
    run = it.begin("12.0")
    rows = it.node.runs.rows[run : run + 1]
    rows["global_job_id"], rows["run"] = cut(GLOBAL_ID, "global_job_id"), cut(f"{GLOBAL_ID}#1", "run")
    return it


def test_whom_a_warrant_is_for_is_what_the_startd_holds(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = remote_commands.open_remote_commands(made.agent)
    assert remote is not None
    monkeypatch.setattr(startd_truth, "job_of", lambda agent, run: slot_job())
    assert remote.meant(0) == (Meant("alice@pool", f"{GLOBAL_ID}#1", "slot1_1@node"), public(ACCESS_POINT))
    monkeypatch.setattr(startd_truth, "job_of", lambda agent, run: slot_job(GlobalJobId="ap#13.0#1700000000"))
    with pytest.raises(Refused, match="another job"):
        remote.meant(0)
    monkeypatch.setattr(startd_truth, "job_of", lambda agent, run: None)
    with pytest.raises(Refused, match="has not confirmed"):
        remote.meant(0)


def test_a_key_is_one_or_none() -> None:
    key = public(ACCESS_POINT)
    assert keys.key_in(keys.text_of(key)) == key
    for wrong in ("", "mine", "ed25519:", "ed25519:AAAA", keys.text_of(key) + "=", "rsa:" + "A" * 43 + "="):
        assert keys.key_in(wrong) == b""


def test_the_nodes_key_is_its_own_and_stays(made: Made, tmp_path: Path) -> None:
    first, again = (remote_commands.open_remote_commands(made.agent) for _ in range(2))
    assert first is not None and again is not None and public(first.key) == public(again.key)
    assert made.agent.output.job_ads.node_key == keys.text_of(public(first.key)) == node_key.known(str(tmp_path))
    path = tmp_path / remote_commands.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    os.chmod(path, 0o640)
    assert remote_commands.open_remote_commands(made.agent) is None
    assert "the node's key can't be had" in made.log[-1]
    assert made.agent.output.job_ads.node_key == node_key.known(str(tmp_path)) == "", (
        "nobody is told of a key that is none"
    )
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"k" * 32)
    assert remote_commands.open_remote_commands(made.agent) is None


def test_a_node_that_takes_none_loads_nothing_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote_commands.open_remote_commands(make(tmp_path, monkeypatch).agent) is None
    assert not (tmp_path / remote_commands.FILE).exists()
    loads = "import sys, condor_joblens.agent.__main__; print('cryptography' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"


@pytest.mark.parametrize("text", ["", "ed25519:", 'ed25519:AAA";Run="x', "ed25519:AAAA\n", "x" * 1000])
def test_what_is_no_key_is_in_no_ad(tmp_path: Path, text: str) -> None:
    path = tmp_path / node_key.FILE
    path.write_text(text)
    assert node_key.known(str(tmp_path)) == ""
    path.unlink()
    assert node_key.known(str(tmp_path)) == ""
    os.mkfifo(path)
    assert node_key.known(str(tmp_path)) == ""
    path.unlink()
    path.symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text("ed25519:AAAA")
    assert node_key.known(str(tmp_path)) == ""
    node_key.put(str(tmp_path), "ed25519:AAAA")
    assert node_key.known(str(tmp_path)) == "ed25519:AAAA"
