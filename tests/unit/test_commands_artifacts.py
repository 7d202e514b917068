"""Artifacts over the control socket, and `joblens artifacts`: a job's owner gets what is kept about it, nobody else."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_node import OWNER
from control_socket import Server, client, request
from test_commands import STRANGER, Site

from condor_joblens.cli import artifacts as cli
from condor_joblens.cli.main import main
from condor_joblens.commands import authority, dispatch
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common import user_names
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import SOCKET, frames
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request, Vouched
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact, pack, parse_alone
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter

SLOT_USER = OWNER + 7


def about(job: str = "12.0", number: int = 7, start: int = 1, **more: Any) -> Artifact:
    facts: dict[str, Any] = {
        "kind": "hang", "content_type": "text/plain", "run_number": number, "begun": 1e9, "ended": 1e9 + 60,
        "run": f"ap.example.org#{job}#1700000000#{start}", "owner": "alice", "slot": "slot1_1", "uid": OWNER, **more,
    }  # fmt: skip
    return Artifact(**facts)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactWriter:
    return ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(8 << 20, 64 << 20, 3600))


class Collector:
    """A stream that keeps what is sent, and takes one message at a time if it is slow."""

    def __init__(self, is_slow: bool = False) -> None:
        self.data: list[bytes] = []
        self.is_slow, self.is_over, self.refused = is_slow, False, ""
        self.on_room = self.on_close = lambda: None

    def send(self, data: bytes) -> bool:
        assert 0 < len(data) <= frames.MAX_ANSWER and not self.is_over
        self.data.append(data)
        return not self.is_slow

    def end(self, fields: dict[str, str]) -> None:
        self.is_over = True

    def refuse(self, reason: str) -> None:
        self.refused = reason


def asked(store: ArtifactWriter, uid: int = 0, job: str = "12.0", site: Site | None = None, **more: Any) -> Collector:
    site, collector = site or Site(), more.pop("collector", None) or Collector()
    site.artifacts = store
    Dispatcher(site).stream(Request("artifacts", {"job": job, **more}, 1, uid), collector)
    return collector


def headers(collector: Collector) -> list[Artifact]:
    data = b"".join(collector.data)
    assert collector.is_over
    return [parse_alone(data[at : at + HEADER_BYTES]) for at in range(0, len(data), HEADER_BYTES)]


# -- from afar ------------------------------------------------------------------------------------------------


def from_afar(store: ArtifactWriter, run: int = 0, job: str = "12.0", **more: Any) -> Collector:
    """What comes of a warrant for a run; `job` is what its carrier says."""
    site, collector = Site(), Collector()
    site.appear(1, 8)
    site.runs.rows["job_id"][1] = b"13.0"
    site.artifacts = store
    vouched = Vouched("alice@pool", "alice@pool", run)
    Dispatcher(site).stream(Request("artifacts", {"job": job, **more}, 1, OWNER, vouched), collector)  # type: ignore[arg-type]
    return collector


def test_from_afar_those_of_the_run_that_is_vouched_for_alone(store: ArtifactWriter) -> None:
    store.add(about(number=6), [b"of a run before"])
    store.add(about(number=7), [b"of this one"])
    store.add(about(job="13.0", number=8), [b"of another job of the same owner"])
    for said in ("12.0", "13.0", "12", "slot1_1"):
        assert [each.run_number for each in headers(from_afar(store, job=said, all=True))] == [7]
    assert b"".join(from_afar(store, name="hang").data)[HEADER_BYTES:] == b"of this one"
    assert [each.run_number for each in headers(from_afar(store, run=1))] == [8]
    with pytest.raises(Refused, match="the job has no artifact nothing"):
        from_afar(store, name="nothing")


def test_from_afar_nothing_that_is_kept_is_said_so(store: ArtifactWriter) -> None:
    store.add(about(number=6), [b"of a run before"])
    with pytest.raises(Refused, match="nothing is kept of this run yet, which is at level basic: profiles") as why:
        from_afar(store)
    assert len(str(why.value)) <= 200, "as much as a refusal has (control/stream.py)"


def test_from_afar_there_is_a_bound(store: ArtifactWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [store.add(about(), [b"x" * 100]).name for _ in range(3)]
    monkeypatch.setattr("condor_joblens.commands.artifacts.MOST_AFAR", 2 * HEADER_BYTES)
    assert [each.name for each in headers(from_afar(store))] == names[1:], "the newest headers"
    monkeypatch.setattr("condor_joblens.commands.artifacts.MOST_AFAR", HEADER_BYTES + 100)
    assert from_afar(store, name="hang").is_over
    monkeypatch.setattr("condor_joblens.commands.artifacts.MOST_AFAR", HEADER_BYTES + 99)
    with pytest.raises(Refused, match=r"\.hang has \d+ bytes, and \d+ come from afar: ask on the job's node"):
        from_afar(store, name="hang")
    assert asked(store, OWNER, name="hang").is_over, "on the node there is none"


# -- whose ----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {OWNER: "alice", STRANGER: "bob", SLOT_USER: "slot1_1"}
    monkeypatch.setattr(authority, "name_of", lambda uid: known.get(uid, "nobody"))


def over(site: Site) -> Site:
    """The run is over, and its place in the table is free."""
    site.runs.state["used"][0] = False
    return site


@pytest.mark.parametrize("lives", [True, False])
@pytest.mark.parametrize(
    "uid, facts, may",
    [
        (0, {}, True),
        (OWNER, {}, True),
        (STRANGER, {}, False),
        (OWNER, {"uid": None}, False),
        (0, {"uid": None}, True),
        (65534, {"uid": 65534, "owner": "nobody"}, False),
    ],
)
def test_root_and_the_jobs_owner_may_and_nobody_else(
    store: ArtifactWriter, lives: bool, uid: int, facts: dict[str, Any], may: bool
) -> None:
    stored = store.add(about(**facts), [b"x"])
    site = Site() if lives else over(Site())
    for name in ({}, {"name": stored.name}):
        try:
            assert asked(store, uid, site=site, **name).is_over and may
        except Refused as refused:
            assert not may and str(refused) == "only root and the user as whom the job runs may do this"


def test_the_next_job_of_a_slots_user_does_not_get_what_was_kept_about_the_one_before(store: ArtifactWriter) -> None:
    store.add(about(uid=SLOT_USER), [b"x"])
    assert headers(asked(store, SLOT_USER, site=Site(owner=SLOT_USER))), "as long as it runs it can see all of its own"
    after = Site(owner=SLOT_USER)
    after.appear(0, number=8)
    with pytest.raises(Refused, match="only root"):
        asked(store, SLOT_USER, site=after)


def test_an_artifact_of_unknown_owner_among_others_is_roots(store: ArtifactWriter) -> None:
    store.add(about(), [b"x"])
    store.add(about(uid=None), [b"y"])
    with pytest.raises(Refused, match="only root"):
        asked(store, OWNER)


# -- which ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["12.0", "12", "ap.example.org#12.0#1700000000", "ap.example.org#12.0#1700000000#1", "slot1_1", "slot1_1@n"]
)
def test_a_job_has_many_names(store: ArtifactWriter, name: str) -> None:
    stored = [store.add(about(kind=kind), [b"x"]) for kind in ("hang", "profile", "hang")]
    store.add(about("13.0", 8, slot="slot1_2"), [b"other"])
    assert headers(asked(store, job=name)) == stored


def test_of_several_runs_the_last_is_meant(store: ArtifactWriter) -> None:
    first, second = store.add(about(), [b"x"]), store.add(about(number=9, start=2), [b"x"])
    assert headers(asked(store)) == headers(asked(store, job="slot1_1")) == [second]
    assert headers(asked(store, job=first.run)) == [first]


def test_what_is_not_there_or_not_clear_is_refused(store: ArtifactWriter) -> None:
    with pytest.raises(Refused, match=r"^nothing is kept of a job 12\.0 on this node: profiles and crashes take level"):
        asked(store)
    stored = store.add(about(), [b"x"])
    store.add(about("12.1", 8), [b"x"])
    with pytest.raises(Refused, match=r"12 means several jobs here, say which: 12\.0, 12\.1$"):
        asked(store, job="12")
    store.add(about("12.2", 11, uid=STRANGER, owner="bob"), [b"x"])
    for uid, some in ((0, r": 12\.0, 12\.1, 12\.2"), (STRANGER, r": 12\.2"), (SLOT_USER, "")):
        with pytest.raises(Refused, match=rf"12 means several jobs here, say which{some}$"):
            asked(store, uid, job="12")
    with pytest.raises(Refused, match=r"no artifact trace, but hang: profiles and crashes take"):
        asked(store, name="trace")
    for name in ("../../etc/passwd", "unfinished", ""):
        with pytest.raises(Refused):
            asked(store, name=name)
    os.unlink(f"{store.folder}/{stored.name}")
    with pytest.raises(Refused, match="has been deleted"):
        asked(store, name=stored.name)
    assert headers(asked(store)) == []


def test_all_that_a_name_means(store: ArtifactWriter) -> None:
    stored = [store.add(about(job, number), [b"x"]) for job, number in (("12.0", 7), ("12.0", 9), ("12.1", 8))]
    store.add(about("120.0", 10), [b"other"])
    assert headers(asked(store, job="12", all=True)) == stored
    assert asked(store, job="12", all=True, name=stored[1].name).data[0].endswith(b"x")
    store.add(about("12.2", 11, uid=STRANGER, owner="bob"), [b"x"])
    with pytest.raises(Refused, match="only root"):
        asked(store, OWNER, job="12", all=True)


def test_whose_name_is_not_known_yet_is_answered_when_it_is(
    store: ArtifactWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory service may take its time: nobody else waits for it."""
    monkeypatch.setattr(dispatch, "NAMES", user_names.UserNames())
    monkeypatch.setattr(dispatch.NAMES, "ask", lambda uid: None)
    stored = [store.add(about(), [b"x"])]
    owner, stranger = asked(store, OWNER), asked(store, STRANGER)
    assert not owner.is_over and not owner.data and stranger.refused == ""
    assert headers(asked(store, 0)) == stored
    dispatch.NAMES.learn(OWNER, "alice")
    assert headers(owner) == stored
    dispatch.NAMES.learn(STRANGER, None)
    assert "only root" in stranger.refused and not stranger.data


