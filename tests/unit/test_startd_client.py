"""Asking startds: a real shell, and a condor_status that a test writes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from condor_joblens.common import readiness
from condor_joblens.common.own_process import HelperLost
from condor_joblens.policy.job_identity import literals
from condor_joblens.startd.startd_answers import Answer
from condor_joblens.startd.startd_child import MAX_BYTES, MAX_LINE, StartdChild
from condor_joblens.startd.startd_client import BACKOFF, StartdClient

ANSWERS = """#!/bin/sh
echo asked >>{folder}/questions
cat <<'end'
[
{{ "Name": "slot1_1@node", "GlobalJobId": "ap#1.0#1", "JobId": "1.0" }}
]
end
"""
FAILS = "#!/bin/sh\necho 'Error: communication error' >&2\nexit 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "address").write_text("<127.0.0.1:9618?sock=startd_1>\n$CondorVersion$\n")
    condor_status(tmp_path, ANSWERS.format(folder=tmp_path))
    return tmp_path


def condor_status(folder: Path, text: str) -> None:
    (folder / "condor_status").write_text(text)
    (folder / "condor_status").chmod(0o755)


@pytest.fixture
def client(folder: Path) -> Iterator[StartdClient]:
    made = StartdClient(lambda: StartdChild(None), [str(folder / "address")], ["Name", "JobId"])
    yield made
    made.stop()


def until_done(client: StartdClient) -> Answer | None:
    """What comes of the question: its answer, or None if it fails."""
    before, end = client.fault, time.monotonic() + 30
    while time.monotonic() < end:
        readiness.readable([client.fileno()], min(0.05, client.timeout(time.monotonic()) or 0.05))
        answer = client.receive(time.monotonic())
        if answer is not None or client.fault != before:
            return answer
    raise AssertionError("nothing has come of the question")


def questions(folder: Path) -> int:
    return len((folder / "questions").read_text().splitlines())


def test_one_question_answers_all_who_want_to_know(client: StartdClient, folder: Path) -> None:
    for _ in range(100):
        client.want(time.monotonic())
    answer = until_done(client)
    assert answer is not None and [job.slot for job in answer.jobs] == ["slot1_1"]
    assert (client.fault, questions(folder)) == ("", 1)
    assert client.timeout(time.monotonic()) is None


def test_who_wants_to_know_meanwhile_gets_another_question(client: StartdClient, folder: Path) -> None:
    client.want(time.monotonic())
    assert until_done(client) is not None
    client.want(time.monotonic())
    assert until_done(client) is not None
    assert questions(folder) == 2


def test_questions_take_a_small_share_of_the_time(folder: Path) -> None:
    """Each is about 48 slots, which take a startd 50 ms at most: some at once, and then one a second."""
    slots = ",".join(f'{{"Name": "slot1_{number}@node"}}' for number in range(48))

    class Instantly(StartdChild):
        def take(self, number: int) -> bytes | None:
            return f"[\n{slots}]\n= 1 0 /a\n".encode() if number else None

    client = StartdClient(lambda: Instantly(None), [str(folder / "address")], ["Name"])
    now, asked = 100.0, []
    while now < 160.0:
        client.want(now)
        wait = client.timeout(now) or 0.0
        if client.timeout(now + wait) == 0.0:
            now += wait
        client.receive(now)
        asked.append(now)
        now += 0.05
        client.receive(now)
    at_once, later = sum(at < 102 for at in asked), sum(at >= 120 for at in asked)
    assert 8 <= at_once <= 15
    assert 35 <= later <= 45, "one a second"
    client.stop()


def test_a_busy_node_makes_no_question_dearer(folder: Path) -> None:
    """Each takes two seconds until condor_status has had a core: the startd has not worked longer for that."""

    class Late(StartdChild):
        def take(self, number: int) -> bytes | None:
            return b'[\n{"Name": "slot1_1@node"}]\n= 1 0 /a\n' if number else None

    client = StartdClient(lambda: Late(None), [str(folder / "address")], ["Name"])
    now = 100.0
    for _ in range(20):
        client.want(now)
        wait = client.timeout(now) or 0.0
        assert wait < 0.1
        client.receive(now + wait)
        now += wait + 2.0
        assert client.receive(now) is not None
    client.stop()


def test_a_startd_that_can_not_be_asked(client: StartdClient, folder: Path) -> None:
    condor_status(folder, FAILS)
    now = time.monotonic()
    client.want(now)
    assert until_done(client) is None
    assert client.fault == "Error: communication error"
    wait = client.timeout(time.monotonic())
    assert wait is not None and 0 < wait <= BACKOFF[0], "it is asked again, without a new wish"
    condor_status(folder, ANSWERS.format(folder=folder))
    assert until_done(client) is not None
    assert client.fault == ""


def test_pauses_grow_from_failure_to_failure(folder: Path) -> None:
    def never() -> StartdChild:
        raise FileNotFoundError(2, "no shell")

    client = StartdClient(never, [str(folder / "address")], ["Name"])
    client.want(0.0)
    now, pauses = 0.01, []
    for _ in range(8):
        client.receive(now)
        pauses.append(client.timeout(now))
        now += pauses[-1] or 0
    assert pauses == pytest.approx([*BACKOFF, BACKOFF[-1], BACKOFF[-1]])
    assert client.fault == "the process that asks can't be started: no shell"
    client.stop()


def test_a_process_that_is_killed_is_replaced(client: StartdClient) -> None:
    client.want(time.monotonic())
    assert until_done(client) is not None
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    readiness.readable([client.fileno()], 10)
    assert client.receive(time.monotonic()) is None
    assert readiness.readable([client.fileno()], 0) == [], "its end is taken once"
    client.want(time.monotonic())
    assert until_done(client) is not None


def test_if_it_has_ended_and_only_root_can_start_another_joblensd_begins_again(folder: Path) -> None:
    children = [StartdChild(None)]
    client = StartdClient(children.pop, [str(folder / "address")], ["Name"], only_once=True)
    client.begin()
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    assert readiness.readable([client.fileno()], 30)
    with pytest.raises(HelperLost, match="the process that asks startds has ended"):
        client.receive(time.monotonic())
    client.stop()


def test_a_signal_to_all_of_joblensds_processes_is_joblensds_to_obey(client: StartdClient) -> None:
    client.want(time.monotonic())
    assert until_done(client) is not None and client._child is not None
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(client._child.pid, number)
    pid = client._child.pid
    client.want(time.monotonic())
    assert until_done(client) is not None and client._child.pid == pid and client.fault == ""


def test_an_address_that_is_not_there_and_none_at_all(client: StartdClient, folder: Path) -> None:
    (folder / "address").unlink()
    client.want(time.monotonic())
    assert until_done(client) is None
    assert "address" in client.fault
    client.files = []
    assert until_done(client) is None
    assert client.fault == "HTCondor's configuration names no STARTD_ADDRESS_FILE"


def test_a_startd_that_says_nothing_is_given_up(
    client: StartdClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    condor_status(folder, "#!/bin/sh\nexec sleep 600\n")
    now = time.monotonic()
    client.want(now)
    client.receive(now + 0.02)
    assert client.pid is not None
    client.receive(now + 3600)
    assert client.fault.startswith("no answer within") and client.pid is not None


def test_an_endless_answer_is_none_and_the_next_one_is_heard(client: StartdClient, folder: Path) -> None:
    condor_status(folder, f"#!/bin/sh\nyes {'x' * 1000} | head -c {2 * MAX_BYTES}\n")
    client.want(time.monotonic())
    assert until_done(client) is None
    assert "longer than" in client.fault
    pid = client.pid
    condor_status(folder, ANSWERS.format(folder=folder))
    client.receive(time.monotonic() + 3600)
    answer = until_done(client)
    assert answer is not None and [job.slot for job in answer.jobs] == ["slot1_1"]
    assert (client.fault, client.pid) == ("", pid), "joblensd can't start another as that user"


@pytest.mark.parametrize("length", [MAX_LINE, 200_000, 3_000_000])
def test_an_endless_attribute_is_left_out_alone(client: StartdClient, folder: Path, length: int) -> None:
    ad = '{\n  "Name": "slot%s@node",\n  "GlobalJobId": "%s",\n  "JobId": "%s"\n}'
    says = [("1_1", "x" * length, "1.0"), ("1_2", "ap#2.0#1", "2." + "0" * length), ("1_3", "ap#3", "3.0")]
    ads = [ad % of_slot for of_slot in says]
    (folder / "ads").write_text("[\n" + ",\n".join(ads) + "\n]\n")
    condor_status(folder, f"#!/bin/sh\nexec cat {folder}/ads\n")
    client.want(time.monotonic())
    answer = until_done(client)
    assert answer is not None and [job.slot for job in answer.jobs] == ["slot1_1", "slot1_2", "slot1_3"]
    ids = [literals(job.ad).get("GlobalJobId") for job in answer.jobs]
    assert ids == [None, "ap#2.0#1", "ap#3"]
    assert [literals(job.ad).get("ClusterId") for job in answer.jobs] == [1, None, 3]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_runs_as_another_user_and_without_the_pools_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDOR_PRIVATE_INHERIT", "secret")
    child = StartdChild((65534, 65534))
    status = Path(f"/proc/{child.pid}/status").read_text()
    assert "Uid:\t65534\t65534\t65534\t65534" in status and "Groups:\t \n" in status
    assert "CapPrm:\t0000000000000000" in status
    assert b"secret" not in Path(f"/proc/{child.pid}/environ").read_bytes()
    child.end()
