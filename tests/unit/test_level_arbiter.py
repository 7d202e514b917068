"""Who has the last word on a run's level, and how that is changed by hand."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from selectors import DefaultSelector
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
from agent_node import OWNER, Made, make
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from entry_samples import entry
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent import before_job
from condor_joblens.agent.control_socket import CommandNode
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.helpers import Helpers
from condor_joblens.agent.levels import level_arbiter, policy_decisions, policy_failures
from condor_joblens.agent.levels.budgets import Over
from condor_joblens.agent.levels.entries import Entries
from condor_joblens.agent.levels.ranks import BY_HAND, TABLE, Rank
from condor_joblens.agent.lifecycle import recovery
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.commands.level import NOT_SO_OFTEN
from condor_joblens.control.entries import Entry, EntryList, Role, sign
from condor_joblens.control.frames import Words
from condor_joblens.control.keys import public_half
from condor_joblens.control.verbs import Refused, Vouched, understand
from condor_joblens.jobs.run_state import STATE
from condor_joblens.model.levels import AS_ASKED, SITE_DEFAULT, Level
from condor_joblens.model.metrics import text
from condor_joblens.policy.policy_answers import Decision, PolicyFailure

LEVEL = st.sampled_from(list(Level))
NOBODY = DefaultSelector()
"""For all nodes of these tests: each would be a descriptor."""

ONLINE = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
"""The key of the site's server."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    return lambda **knobs: make(tmp_path, monkeypatch, **knobs)


def ask(made: Made, uid: int, vouched: Vouched | None = None, **claims: str) -> dict[str, str]:
    # two seconds have passed since the last time
    made.node.runs.state["override_changed_at"] -= NOT_SO_OFTEN
    return ask_at_once(made, uid, vouched, **claims)


def ask_at_once(made: Made, uid: int, vouched: Vouched | None = None, **claims: str) -> dict[str, str]:
    words = Words("level", {name: value.encode() for name, value in claims.items()})
    node, nobody = made.agent.node, NOBODY
    commands = CommandNode(made.agent, Evidence(node, None, nobody), OwnerCommands(node, None, nobody))
    return dict(Dispatcher(commands).answer(dataclasses.replace(understand(words, 1, uid, 1), vouched=vouched)))


# -- the order ------------------------------------------------------------------------------------------------


@given(LEVEL, LEVEL, LEVEL, LEVEL, st.booleans(), st.booleans())
def test_the_order_of_sources(
    site: Level, decided: Level, policys_cap: Level, hand: Level, roots: bool, over: bool
) -> None:
    state: np.ndarray = np.zeros(1, STATE)
    state["policy_level"], state["policy_cap"] = decided, policys_cap
    state["override_level"], state["override_by_root"], state["override_until"] = hand, roots, 50.0 if over else 150.0
    (level,), (source,) = level_arbiter.precedence(state, np.array([0]), site, Level.BASIC, 100.0)
    by_hand = source == BY_HAND
    assert level <= site, "nobody gets above JOBLENS_MAX_LEVEL"
    if over:
        assert (level, by_hand) == (min(decided, site), False), "what was given by hand is gone by itself"
    elif roots:
        assert (level, by_hand) == (min(hand, site), True), "root's word counts up and down"
    else:
        assert level >= min(decided, site), "an owner can't have a job watched less closely"
        assert level <= max(min(decided, site), policys_cap), "nor above a policy's cap"
        assert level == min(decided, site) or by_hand


SITE, ROOT, POLICIES, DEFAULT = "JOBLENS_MAX_LEVEL", "root", "the policies", "the default"
ADMINISTRATOR, OPERATOR, MANAGER = "an administrator", "an operator", "a group's manager"
OWNERS, FROM_AFAR, OWNERS_ENTRY = "the owner", "the owner from afar", "the owner by an entry"
GONE = "no job 13.0 runs on this node; if it ran here and has ended, `joblens job` tells of it"
SUPER_USER, PROVED, STAFF_KEY = "a queue super user from afar", "who proves himself", "a key of the staff"
SPEAKERS = (
    SITE, ROOT, ADMINISTRATOR, OPERATOR, MANAGER, OWNERS, FROM_AFAR, SUPER_USER, PROVED, STAFF_KEY, OWNERS_ENTRY,
    POLICIES, DEFAULT,
)  # fmt: skip
"""By each channel that he has."""