def test_a_kind_means_the_newest_of_it(store: ArtifactWriter) -> None:
    for content in (b"old", b"new"):
        store.add(about(), [content])
    store.add(about(kind="trace"), [b"trace"])
    assert asked(store, name="hang").data[0].endswith(b"new")


CLAIMED: dict[str, Any] = {
    "run": "slot1_1#?.?#1700000000#5", "owner": "", "claimed_run": "ap.example.org#12.0#1700000000#1",
    "claimed_owner": "alice",
}  # fmt: skip
"""Of a run that was over before its startd had confirmed its job's ad."""


@pytest.mark.parametrize("uid", [0, OWNER])
def test_what_a_jobs_own_ad_alone_says_is_enough_for_its_user_and_for_root(store: ArtifactWriter, uid: int) -> None:
    stored = store.add(about(**CLAIMED), [b"x"])
    for name in ("12.0", "12", CLAIMED["claimed_run"], "slot1_1", CLAIMED["run"]):
        assert headers(asked(store, uid, job=name, site=over(Site()))) == [stored]
    store.add(about("12.1", 9), [b"other"])
    with pytest.raises(Refused, match=r"12 means several jobs here, say which: 12\.0, 12\.1$"):
        asked(store, uid, job="12", site=over(Site()))


def test_a_job_whose_ad_lies_shows_nothing_to_whom_it_names(store: ArtifactWriter) -> None:
    forged = store.add(about(**{**CLAIMED, "claimed_owner": "bob"}), [b"x"])
    for uid in (STRANGER, OWNER, SLOT_USER):
        with pytest.raises(Refused, match=r"nothing is kept of a job 12\.0"):
            asked(store, uid, site=over(Site()))
    assert headers(asked(store)) == [forged], "root is told that it is not sure"
    sure = store.add(about(number=9, uid=STRANGER, owner="bob"), [b"y"])
    forged = store.add(about(number=10, **{**CLAIMED, "claimed_owner": "bob"}), [b"z"])
    assert headers(asked(store)) == headers(asked(store, STRANGER)) == [sure]
    assert forged in headers(asked(store, all=True))


