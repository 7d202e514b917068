"""What the child answers, verb by verb: rounds without ads, temporary entries, what was seen, and blame."""

from __future__ import annotations

import array
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.common import readiness
from condor_joblens.model.levels import Level
from condor_joblens.policy import job_cache
from condor_joblens.policy.child_frames import BadFrame, Message, pack
from condor_joblens.policy.child_process import ChildProcess
from condor_joblens.policy.child_service import Service
from condor_joblens.policy.engine import MAX_ENTRIES
from condor_joblens.policy.policy_answers import ActivationRequest, Quota, decided
from condor_joblens.policy.seen_keys import MAX_KEYS, SeenKeys

ROOT = Path(__file__).resolve().parents[2]
ASKED: Message = {"id": 1, "slot": {"Name": "slot1_1@node"}, "default": "basic", "max": "trace"}
AD = b'GlobalJobId = "ap#1.0#1"\nOwner = "alice"\nCmd = "/bin/true"\n'
HANG = """
rule "hang" {
    when = function(job, slot, node, usage) return usage.IdleSeconds > 600 end,
    level = "io", for_seconds = 60, period = 2, priority = 5, sinks = { "kafka" }, reason = "idle",
}
"""
TEN = [
    (path.name, path.read_text())
    for path in sorted((ROOT / "lua_policies").rglob("*.lua"), key=lambda path: path.name)
    if path.parent.name != "triggers"
]


class Child:
    """A service in this process."""

    def __init__(self, *policies: tuple[str, str]) -> None:
        self.told: list[Message] = []
        self.service = Service(self.told.append)
        self.load(*policies)

    def load(self, *policies: tuple[str, str], **more: Any) -> Message:
        self.service.policies({"policies": list(policies), **more})
        return self.told[-1]

    def decide(self, ad: bytes = AD, **more: Any) -> Message:
        self.service.decide({**ASKED, **more}, ad)
        return self.told[-1]

    def round(self, numbers: dict[str, list[float]], paths: list[str], now: float, **more: Any) -> Message:
        """The answers of a round, of all its messages together."""
        before = len(self.told)
        body = array.array("d", [number for row in numbers.values() for number in row]).tobytes()
        self.service.decide_many({"id": 2, "now": now, "keys": list(numbers), "usage": paths, **more}, body)
        messages = [message for message in self.told[before:] if message["verb"] == "decided_many"]
        assert [message["more"] for message in messages] == [True] * (len(messages) - 1) + [False]
        answers = {key: answer for message in messages for key, answer in message["answers"].items()}
        return {"answers": answers, "unknown": messages[-1]["unknown"], "messages": len(messages)}


def test_an_answer_is_a_decision_that_joblensd_believes() -> None:
    answer = Child(("20.lua", HANG)).decide(usage={"IdleSeconds": 700}, now=1000.0)
    made = decided(answer, ActivationRequest(AD, {}, Level.BASIC, Level.TRACE))
    assert (made.level, made.policy, made.reason, made.period) == (Level.IO, "hang", "idle", 2.0)
    assert (made.priority, made.sinks, made.until, made.cap) == (5.0, ("kafka",), 1060.0, Level.TRACE)
    assert made.state == {"entries": {"hang": 1000.0}, "seen": {}}


def test_what_was_evaluated_for_entries_that_have_ended_is_forgotten() -> None:
    """Entries come and go for as long as a job runs. Rules never see what was evaluated for them."""
    child = Child(("20.lua", HANG))
    child.decide(key="1.1", entries=[["e0", 'Owner == "alice"']])
    for number in range(1, 200):
        entries = [["e0", 'Owner == "alice"'], [f"e{number}", f'Owner == "alice" && {number} > 0']]
        answers = child.round({"1.1": [0.0]}, ["IdleSeconds"], 1001.0, entries=entries)["answers"]
        assert answers["1.1"]["entries"] == ["e0", f"e{number}"]
    cached = child.service._cache.get("1.1")
    assert cached is not None and len(cached.job.is_true) == 2
    assert not any("alice" in key for key in cached.job.values)
    asked = [message["what"] for message in child.told if message["verb"] == "doing"]
    assert asked.count("entry e0") == 1, "once for a job"