ENTRIES: dict[str, dict[str, Any]] = {
    ADMINISTRATOR: {"role": Role.ADMINISTRATOR, "user": "alice"},
    OPERATOR: {"role": Role.OPERATOR, "user": "alice"},
    MANAGER: {"role": Role.MANAGER, "group": "physics"},
    OWNERS_ENTRY: {"role": Role.OWNER, "author": "alice@site", "user": "alice@site"},
}

AFAR = {
    FROM_AFAR: ("alice@site", False),
    SUPER_USER: ("root@site", False),
    PROVED: ("bob@site by condor_qedit", False),
    STAFF_KEY: ("carol", True),
}
"""By whom a warrant is, and whether by a key of the staff."""

AS_OWNER = (OWNERS, FROM_AFAR, SUPER_USER, PROVED)
"""Who says by hand what the owner may say."""

Said = dict[str, list[Level]]
"""What each has said, in this order. Of what is said by hand, or by the site, the last counts; entries all hold."""


def say(it: Made, run: int, who: str, level: Level) -> bool:
    """`who` says that the run is to have this level, or may have it at least. False if that is refused."""
    if who in (ROOT, OWNERS, *AFAR):
        by, is_staff = AFAR.get(who, ("", False))
        vouched = Vouched("alice@site", by, run, is_staff) if by else None
        try:
            ask(it, 0 if who == ROOT else OWNER, vouched, job="12.0", level=level.word)
        except Refused:
            return False
        return True
    if who in ENTRIES:
        most = level if ENTRIES[who]["role"] in (Role.ADMINISTRATOR, Role.OPERATOR) else None
        add_entry(it, entry(least=level, most=most, **ENTRIES[who]))
    elif who == SITE:
        it.node.config = dataclasses.replace(it.node.config, max_level=level)
    elif who == POLICIES:
        policy_decisions.record(it.levels, run, Decision(level, None, "", "a rule", "", ""))
    else:  # the policies can't decide, so the default counts
        policy_decisions.record(it.levels, run, PolicyFailure(Level.BASIC, "no decision: basic"))
    level_arbiter.arbitrate(it.levels)
    return True


def add_entry(it: Made, new: Entry) -> None:
    """By the way that it takes on a node: a signed list, over the control socket."""
    kept = it.levels.entries.holding(it.node.config)
    later = it.levels.entries._held.serial + 1
    packet = sign(EntryList(later, int(time.time() * 1000), (*kept, new)), ONLINE)
    words, node, nobody = Words("entries", {"packet": packet}), it.agent.node, NOBODY
    commands = CommandNode(it.agent, Evidence(node, None, nobody), OwnerCommands(node, None, nobody))
    stream = MagicMock()
    Dispatcher(commands).stream(understand(words, 1, 65534, version=2), stream)
    stream.end.assert_called_once_with({})


def may_say(said: Said, who: str, level: Level) -> bool:
    """Nobody goes above the site's cap, and an owner goes neither below the policies nor past whoever beats him."""
    cap = said.get(SITE, [Level.TRACE])[-1]
    if who == ROOT:
        return level <= cap
    if who == STAFF_KEY:
        return False  # who is staff says entries
    if who not in AS_OWNER:
        return True
    staff = said.get(ADMINISTRATOR) or said.get(OPERATOR)
    least = max([*said.get(MANAGER, []), said.get(POLICIES, [Level.BASIC])[-1]])
    if staff and level != min(cap, *staff):
        return False
    return level <= cap and ROOT not in said and (level >= least or bool(staff and level >= said_by_policies(said)))


def said_by_policies(said: Said) -> Level:
    return said.get(POLICIES, [Level.BASIC])[-1]


def level_by_order(said: Said, by_hand: Level) -> Level:
    """The order in words: who beats all others has the last one, and those below the staff only raise."""
    level = max(said_by_policies(said), by_hand, *said.get(OWNERS_ENTRY, []), *said.get(MANAGER, []))
    for staff in (OPERATOR, ADMINISTRATOR):
        level = min(said.get(staff, [level]))
    level = said.get(ROOT, [level])[-1]
    return min(level, said.get(SITE, [Level.TRACE])[-1])


