"""No run gets more than the default level, nor a name, by an ad that the startd has not confirmed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.lifecycle import first_decision, run_identity, startd_truth
from condor_joblens.jobs.run_state import AdTrust
from condor_joblens.jobs.starter_folders import StarterFolders
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import cut, text
from condor_joblens.policy.job_identity import literals
from condor_joblens.policy.policy_answers import Decision
from condor_joblens.startd.startd_answers import Answer, parse
from condor_joblens.tracer import map_layout

GLOBAL_ID = "ap#12.0#1700000000"
AD = f"""ClusterId = 12
GlobalJobId = "{GLOBAL_ID}"
JobLensLevel = "io"
JobUniverse = 5
Owner = "bob"
ProcId = 0
""".encode()
FORGED = AD.replace(b'"bob"', b'"alice"').replace(b"12", b"1")
STARTER = 313


class Startd:
    """The client, as far as joblensd sees it: a test says what it answers."""

    def __init__(self) -> None:
        self.fault = ""
        self.asked_at = 0.0
        self.wants = 0
        self.answers: list[Answer] = []

    def want(self, now: float) -> None:
        self.wants += 1

    def receive(self, now: float) -> Answer | None:
        if not self.answers:
            return None
        self.asked_at = now
        return self.answers.pop(0)


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch)
    made.agent.startd.client = Startd()  # type: ignore[assignment]
    made.node.ended.resume.return_value = None  # type: ignore[attr-defined]
    return made


def startd(it: Made) -> Startd:
    client: Any = it.agent.startd.client
    return client  # type: ignore[no-any-return]


def answer(it: Made, starter: int = STARTER, slot: str = "slot1_1", **values: object) -> None:
    """The startd says what it holds of the slot."""
    ad = {
        "Name": f"{slot}@node",
        "JobId": "12.0",
        "GlobalJobId": GLOBAL_ID,
        "RemoteUser": "bob@pool",
        "JobUniverse": 5,
        "StarterPid": starter,
        **values,
    }
    said = json.dumps([{name: value for name, value in ad.items() if value}], indent=1)
    startd(it).answers.append(parse(said.encode() + b"\n= 1 0 /a\n"))
    first_decision.apply_startds_answer(it.agent)


def begin(it: Made, ad: bytes | None = AD, age: float = 0.0) -> int:
    """A run whose cgroup has just been made, with this ad in its folder."""
    run = it.begin("0.0", age=age)
    rows, state = it.node.runs.rows, it.node.runs.state
    state["named"][run], state["starter"][run] = False, STARTER
    state["policy_level"][run] = state["policy_cap"][run] = Level.OFF
    rows["run"][run] = rows["job_id"][run] = rows["owner"][run] = b""
    rows["slot"][run] = cut("slot1_1", "slot")
    sandbox: Any = it.node.handles[run].sandbox
    sandbox.job_ad.return_value = ad
    startd_truth.expect(it.agent, run)
    first_decision.submit_job_ad(it.agent, run)
    return run


def decide(it: Made, run: int, level: Level = Level.IO) -> None:
    """The policies answer what they were asked last."""
    key, request = it.policies.submitted[-1]
    assert key == it.node.key_of(run)
    it.policies.answers.append((key, Decision(level, level, "", "rule", "", "", identity=literals(request.ad))))
    first_decision.apply_answers(it.agent)


def name(it: Made, run: int) -> tuple[str, str]:
    row = it.node.runs.rows[run]
    return text(row["run"]).rpartition("#")[0], text(row["owner"])


def test_the_policies_are_asked_when_the_startd_has_answered(it: Made) -> None:
    run = begin(it)
    assert (startd(it).wants, it.policies.submitted) == (1, [])
    answer(it)
    decide(it, run)
    assert it.level(run) == Level.IO
    assert name(it, run) == (GLOBAL_ID, "bob")
    assert "startd" not in text(it.node.runs.rows["note"][run])


def test_what_a_user_is_to_write_instead_of_an_attribute_is_said(it: Made) -> None:
    run = begin(it, FORGED)
    startd_truth._refuse(it.agent, run, ("AcctGroup", "RequestCpus"))
    assert "(AcctGroup, which accounting_group sets at submission, RequestCpus)" in it.log[-1]


def test_a_forged_ad_gets_neither_a_level_nor_a_name(it: Made) -> None:
    run = begin(it, FORGED)
    answer(it)
    decide(it, run)
    assert it.level(run) == Level.BASIC
    assert name(it, run) == (GLOBAL_ID, "bob")
    assert ".job.ad is not the starter's (GlobalJobId, ClusterId, Owner)" in text(it.node.runs.rows["note"][run])
    assert sum("not the starter's" in line for line in it.log) == 1
    refusal = level_arbiter.refusal(it.levels, run, Level.IO, by_root=False)
    assert "only root on the job's node may give it more than basic" in refusal
    assert level_arbiter.refusal(it.levels, run, Level.IO, by_root=True) == ""
    answer(it)
    assert it.node.runs.state["ad_trust"][run] == AdTrust.REFUSED, "for good"


@pytest.mark.parametrize("starter", [STARTER + 1, STARTER + 2])
def test_what_the_startd_holds_of_another_starters_job_is_not_taken(it: Made, starter: int) -> None:
    begin(it, FORGED)
    answer(it, starter)
    assert it.policies.submitted == []


def test_before_htcondor_24_an_answer_counts_if_it_was_asked_for_after_the_starter_began(it: Made) -> None:
    it.agent.startd.seen[STARTER] = time.monotonic()
    answer(it, starter=0)
    run = begin(it)
    assert it.policies.submitted[-1][0] == it.node.key_of(run), "the answer was there before the job"


def test_before_htcondor_24_an_older_answer_is_of_the_job_before(it: Made) -> None:
    answer(it, starter=0)
    it.agent.startd.seen[STARTER] = time.monotonic()
    begin(it)
    assert it.policies.submitted == []
    answer(it, starter=0)
    assert len(it.policies.submitted) == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_before_htcondor_24_an_answer_that_comes_after_the_end_may_be_of_the_next_job(it: Made, is_told: bool) -> None:
    """Of jobs of milliseconds: the run would have the next one's name, and that one both jobs' numbers."""
    run = begin(it, AD.replace(b"12", b"11"))
    it.node.runs.state["kernel_slot"][run] = 3
    it.node.tracer.counters = np.zeros(4, map_layout.COUNTERS)
    it.node.tracer.counters["main_exits"][3] = 1
    sandbox: Any = it.node.handles[run].sandbox
    sandbox.is_users = True
    if is_told:
        it.node.runs.rows["final"][run] = True
        first_decision.identify_before_end(it.agent, run)
    answer(it, starter=0)
    assert it.node.runs.state["ad_trust"][run] == AdTrust.AWAITED
    first_decision.identify_before_end(it.agent, run)
    assert name(it, run) == (GLOBAL_ID.replace("12", "11"), "bob")


def test_a_startd_that_is_silent_leaves_the_default_level_and_no_name(it: Made) -> None:
    startd(it).fault = "communication error"
    run = begin(it, FORGED, age=first_decision.UNCONFIRMED_SECONDS + 1)
    first_decision.give_up_waiting(it.agent)
    decide(it, run)
    assert it.level(run) == Level.BASIC
    assert GLOBAL_ID not in name(it, run)[0] and "ap#1" not in name(it, run)[0] and name(it, run)[1] == ""
    note = text(it.node.runs.rows["note"][run])
    assert "no startd has confirmed the job's ad (communication error): no level above basic" in note


def test_a_late_answer_brings_name_and_level(it: Made) -> None:
    run = begin(it, age=first_decision.UNCONFIRMED_SECONDS + 1)
    first_decision.give_up_waiting(it.agent)
    decide(it, run)
    assert it.level(run) == Level.BASIC
    answer(it)
    assert name(it, run) == (GLOBAL_ID, "bob")
    assert list(it.levels.round.unknown) == [it.node.key_of(run)], "its ad is judged again, as it is now"
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) == Level.IO
    assert "confirmed" not in text(it.node.runs.rows["note"][run])


def test_a_job_that_ends_before_the_answer_has_no_name_of_its_files_making(it: Made) -> None:
    run = begin(it, FORGED)
    first_decision.identify_before_end(it.agent, run)
    assert "ap#1" not in name(it, run)[0] and name(it, run)[1] == ""
    assert it.node.handles[run].own_name == b"ap#1.0#1700000000#1", "its own ad is its own"
    kept = it.agent.output.artifacts.about(run)
    assert "ap#1" not in kept.run and kept.owner == ""
    assert (kept.claimed_run, kept.claimed_owner) == ("ap#1.0#1700000000#1", "alice")
    it.node.runs.rows["final"][run] = True
    answer(it)
    assert name(it, run) == (GLOBAL_ID, "bob"), "the list of ended runs has its name"
    assert it.node.handles[run].own_name == b""
    kept = it.agent.output.artifacts.about(run)
    assert (kept.owner, kept.claimed_run, kept.claimed_owner) == ("bob", "", "")


@pytest.mark.parametrize("edited", ["ap#11.0#1700000000", "mine"])
def test_a_job_whose_owner_edited_its_global_id_has_no_name_of_another(it: Made, edited: str) -> None:
    """condor_qedit changes what the schedd, the startd and the file say alike."""
    run = begin(it, AD.replace(GLOBAL_ID.encode(), edited.encode()))
    answer(it, GlobalJobId=edited)
    decide(it, run)
    row = it.node.runs.rows[run]
    assert (text(row["job_id"]), text(row["owner"])) == ("12.0", "bob")
    assert text(row["run"]).startswith("slot1_1#12.0#") and edited not in text(row["run"])
    assert run_identity.OTHERS_NAME in text(row["note"])
    it.node.ended.resume.assert_not_called()  # type: ignore[attr-defined]


def test_two_nameless_runs_of_one_slot_are_two(it: Made) -> None:
    """Their totals too: a job that goes on from its checkpoint is known by its name."""
    runs = [begin(it, FORGED) for _ in range(2)]
    for run in runs:
        first_decision.identify_before_end(it.agent, run)
    assert len({text(it.node.runs.rows["run"][run]) for run in runs}) == 2
    it.node.ended.resume.assert_not_called()  # type: ignore[attr-defined]


def test_htcondors_own_file_names_a_job_that_ends_before_the_answer(it: Made) -> None:
    run = begin(it, FORGED)
    sandbox: Any = it.node.handles[run].sandbox
    sandbox.update_ad.return_value = f'GlobalJobId = "{GLOBAL_ID}"\nRemoteUser = "bob@pool"\n'.encode()
    first_decision.identify_before_end(it.agent, run)
    assert name(it, run) == (GLOBAL_ID, "bob")
    assert text(it.node.runs.rows["job_id"][run]) == "12.0"
    assert text(it.node.runs.state["user"][run]) == "bob@pool"


@pytest.mark.parametrize("claimed", ['User = "alice@pool"', 'RemoteUser = "alice@pool"', ""])
def test_whose_a_run_is_says_the_startd_whatever_the_file_says_of_its_user(it: Made, claimed: str) -> None:
    """An entry for alice@pool goes by the column `user`."""
    ad = f"{AD.decode()}\n{claimed}\n".encode()
    run = begin(it, ad)
    answer(it)
    decide(it, run)
    assert text(it.node.runs.state["user"][run]) == "bob@pool"
    short = begin(it, ad)  # a job that ends before the startd answers
    sandbox: Any = it.node.handles[short].sandbox
    sandbox.update_ad.return_value = f'GlobalJobId = "{GLOBAL_ID}"\nRemoteUser = "bob@pool"\n'.encode()
    first_decision.identify_before_end(it.agent, short)
    assert text(it.node.runs.state["user"][short]) == "bob@pool"


def test_what_a_user_calls_remote_user_in_his_job_names_nobody(it: Made) -> None:
    """No startd is asked about the local universe; its ads come from the schedd."""
    run = begin(it)
    it.node.runs.state["ad_trust"][run] = AdTrust.SETTLED
    run_identity.identify(it.node, run, literals(AD + b'RemoteUser = "alice@pool"\n'))
    assert text(it.node.runs.state["user"][run]) == ""


def test_a_job_without_a_readable_ad_is_named_by_the_startd(it: Made) -> None:
    run = begin(it, None, age=first_decision.NAMELESS_SECONDS + 1)
    answer(it)
    first_decision.give_up_waiting(it.agent)
    assert name(it, run) == (GLOBAL_ID, "bob")
    assert it.level(run) == Level.BASIC


def test_questions_about_a_run_that_no_startd_knows_get_rare(it: Made) -> None:
    run = begin(it)
    for _ in range(10):
        answer(it, slot="slot1_9")
    assert it.levels.inputs[run].ask_pause == startd_truth.LONGEST_PAUSE
    before = startd(it).wants
    startd_truth.tick(it.agent)
    assert startd(it).wants == before


def test_the_local_universe_has_no_startd(it: Made) -> None:
    run = begin(it)
    it.node.runs.rows["slot"][run] = b"local_7"
    startd_truth.expect(it.agent, run)
    assert it.node.runs.state["ad_trust"][run] == AdTrust.SETTLED


def test_doctor_and_the_log_are_told_once_of_a_startd_that_can_not_be_asked(it: Made, tmp_path: Path) -> None:
    startd(it).fault = "communication error"
    for _ in range(3):
        first_decision.apply_startds_answer(it.agent)
    assert (tmp_path / startd_truth.STATE).read_text() == "communication error"
    assert sum("the startd can't be asked (communication error)" in line for line in it.log) == 1
    startd(it).fault = ""
    answer(it)
    assert (tmp_path / startd_truth.STATE).read_text() == ""
    assert it.log[-1] == "the startd answers again"


def test_a_startd_is_asked_when_a_starters_folder_appears(it: Made, tmp_path: Path) -> None:
    it.agent.startd.folders = StarterFolders()
    it.node.executes = [str(tmp_path / "execute")]
    (tmp_path / "execute").mkdir()
    startd_truth.watch_starters(it.agent)
    (tmp_path / "execute" / f"dir_{STARTER}").mkdir()
    (tmp_path / "execute" / "strange").mkdir()
    startd_truth.starters_changed(it.agent)
    assert (list(it.agent.startd.seen), startd(it).wants) == ([STARTER], 1)
    (tmp_path / "execute" / f"dir_{STARTER}").rmdir()
    startd_truth.starters_changed(it.agent)
    assert it.agent.startd.seen == {}


def test_facts_of_the_slot_are_the_startds(it: Made) -> None:
    """From HTCondor 24 on `.machine.ad` is in the user's folder; up to 23 both files are."""
    for is_users in (False, True):
        run = begin(it, None)
        sandbox: Any = it.node.handles[run].sandbox
        sandbox.job_ad.return_value, sandbox.is_users = AD, is_users
        sandbox.machine_ad.return_value = b'Cpus = 64\nState = "Owner"\n'
        first_decision.submit_job_ad(it.agent, run)
        answer(it, Cpus=4, State="Claimed")
        slot = it.policies.submitted[-1][1].slot
        assert slot["Cpus"] == 4
        assert slot["State"] == ("Owner" if is_users else "Claimed")
        it.node.runs.rows["final"][run] = True


def test_a_job_that_is_over_before_its_wrapper_was_heard_is_named_by_its_ad(it: Made) -> None:
    it.agent.startd.client = None  # nobody contradicts it
    run = begin(it, None)
    sandbox: Any = it.node.handles[run].sandbox
    sandbox.job_ad.return_value = AD
    first_decision.identify_before_end(it.agent, run)
    assert text(it.node.runs.rows["job_id"][run]) == "12.0" and it.node.runs.state["named"][run]