QUOTAS = """
rule "few" { max_jobs = 2, per = "owner" }
rule "cms" { when = { AcctGroup = under "group_cms" }, max_jobs = 8, max_share = 0.5, per = "group" }
rule "together" { when = { Cmd = "/bin/all" }, max_share = 0.1 }
"""


def test_a_quota_is_that_of_the_last_rule_and_is_shared_by_owner_group_or_all() -> None:
    child = Child(("20.lua", QUOTAS))

    def quota(ad: bytes) -> Quota:
        found = decided(child.decide(ad), ActivationRequest(ad, {}, Level.BASIC, Level.TRACE)).quota
        assert found is not None
        return found

    alice, bob = quota(AD), quota(AD.replace(b"alice", b"bob"))
    assert alice == Quota("few", "alice", "owner", 2.0, None)
    assert alice.key == quota(AD.replace(b"1.0", b"2.0")).key != bob.key
    cms = [quota(AD.replace(b"alice", owner) + b'AcctGroup = "group_cms.prod"\n') for owner in (b"alice", b"bob")]
    assert cms[0] == Quota("cms", "group_cms.prod", "group", 8.0, 0.5) and cms[0].key == cms[1].key
    everybody = [quota(AD.replace(b"true", b"all").replace(b"alice", owner)) for owner in (b"alice", b"bob")]
    assert everybody[0] == everybody[1] == Quota("together", "", "", None, 0.1)
    odd = quota(AD.replace(b'"alice"', b'{"a\\nb", 7}'))
    assert odd.whose == "" and odd.key not in (0, alice.key)
    assert "quota" in child.decide() and Child(("20.lua", HANG)).decide()["quota"] is None


@pytest.mark.parametrize(
    "quota",
    [7, [], {}, {"rule": "a", "whose": "b", "per": "", "jobs": -1, "share": None},
     {"rule": "a", "whose": "b", "per": "", "jobs": 1e9, "share": None},
     {"rule": "a", "whose": "b", "per": "", "jobs": None, "share": "all"}],
)  # fmt: skip
def test_a_quota_that_is_none_is_not_believed(quota: Any) -> None:
    with pytest.raises(BadFrame):
        decided({**Child().decide(), "quota": quota}, ActivationRequest(AD, {}, Level.BASIC, Level.TRACE))


# Temporary entries.


def steps(child: Child, *usage_at: tuple[float, dict[str, float]], **more: Any) -> list[str]:
    """The levels of one run, asked at these times with these numbers."""
    state: dict[str, Any] = {}
    levels = []
    for now, usage in usage_at:
        answer = child.decide(now=now, usage=usage, state=state, **more)
        levels.append(answer["level"])
        state = answer["state"]
    return levels


def test_a_temporary_entry_ends_by_itself_and_begins_anew_only_after_its_cause_was_gone() -> None:
    idle, busy = {"IdleSeconds": 700.0}, {"IdleSeconds": 0.0}
    asked = [(0.0, busy), (1.0, idle), (60.9, busy), (61.1, idle), (500.0, idle), (501.0, busy), (502.0, idle)]
    levels = steps(Child(("20.lua", HANG)), *((now + 1000, usage) for now, usage in asked))
    assert levels == ["basic", "io", "io", "basic", "basic", "basic", "io"]


def test_a_temporary_entry_counts_from_the_start_of_the_run() -> None:
    child = Child(("20.lua", 'rule "first" { level = "io", for_seconds = 300 }'))
    assert child.decide(now=1000.0, started=800.0)["until"] == 1100.0
    assert child.decide(now=1000.0, started=600.0)["level"] == "basic"
    asked = ((1000.0, {}), (1299.0, {}), (1301.0, {}), (99999.0, {}))
    assert steps(child, *asked) == ["io", "io", "basic", "basic"]