@pytest.mark.parametrize("first, second", list(itertools.product(SPEAKERS, repeat=2)))
def test_every_pair_of_who_spoke_and_who_speaks_now(made: Callable[..., Made], first: str, second: str) -> None:
    it = made(max_level=Level.TRACE, policy_hold=0.0, hub_may="levels")
    it.levels.entries = Entries(str(it.node.config.run_dir), public_half(ONLINE))
    as_it_was = it.node.config
    for levels in itertools.product((Level.OFF, Level.BASIC, Level.IO), repeat=2):
        it.node.config = as_it_was
        it.levels.entries._held = EntryList(0, 0, ())
        said: Said = {}
        run, by_hand = it.begin("12.0"), Level.OFF
        it.node.runs.rows["accounting_group"][run], it.node.runs.state["user"][run] = b"physics.top", b"alice@site"
        for who, level in zip((first, second), levels):
            words = f"{first}, then {second}: {levels}"
            assert say(it, run, who, level) == may_say(said, who, level), words
            if may_say(said, who, level):
                said.setdefault(who, []).append(level)
                by_hand = level if who in AS_OWNER else by_hand
            if who == ROOT and said.get(ROOT):
                by_hand = Level.OFF  # there is one level by hand, and root has it now
            assert it.level(run) is level_by_order(said, by_hand), words
        policy_failures.forget(it.levels, run)
        it.node.runs.remove(run)


def test_the_table_and_the_page_have_the_same_order() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/policies.md").read_text()
    section = page[page.index("## Who has the last word") :]
    drawn = re.findall(r"^   (\S.*?)  +(.*)$", section[: section.index("So a running job")], re.M)
    names = {
        Rank.NODE: "JOBLENS_MAX_LEVEL", Rank.ROOT: "root", Rank.ADMINISTRATOR: "administrators",
        Rank.OPERATOR: "operators", Rank.MANAGER: "a group's manager", Rank.OWNER: "the job's owner",
        Rank.POLICIES: "the rules",
    }  # fmt: skip
    assert list(names) == list(Rank) == list(TABLE)
    assert [name.partition(",")[0] for name, _ in drawn[: len(Rank)]] == list(names.values())
    for rank, (_, words) in zip(Rank, drawn):
        may = TABLE[rank]
        if rank not in (Rank.NODE, Rank.POLICIES):
            assert words.startswith("up or down" if may.lower_it else "up only"), rank
            assert ("not above a cap of the rules" in words) == (not may.beyond_policies), rank


def test_an_owner_can_not_take_back_what_root_said(made: Callable[..., Made]) -> None:
    it = made()
    run = it.begin("12.0")
    ask(it, 0, job="12.0", level="off")
    for claims in ({"level": "io"}, {"clear": "1"}):
        with pytest.raises(
            Refused, match=r"^this job's level is set by root until \d\d:\d\d \S+: only root on the job's node may"
        ):
            ask(it, OWNER, job="12.0", **claims)
    assert it.level(run) is Level.OFF
    it.node.runs.state["override_until"][run] = time.monotonic() - 1
    ask(it, OWNER, job="12.0", level="io")
    assert it.level(run) is Level.IO


@pytest.mark.parametrize(
    "reason, words",
    [
        (AS_ASKED, "this job asked for io (+JobLensLevel), and its owner only raises a level: submit it with less (or"),
        (SITE_DEFAULT, "io is this site's default, and its owner only raises a level: ask for less as you submit it"),
        ("slow reads", "rule rule of this site's policies gives this job io (slow reads), and its owner only raises"),
        ("", "rule rule of this site's policies gives this job io, and its owner only raises a level: ask the"),
    ],
)
def test_an_owner_who_wants_less_is_told_what_holds_the_level(
    made: Callable[..., Made], reason: str, words: str
) -> None:
    it = made()
    run = it.begin("12.0", Level.IO)
    it.node.runs.state["policy_reason"][run] = reason.encode()
    with pytest.raises(Refused, match=re.escape(words)) as refused:
        ask(it, OWNER, job="12.0", level="basic")
    assert str(refused.value).endswith(" (or root on the job's node lowers it)")
    with pytest.raises(Refused, match="; from an access point, root too asks as the job's owner"):
        ask(it, OWNER, Vouched("alice@site", "root@site", run), job="12.0", level="basic")