def test_the_next_job_of_a_slots_user_gets_nothing_of_an_unconfirmed_one_either(store: ArtifactWriter) -> None:
    store.add(about(**CLAIMED, uid=SLOT_USER), [b"x"])
    with pytest.raises(Refused, match="nothing is kept"):
        asked(store, SLOT_USER, site=over(Site(owner=SLOT_USER)))


def test_the_last_run_of_a_user_is_meant_also_if_it_is_unconfirmed(store: ArtifactWriter) -> None:
    store.add(about(), [b"x"])
    last = store.add(about(**CLAIMED, number=9), [b"y"])
    assert headers(asked(store, OWNER)) == [last]


# -- how ------------------------------------------------------------------------------------------------------


def test_a_slow_reader_gets_all_of_it_though_it_is_deleted(store: ArtifactWriter) -> None:
    content = os.urandom(3_000_000)
    stored = store.add(about(), [content])
    slow = asked(store, name=stored.name, collector=Collector(is_slow=True))
    os.unlink(f"{store.folder}/{stored.name}")
    while not slow.is_over:
        before = len(slow.data)
        slow.on_room()
        assert len(slow.data) <= before + 1
    assert b"".join(slow.data)[HEADER_BYTES:] == content


def test_a_reader_that_leaves_leaves_nothing_open(store: ArtifactWriter) -> None:
    stored = store.add(about(), [bytes(1_000_000)])
    for _ in range(3):
        asked(store, name=stored.name, collector=Collector(is_slow=True)).on_close()
        asked(store, name=stored.name)
    opened = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    assert not [path for path in opened if path.startswith(os.path.realpath(store.folder) + "/")]