def test_a_run_has_a_bounded_number_of_temporary_entries() -> None:
    many = "".join(f'rule "r{n}" {{ level = "io", for_seconds = 60 }} ' for n in range(MAX_ENTRIES + 5))
    answer = Child(("20.lua", many)).decide(now=1000.0)
    assert len(answer["state"]["entries"]) == MAX_ENTRIES
    decided(answer, ActivationRequest(AD, {}, Level.BASIC, Level.TRACE))


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.floats(0, 200), st.booleans()), min_size=1, max_size=12))
def test_an_entry_is_as_the_words_say_for_any_course_of_a_run(course: list[tuple[float, bool]]) -> None:
    child, now, began, expected, asked = Child(("20.lua", HANG)), 1000.0, None, [], []
    for seconds, idle in course:
        now += seconds
        if began is None and idle:
            began = now
        active = began is not None and now < began + 60
        if began is not None and not active and not idle:
            began = None
        expected.append("io" if active else "basic")
        asked.append((now, {"IdleSeconds": 700.0 if idle else 0.0}))
    assert steps(child, *asked) == expected


# Rounds.


def test_a_round_needs_no_ad_and_tells_only_what_has_changed() -> None:
    child = Child(("20.lua", HANG))
    for key in "abc":
        child.decide(key=key, now=1000.0)
    calm = child.round({"a": [0.0], "b": [700.0], "c": [float("nan")]}, ["IdleSeconds"], 1010.0)
    assert list(calm["answers"]) == ["b"]
    assert calm["answers"]["b"]["level"] == "io"
    assert child.round({"b": [700.0], "a": [0.0]}, ["IdleSeconds"], 1020.0)["answers"] == {}
    late = child.round({"b": [700.0]}, ["IdleSeconds"], 1071.0)
    assert late["answers"]["b"]["level"] == "basic"


def test_a_round_tells_whom_it_does_not_know() -> None:
    child = Child(("20.lua", HANG))
    child.decide(key="a", now=1000.0)
    child.service.forget({"keys": ["a", "never there"]})
    assert child.round({"a": [1.0], "z": [1.0]}, ["IdleSeconds"], 1001.0)["unknown"] == ["a", "z"]


def test_columns_are_found_by_path_in_any_case_and_groups_lead_to_them() -> None:
    rule = 'rule "r" { level = "io", when = function(_, _, _, u) return u.cpu.recentcores > u.Fs.Cvmfs.Opens end }'
    child = Child(("20.lua", rule))
    child.decide(key="a", now=1000.0)
    answers = child.round({"a": [1.0, 0.0, 2.0]}, ["Fs.Cvmfs.Opens", "Io.X", "Cpu.RecentCores"], 1001.0)["answers"]
    assert answers["a"]["level"] == "io"


def test_kept_jobs_are_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_cache, "MAX_BYTES", 20_000)
    child = Child(("20.lua", HANG))
    for number in range(100):
        child.decide(key=str(number), now=1000.0)
    unknown = child.round({str(n): [0.0] for n in range(100)}, ["IdleSeconds"], 1001.0)["unknown"]
    assert 80 < len(unknown) < 100
    assert unknown == [str(n) for n in range(len(unknown))]


def test_a_rule_that_reads_more_in_a_round_than_before_finds_it_in_the_ad() -> None:
    rule = 'rule "r" { level = "io", when = function(job, _, _, u) return u.X > 1 and job.Owner == "alice" end }'
    child = Child(("20.lua", rule))
    child.decide(key="a", now=1000.0)
    assert child.round({"a": [2.0]}, ["X"], 1001.0)["answers"]["a"]["level"] == "io"


def test_a_thousand_answers_come_in_messages_that_joblensd_takes() -> None:
    child = Child(("20.lua", HANG))
    for number in range(1000):
        child.decide(key=str(number), now=1000.0)
    before = len(child.told)
    found = child.round({str(n): [700.0] for n in range(1000)}, ["IdleSeconds"], 1001.0)
    assert len(found["answers"]) == 1000 and found["messages"] > 1
    assert max(len(pack(message)) for message in child.told[before:]) < 64 << 10