# -- by hand --------------------------------------------------------------------------------------------------


def test_an_owner_raises_a_job_for_a_while_and_its_row_says_so(made: Callable[..., Made]) -> None:
    it = made()
    run = it.begin("12.0")
    answer = ask(it, OWNER, job="12.0", level="io", **{"for": "600"})
    row = it.node.runs.rows[run]
    assert it.level(run) is Level.IO
    assert (answer["level"], answer["policy"], row["policy"]) == ("io", "by hand", b"by hand")
    assert re.fullmatch(rb"by .+ until \d\d:\d\d \S+", row["reason"])
    assert any("goes from basic to io: by hand" in line for line in it.log)
    it.node.runs.state["override_until"][run] = time.monotonic() - 1
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.BASIC
    assert it.node.runs.rows["policy"][run] == b"rule", "the policies' word counts again"


def test_a_level_is_taken_back(made: Callable[..., Made]) -> None:
    it = made()
    run = it.begin("12.0")
    ask(it, OWNER, job="12.0", level="io")
    assert ask(it, OWNER, job="12.0", clear="1")["level"] == "basic"
    assert it.level(run) is Level.BASIC


def test_asking_changes_nothing(made: Callable[..., Made]) -> None:
    it = made()
    run = it.begin("12.0")
    before = it.node.runs.state[run].tobytes()
    assert ask_at_once(it, 0, job="12.0")["level"] == "basic"
    assert it.node.runs.state[run].tobytes() == before


@pytest.mark.parametrize(
    "uid, claims, reason",
    [
        (OWNER + 1, {"level": "io"}, "only root and the user as whom the job runs"),
        (OWNER, {"level": "profile"}, "above this site's JOBLENS_MAX_LEVEL = io"),
        (0, {"level": "profile"}, "above this site's JOBLENS_MAX_LEVEL = io"),
        (OWNER, {"level": "off"}, "rule rule of this site's policies gives this job basic (because), and its"),
        (OWNER, {"level": "nonsense"}, "is not a level"),
        (OWNER, {"level": "io", "for": "0"}, "1 s to 24 h"),
        (OWNER, {"level": "io", "for": "86401"}, "1 s to 24 h"),
        (OWNER, {"level": "io", "for": "²"}, "1 s to 24 h"),
        (OWNER, {"level": "io", "for": "-1"}, "1 s to 24 h"),
        (OWNER, {"level": "io", "job": "13.0"}, GONE),
        (OWNER, {"level": "io", "job": ""}, "job: has 0 bytes: write 1 to 256"),
        (OWNER, {"level": "io", "job": "x" * 256}, "no job x"),
        (OWNER, {"level": "io", "job": "x" * 257}, "job: has 257 bytes: write 1 to 256"),
    ],
)
def test_what_is_refused_and_changes_nothing(
    made: Callable[..., Made], uid: int, claims: dict[str, Any], reason: str
) -> None:
    it = made()
    run = it.begin("12.0")
    with pytest.raises(Refused, match=re.escape(reason)):
        ask(it, uid, **{"job": "12.0", **claims})
    assert it.level(run) is Level.BASIC
    assert it.node.runs.state["override_until"][run] == 0


def test_an_owner_stays_within_a_policys_cap_and_root_does_not(made: Callable[..., Made]) -> None:
    it = made()
    run = it.begin("12.0", cap=Level.BASIC)
    with pytest.raises(Refused, match="policies allow this job no more than basic"):
        ask(it, OWNER, job="12.0", level="io")
    ask(it, 0, job="12.0", level="io")
    assert it.level(run) is Level.IO
    ask(it, 0, job="12.0", level="off")
    assert it.level(run) is Level.OFF


def test_an_owner_can_not_do_it_all_the_time(made: Callable[..., Made]) -> None:
    it = made()
    it.begin("12.0")
    ask(it, OWNER, job="12.0", level="io")
    with pytest.raises(Refused, match="a moment ago"):
        ask_at_once(it, OWNER, job="12.0", clear="1")
    ask_at_once(it, 0, job="12.0", clear="1")