def test_many_come_some_at_a_time(store: ArtifactWriter) -> None:
    stored = [store.add(about(), [b"x"]) for _ in range(130)]
    slow = asked(store, collector=Collector(is_slow=True))
    assert len(slow.data) == 1
    os.unlink(f"{store.folder}/{stored[60].name}")
    while not slow.is_over:
        slow.on_room()
    assert headers(slow) == stored[:60] + stored[61:]


# -- joblens artifacts ----------------------------------------------------------------------------------------


@pytest.fixture
def joblensd(tmp_path: Path, store: ArtifactWriter) -> Iterator[Server]:
    site = Site()
    site.artifacts = store
    dispatcher = Dispatcher(site)

    def begin(request: Request, stream: Stream) -> None:
        # whoever runs the tests is root here
        dispatcher.stream(Request(request.verb, request.arguments, request.pid, 0), stream)

    server = Server(str(tmp_path / SOCKET), begin)
    yield server
    server.stop()


def test_the_list_and_the_file(
    joblensd: Server, store: ArtifactWriter, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    content = os.urandom(5_000_000)
    hang = store.add(about(), ["it wäits\n".encode()])
    profile = store.add(about(kind="profile", content_type="application/x-pprof", content_encoding="gzip"), [content])
    assert main(["artifacts", "12.0", "--run-dir", str(tmp_path)]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "FROM", "TO", "TYPE"]
    assert [line.split()[0] for line in lines[1:]] == [hang.name, profile.name]
    assert lines[2].endswith("application/x-pprof (gzip)") and "4.8 MiB" in lines[2]
    assert main(["artifacts", "12.0", "--json", "--run-dir", str(tmp_path)]) == 0
    [_, told] = json.loads(capsysbinary.readouterr().out)
    assert (told["Artifact"], told["Bytes"], told["Kind"]) == (profile.name, 5_000_000, "profile")
    assert told["Sha256"] == hashlib.sha256(content).hexdigest()
    assert main(["artifacts", "12.0", "hang", "--run-dir", str(tmp_path)]) == 0
    assert capsysbinary.readouterr().out == "it wäits\n".encode()
    file = tmp_path / "profile.gz"
    assert main(["artifacts", "12", profile.name, "-o", str(file), "--run-dir", str(tmp_path)]) == 0
    assert file.read_bytes() == content and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"4.8 MiB of application/x-pprof (gzip)" in capsysbinary.readouterr().out
    file.chmod(0o644)
    assert main(["artifacts", "12", profile.name, "-o", str(file), "--run-dir", str(tmp_path)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "a file that is there becomes its owner's alone"
    (tmp_path / "link").symlink_to(file)
    assert main(["artifacts", "12", profile.name, "-o", str(tmp_path / "link"), "--run-dir", str(tmp_path)]) == 1
    capsysbinary.readouterr()
    assert joblensd.log == []


def test_that_an_ad_is_not_confirmed_is_said(
    joblensd: Server, store: ArtifactWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    content = [b"Process 901\nTraceback (most recent call last):\nKeyError: 7"]
    traceback = store.add(about(**CLAIMED, kind="traceback", content_type="text/plain; charset=utf-8"), content)
    said = {}
    for verb in ("artifacts", "crash"):
        for more in ("", "--json"):
            assert main([verb, "12.0", *more.split(), "--run-dir", str(tmp_path)]) == 0
            said[verb, more] = capsys.readouterr().out
    assert said["artifacts", ""].splitlines()[-1] == f"{traceback.name}: {cli.UNCONFIRMED}"
    head, *rest = said["crash", ""].splitlines()
    assert head.endswith(f" ({cli.UNCONFIRMED})") and rest == ["Traceback (most recent call last):", "KeyError: 7"]
    for verb in ("artifacts", "crash"):
        (told,) = json.loads(said[verb, "--json"])
        assert (told["Run"], told["ClaimedRun"]) == (CLAIMED["run"], CLAIMED["claimed_run"])


def test_what_goes_wrong_is_one_line(
    joblensd: Server, store: ArtifactWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    there = ["--run-dir", str(tmp_path)]
    stored = store.add(about(content_type="application/x-pprof"), [b"\0\1"])

    def error(*arguments: str, code: int = 1) -> str:
        assert main(["artifacts", *arguments, *there]) == code
        return capsys.readouterr().err

    assert "nothing is kept of a job 13.0 on this node: profiles and crashes take level profile" in error("13.0")
    assert "has no artifact trace" in error("12.0", "trace")
    assert "-o needs the name" in error("12.0", "-o", "x", code=2)
    assert "can't be written: Is a directory" in error("12.0", "hang", "-o", str(tmp_path))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert f"{stored.name} is application/x-pprof: say with -o FILE" in error("12.0", "hang")
    path = Path(store.folder, stored.name)
    path.write_bytes(path.read_bytes()[:-1] + b"\2")
    assert "did not arrive whole" in error("12.0", "hang", "-o", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_a_server_that_lies_is_not_believed(tmp_path: Path) -> None:
    good = pack(about())
    for data in (good[:-1], b"x" * HEADER_BYTES, good + b"more"):
        server = Server(str(tmp_path / SOCKET), lambda request, stream, data=data: (stream.send(data), stream.end({})))  # type: ignore[misc]
        try:
            with pytest.raises(JobLensError, match=r"artifact|whole"):
                cli.fetched(str(tmp_path / SOCKET), "12.0", "hang")
        finally:
            server.stop()


def test_a_name_is_bounded(joblensd: Server, tmp_path: Path) -> None:
    with client(str(tmp_path / SOCKET)) as connection:
        assert isinstance(connection, socket.socket)
        for packet in request("artifacts", job=b"12.0", name=b"x" * 65):
            connection.send(packet)
        assert b"write 1 to 64" in connection.recv(1 << 17)
    assert joblensd.asked == []