def test_other_policies_judge_the_kept_jobs_anew() -> None:
    child = Child(("20.lua", HANG))
    child.decide(key="a", now=1000.0)
    child.load(("20.lua", 'rule "off" { cap = "off" }'))
    assert child.round({"a": [0.0]}, ["IdleSeconds"], 1001.0)["answers"]["a"]["level"] == "off"


def test_a_careful_round_names_rule_and_job_before_each_step() -> None:
    child = Child(("20.lua", HANG))
    child.decide(key="a", now=1000.0)
    child.told.clear()
    child.round({"a": [0.0]}, ["IdleSeconds"], 1001.0, careful=True)
    assert {"verb": "doing", "id": 2, "what": 'policy 20.lua:2: rule "hang" on a'} in child.told


# What was seen.


NUMBERS = ["Cpu.RecentCores", "IdleSeconds"]


def test_a_number_that_no_job_has_is_a_mistake_where_all_numbers_are_known() -> None:
    in_a_table = 'rule "a" { when = { ["usage.Cpu.RecentCoers"] = below(1) }, level = "io" }'
    in_a_function = (
        'rule "b" { when = function(job, slot, node, usage) return usage.IdelSeconds > 1 end, level = "io" }'
    )
    right = 'rule "c" { when = function() return usage.Cpu and usage.cpu.recentcores > 0 end, cap = "io" }'
    child = Child()
    (told,) = child.load(("1.lua", in_a_table), ("2.lua", in_a_function), ("3.lua", right), usage=NUMBERS)["errors"]
    assert (told["file"], told["line"]) == ("1.lua", 1)
    assert told["what"] == "usage.Cpu.RecentCoers is no number of a job: did you mean Cpu.RecentCores?"
    for _ in range(2):
        (failed,) = child.decide()["errors"]
        assert (failed["file"], failed["rule"]) == ("2.lua", "b")
        assert failed["what"] == "usage.idelseconds is no number of a job: did you mean IdleSeconds?"
    assert child.load(("1.lua", in_a_table), ("2.lua", in_a_function))["errors"] == []


def test_seen_is_of_other_jobs_and_of_as_many_days() -> None:
    new = 'rule "new" { level = "io", when = function(job) return not seen(job.Cmd, 2) end }'
    child = Child(("20.lua", new))

    def level(job: int, now: float, **more: Any) -> str:
        ad = b'GlobalJobId = "ap#%d.0#1"\nCmd = "x"\n' % job
        return str(child.decide(ad, now=now, **more)["level"])

    day = 86400.0
    assert level(1, 0.5) == "io" and level(1, 1.5) == "io"
    assert level(2, 2.5) == "basic"
    assert level(3, day * 2) == "basic"
    assert level(4, day * 4.5) == "io"


def test_a_new_child_is_told_by_a_runs_state_what_was_seen() -> None:
    new = 'rule "new" { level = "io", when = function(job) return not seen(job.Cmd, 30) end }'
    first, second = Child(("20.lua", new)), Child(("20.lua", new))
    state = first.decide(now=1000.0)["state"]
    assert second.decide(now=2000.0, state=state)["level"] == "io"
    other = AD.replace(b"#1.0#", b"#2.0#")
    assert second.decide(other, now=2000.0)["level"] == "basic"


def test_what_is_seen_is_bounded() -> None:
    memory = SeenKeys()
    for number in range(MAX_KEYS + 10):
        memory.seen(str(number), 30, "job", float(number))
    memory.keep_within_bounds()
    assert memory.seen("0", 30, "other", MAX_KEYS + 10.0) is False
    assert memory.seen(str(MAX_KEYS), 30, "other", MAX_KEYS + 10.0) is True


# Blame.


def test_the_ad_is_blamed_for_what_evaluating_it_does() -> None:
    child = Child(("20.lua", 'rule "r" { level = "io", when = function(job) return job.Deep == 1 end }'))
    child.decide(b"Deep = 1 + 0\n")
    said = [message["what"] for message in child.told if message["verb"] == "doing"]
    assert said == [
        "policy 20.lua",
        'policy 20.lua:1: rule "r"',
        "the job's ad",
        'policy 20.lua:1: rule "r"',
    ]