@pytest.mark.parametrize("name", ["12.0", "slot1_1", "slot1_1@node.site", "ap#12.0#1#1"])
def test_a_run_has_many_names(made: Callable[..., Made], name: str) -> None:
    it = made()
    it.begin("12.0")
    it.begin("12.1")
    assert ask(it, 0, job=name)["job_id"] == "12.0"


def test_a_cluster_that_means_several_jobs_is_asked_about(made: Callable[..., Made]) -> None:
    it = made()
    it.begin("12.0")
    it.begin("12.1")
    it.begin("120.0")
    with pytest.raises(Refused, match=r"12 means several jobs here, say which: 12\.0, 12\.1"):
        ask(it, 0, job="12")
    assert ask(it, 0, job="120")["job_id"] == "120.0"
    for number in range(5):
        it.begin(f"12.{2 + number}")
    with pytest.raises(Refused, match=r"say which: 12\.0, 12\.1, 12\.2, 12\.3, 12\.4, and 2 more$"):
        ask(it, 0, job="12")


def test_what_level_io_has_missed_is_known_by_its_cause(made: Callable[..., Made]) -> None:
    """Also after a restart, by what the row says; and not by the words of a policy."""
    it = made()
    run = it.begin("12.0")
    node = it.agent.node
    node.handles[run].notes = {"policy": "level io began to be dear", "late_io": before_job.late_note(12.0)}
    node.update_note(run)
    assert text(node.runs.rows["note"][run]) == f"level io began to be dear; {before_job.late_note(12.0)}"
    assert ask(it, 0, job="12.0")["note"] == "level io began to be dear"
    before = f"{recovery.REPLACED}; {before_job.late_note(12.0)}; a; b"
    assert recovery.notes_of(before) == {
        "before": f"{recovery.REPLACED}; a; b", "late_io": before_job.late_note(12.0)
    }  # fmt: skip


def test_what_was_for_a_time_is_not_in_the_note_after_a_restart() -> None:
    kept = "counting began 8 s after the job: what had ended by then is not counted, except CPU"
    gone = 'JobLensLevel = "io; rm" is not a level: taken as basic', "io until 14:05", level_arbiter.LOWERED
    assert recovery.lasting("; ".join([gone[0], kept, *gone[1:]])) == kept
    assert recovery.lasting("") == ""


# -- budgets at work ------------------------------------------------------------------------------------------


def test_over_the_budget_the_youngest_steps_down_says_so_and_comes_back_after_the_hold(
    made: Callable[..., Made],
) -> None:
    it = made(max_jobs_io=1, policy_hold=60.0)
    old, young = it.begin("1.0", Level.IO, age=1000), it.begin("2.0", Level.IO, age=10)
    level_arbiter.arbitrate(it.levels)
    rows, state = it.node.runs.rows, it.node.runs.state
    assert (it.level(old), it.level(young)) == (Level.IO, Level.BASIC)
    assert b"JOBLENS_MAX_JOBS_IO = 1" in rows["note"][young]
    assert rows["note"][old] == b""
    state["policy_level"][old] = Level.BASIC
    level_arbiter.arbitrate(it.levels)
    assert it.level(young) is Level.BASIC, "there is room, but it has just stepped down"
    state["level_changed_at"][young] -= 61
    level_arbiter.arbitrate(it.levels)
    assert it.level(young) is Level.IO
    assert (rows["note"][young], state["budget_exceeded"][young]) == (b"", Over.NONE)


def test_over_a_quota_the_youngest_that_shares_it_steps_down_says_so_and_comes_back_after_the_hold(
    made: Callable[..., Made],
) -> None:
    it = made(policy_hold=60.0)
    old, young, others = (it.begin(f"{age}.0", Level.IO, age=age) for age in (1000, 10, 1))
    rows, state = it.node.runs.rows, it.node.runs.state
    state["quota"][[old, young]], state["quota_jobs"][[old, young]], state["quota_share"][[old, young]] = 7, 1, 0.9
    state["quota"][others], state["quota_jobs"][others], state["quota_share"][others] = 8, 1, -1
    level_arbiter.arbitrate(it.levels)
    assert [it.level(run) for run in (old, young, others)] == [Level.IO, Level.BASIC, Level.IO]
    assert b"a policy's quota of 1 job and 90 % of the node's jobs is used by" in rows["note"][young]
    state["level_changed_at"][young] -= 61
    ask(it, 0, job="10.0", level="io")
    assert it.level(young) is Level.IO, "root is above quotas"
    ask(it, 0, job="10.0", clear="1")
    assert it.level(young) is Level.BASIC
    state["policy_level"][old] = Level.BASIC
    state["level_changed_at"][young] -= 61
    level_arbiter.arbitrate(it.levels)
    assert (it.level(young), rows["note"][young]) == (Level.IO, b"")


def test_roots_word_is_the_last_to_give_way(made: Callable[..., Made]) -> None:
    it = made(max_jobs_io=1)
    old, young = it.begin("1.0", Level.IO, age=1000), it.begin("2.0", age=10)
    ask(it, 0, job="2.0", level="io")
    assert (it.level(old), it.level(young)) == (Level.BASIC, Level.IO)


def test_joblensd_beyond_its_cpu_steps_down_and_the_log_says_so(made: Callable[..., Made]) -> None:
    it = made(max_cpu=0.05)
    runs = [it.begin(f"{number}.0", Level.IO) for number in range(4)]
    it.levels.own_cpu.cores = 0.1
    level_arbiter.adapt_to_own_cpu(it.levels)
    level_arbiter.arbitrate(it.levels)
    assert sorted(it.level(run) for run in runs) == [Level.BASIC, Level.BASIC, Level.IO, Level.IO]
    assert any("JOBLENS_MAX_CPU is 0.05: 2 steps down" in line for line in it.log)


def test_a_reader_of_samples_that_takes_much_costs_profiles_and_nothing_else(made: Callable[..., Made]) -> None:
    it = made(max_cpu=0.05, max_level=Level.PROFILE)
    old, sampled, young = it.begin("1.0", Level.IO), it.begin("2.0", Level.PROFILE), it.begin("3.0", Level.IO)
    level_arbiter.arbitrate(it.levels)
    assert it.levels.node.runs.state["target_level"][sampled] == Level.PROFILE
    reader = Mock(**{"cpu_seconds.side_effect": [1.0, 31.0]})
    helpers = Helpers(Mock(**{"cpu_seconds.return_value": 0.0}), readers=reader)
    for now in (0.0, 300.0):
        it.levels.own_cpu.measure(helpers.cpu_seconds(), now)
    level_arbiter.adapt_to_own_cpu(it.levels)
    level_arbiter.arbitrate(it.levels)
    found = it.levels.node.runs.state["target_level"][[old, sampled, young]]
    assert found.tolist() == [Level.IO, Level.IO, Level.IO]


def test_a_thousand_changes_are_spread(made: Callable[..., Made]) -> None:
    it = made()
    runs = np.array([it.begin(f"{number}.0") for number in range(150)])
    it.node.runs.state["policy_level"][runs] = Level.IO
    it.node.config = made(max_jobs_io=1000).node.config
    level_arbiter.arbitrate(it.levels)
    assert np.count_nonzero(it.node.runs.rows["level_number"][runs] == Level.IO) == level_arbiter.CHANGES_AT_ONCE
    level_arbiter.arbitrate(it.levels)
    assert np.all(it.node.runs.rows["level_number"][runs] == Level.IO)


def test_a_run_that_has_ended_before_its_decision_keeps_its_level_and_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others start and end while its empty cgroup is still there."""
    made = make(tmp_path, monkeypatch)
    ended, other = made.begin("1.0"), made.begin("2.0")
    made.node.runs.state["policy_level"][ended] = made.node.runs.state["policy_cap"][ended] = Level.OFF
    made.node.runs.state["policy_rule"][ended] = b""
    made.node.runs.rows["final"][ended] = True
    made.node.runs.state["policy_level"][other] = Level.IO
    level_arbiter.retry_unavailable(made.levels)
    level_arbiter.arbitrate(made.levels)
    assert (made.level(ended), made.level(other)) == (Level.BASIC, Level.IO)