@pytest.fixture(scope="module")
def ten() -> Child:
    """All policies that ship, in force."""
    return Child(*TEN)


ATTRIBUTES = (
    "JobLensLevel",
    "AcctGroup",
    "Owner",
    "RequestCpus",
    "RequestGPUs",
    "RequestMemory",
    "Cmd",
    "JobLensOptOut",
)


@settings(max_examples=examples(150))
@given(
    st.dictionaries(
        st.sampled_from(ATTRIBUTES),
        st.sampled_from(
            ["1", "-1", "1.5", '"x"', '""', "true", "undefined", "error", "{1}", "[a=1]", "1/0", "NoSuch", "="]
        ),
    )
)
def test_no_ad_makes_a_policy_that_ships_fail(ten: Child, attributes: dict[str, str]) -> None:
    ad = "\n".join(f"{name} = {value}" for name, value in attributes.items()) + "\nProcId = 0"
    for usage in ({}, {"IdleSeconds": 1e9, "Memory.ResidentBytes": 1e12}):
        answer = ten.decide(ad.encode(), now=1e9, usage=usage)
        assert answer["verb"] == "decided" and answer["errors"] == []


def test_explain_tells_what_each_rule_read() -> None:
    answer = Child(("20.lua", 'rule "r" { when = { Owner = "alice", Cmd = "x" }, level = "io" }')).decide(trace=True)
    (rule,) = answer["trace"]
    assert (rule["matched"], rule["reads"]) == (False, [["j:cmd", '"/bin/true"']])


# The process.


def resident(pid: int) -> int:
    """Bytes, as the kernel counts them page by page."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


def answers(child: ChildProcess, wanted: str) -> Message:
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline and child.connected
        readiness.readable([child], 1.0)
        child.flush()
        for message in child.receive():
            if message["verb"] == wanted:
                return message


def test_the_child_has_less_than_25_megabytes() -> None:
    child = ChildProcess()
    child.send(pack({"verb": "policies", "policies": TEN}))
    answers(child, "ready")
    for number in range(20):
        child.send(pack({"verb": "decide", "cpu": 5, **ASKED, "key": str(number)}, AD * 1))
        answers(child, "decided")
    assert resident(child.pid) < 25e6
    child.kill()
    child.wait(1.0)


def test_the_child_knows_the_local_hour_and_no_file_afterwards() -> None:
    child = ChildProcess()
    clock = time.localtime(1_800_000_000)
    hour = f"{clock.tm_hour:02}:{clock.tm_min:02}-{clock.tm_hour:02}:{clock.tm_min + 1:02}"
    child.send(pack({"verb": "policies", "policies": [("x.lua", f'rule "x" {{ level = "io", during = "{hour}" }}')]}))
    assert answers(child, "ready")["errors"] == []
    child.send(pack({"verb": "decide", "cpu": 5, **ASKED, "now": 1_800_000_000}, AD))
    assert answers(child, "decided")["level"] == "io"
    assert sorted(os.listdir(f"/proc/{child.pid}/fd")) == ["0", "1", "2"]
    child.kill()
    child.wait(1.0)


def test_only_rules_that_run_code_of_their_own_are_announced() -> None:
    rules = """
        rule "table" { when = { Owner = under "x", Cmd = glob "*" }, level = "io" }
        rule "expression" { when = "Owner == 1", level = "io" }
        rule "own test" { when = { Owner = function(owner) return owner == "x" end }, level = "io" }
        rule "function" { when = function() return true end, level = "io" }
    """
    child = Child(("20.lua", rules))
    child.told.clear()
    child.decide()
    said = [message["what"] for message in child.told if message["verb"] == "doing" and "rule" in message["what"]]
    assert [line.partition("rule ")[2] for line in dict.fromkeys(said)] == ['"own test"', '"function"']
