"""Entries on a node: what the site's server has signed, for which jobs it is, and what it can't do."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from entry_samples import entry
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.levels import level_arbiter, policy_decisions, policy_input, provisional_io
from condor_joblens.agent.levels.entries import FILE, Entries, open_entries
from condor_joblens.agent.lifecycle import recovery, run_identity
from condor_joblens.common.config import Config
from condor_joblens.common.time_of_day import time_of_day
from condor_joblens.control import entries as signed
from condor_joblens.control.entries import BadEntries, Entry, EntryList, Role, sign, verify
from condor_joblens.control.keys import public_half, text_of
from condor_joblens.model.levels import Level
from condor_joblens.policy.job_identity import literals
from condor_joblens.policy.policy_answers import Decision

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"k", b"o"))
PUBLIC = public_half(KEY)
TAKES = Config(hub_may="levels")


def packet(*entries: Entry, serial: int = 1, key: Ed25519PrivateKey = KEY, issued: float | None = None) -> bytes:
    when = time.time() if issued is None else issued
    return sign(EntryList(serial, int(when * 1000), entries), key)


# -- what is signed -------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            entry,
            least=st.sampled_from([Level.BASIC, Level.OFF]),
            most=st.sampled_from([None, Level.IO]),
            period=st.sampled_from([0.0, 0.1, 7.25]),
            user=st.text("ab@ #\"\\'", max_size=5),
            cluster=st.integers(-1, 9),
            expression=st.just('Cmd == "x"'),
        ),
        max_size=4,
    )
)
def test_what_was_signed_is_what_is_read(entries: list[Entry]) -> None:
    assert verify(packet(*entries), PUBLIC).entries == tuple(entries)


def test_nothing_is_read_before_the_signature_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    good = packet(entry(least=Level.IO))
    monkeypatch.setattr(signed, "_decoded", lambda body: pytest.fail("it was parsed"))
    changed = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(0, len(good), 7)]
    for bad in [*changed, good[:-1], good + b"\0", b"", packet(entry(least=Level.IO), key=OTHER), good * 200]:
        with pytest.raises(BadEntries):
            verify(bad, PUBLIC)
    with pytest.raises(BadEntries, match="JOBLENS_HUB_KEY is not set"):
        verify(good, b"")


def test_a_signed_list_has_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    body = packet(entry(least=Level.IO, cluster=12))[len(signed.LIST) + 64 :]
    for old, new in (
        (b"12", b"+1"),
        (b"operator", b"OPERATOR"),
        (b"0.0", b".00"),
        (b"io", b"IO"),
        (b"least", b"sinks"),
    ):
        other = body.replace(old, new)
        with pytest.raises(BadEntries):
            verify(signed.LIST + KEY.sign(signed.LIST + other) + other, PUBLIC)


@pytest.mark.parametrize(
    "fields, why",
    [
        ({}, "says a level"),
        ({"least": Level.IO, "most": Level.BASIC}, "contradict each other"),
        ({"least": Level.IO, "ends": 1 << 60}, "24 h at most"),
        ({"least": Level.IO, "begins": 10**400, "ends": 10**400 + 1}, "between 1970 and 2109"),
        ({"least": Level.IO, "begins": -1, "ends": 1}, "between 1970 and 2109"),
        ({"least": Level.IO, "reason": ""}, "a reason"),
        ({"least": Level.IO, "reason": "x" * 201}, "reason: write at most 200"),
        ({"least": Level.IO, "user": "a\x1b[1m"}, "printable"),
        ({"period": 0.01}, "0.1 to 3600 s"),
        ({"period": float("nan")}, "0.1 to 3600 s"),
        ({"most": Level.OFF, "role": Role.MANAGER, "group": "physics"}, "watches closer, and no less"),
        ({"least": Level.IO, "role": Role.MANAGER}, "for that group"),
        ({"least": Level.IO, "role": Role.OWNER, "user": "alice"}, "his own jobs"),
        ({"least": Level.IO, "role": Role.OWNER, "user": "bob@site", "author": "alice@site"}, "his own jobs"),
        ({"period": 60.0, "role": Role.OWNER, "user": "a@site", "author": "a@site"}, "watches closer, and no less"),
    ],
)
def test_what_nobody_may_say_is_neither_signed_nor_taken(
    fields: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadEntries, match=why):
        packet(entry(**fields))
    with monkeypatch.context() as patched:
        patched.setattr(signed, "check", lambda entry: None)
        stolen = packet(entry(**fields))
    with pytest.raises(BadEntries, match=why):
        verify(stolen, PUBLIC)


def test_there_are_so_many_at_most() -> None:
    with pytest.raises(BadEntries, match="at most 50"):
        packet(*(entry(least=Level.IO) for _ in range(51)))
    whole = entry(least=Level.IO, **dict.fromkeys(("user", "group", "vo", "executable", "expression"), "x" * 256))
    with pytest.raises(BadEntries, match="too many"):
        packet(*(dataclasses.replace(whole, name=f"e{number:08x}") for number in range(50)))


# -- on a node ------------------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    def build(*entries: Entry, **knobs: Any) -> Made:
        it = make(tmp_path, monkeypatch, **{"hub_may": "levels", **knobs})
        it.levels.entries = Entries(str(tmp_path), PUBLIC, it.log.append)
        it.levels.entries._held = EntryList(0, 0, ())
        if entries:
            it.levels.entries.take(packet(*entries), it.node.config)
        return it

    return build


def test_a_job_is_raised_and_its_row_says_by_which_entry_until_that_ends(made: Callable[..., Made]) -> None:
    clock = [time.time()]
    said = entry(least=Level.IO, user="alice", period=5.0)
    it = made(said)
    it.levels.entries._clock = lambda: clock[0]
    run = it.begin("12.0")
    level_arbiter.arbitrate(it.levels)
    row = it.node.runs.rows[run]
    until = time_of_day(said.ends / 1000)
    assert (it.level(run), row["policy"], row["period_seconds"]) == (Level.IO, f"entry {said.name}".encode(), 5.0)
    assert row["reason"] == f"at least io, a period of 5 s, by operator carol until {until}: slow jobs".encode()
    clock[0] = said.ends / 1000
    level_arbiter.arbitrate(it.levels)
    assert (it.level(run), row["policy"], row["period_seconds"]) == (Level.BASIC, b"rule", it.node.config.period)


ROW = {"owner": b"alice", "accounting_group": b"Physics.top", "vo": b"cms", "executable": b"fit.py"}


@pytest.mark.parametrize(
    "fields, fits",
    [
        ({}, True),
        ({"user": "alice"}, True),
        ({"user": "bob"}, False),
        ({"user": "alice@site"}, True),
        ({"user": "alice@elsewhere"}, False),
        ({"group": "physics"}, True),
        ({"group": "physics.top"}, True),
        ({"group": "PHYSICS"}, True),
        ({"group": "phys"}, False),
        ({"vo": "cms"}, True),
        ({"vo": "atlas"}, False),
        ({"executable": "fit.py"}, True),
        ({"executable": "fit"}, False),
        ({"cluster": 12}, True),
        ({"cluster": 1}, False),
        ({"node": "here"}, True),
        ({"node": "here.site.org"}, True),
        ({"node": "there"}, False),
        ({"user": "alice", "group": "chemistry"}, False),
        ({"expression": "true"}, False),
    ],
)
def test_for_which_jobs_it_is(made: Callable[..., Made], fields: dict[str, Any], fits: bool) -> None:
    it = made(entry(least=Level.IO, **fields))
    it.levels.entries._host = "here"
    run = it.begin("12.0")
    for column, value in ROW.items():
        it.node.runs.rows[column][run] = value
    it.node.runs.state["user"][run] = b"alice@site"
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is (Level.IO if fits else Level.BASIC)
    ad = b'Owner = "alice"\nAcctGroup = "physics.top"\nx509UserProxyVOName = "cms"\nCmd = "/x/fit.py"\nClusterId = 12\n'
    may = provisional_io._may_have_io(it.levels, ad)
    assert may == fits or fields in ({"user": "alice@elsewhere"}, {"expression": "true"}), (
        "counted, and maybe discarded"
    )


def test_without_the_knob_none_is_taken_and_none_holds(made: Callable[..., Made]) -> None:
    it = made(entry(least=Level.IO))
    run = it.begin("12.0")
    for may in ("none", "numbers"):
        it.node.config = dataclasses.replace(it.node.config, hub_may=may)
        with pytest.raises(BadEntries, match=f"JOBLENS_HUB_MAY is {may}"):
            it.levels.entries.take(packet(entry(least=Level.IO), serial=2), it.node.config)
        level_arbiter.arbitrate(it.levels)
        assert it.level(run) is Level.BASIC
    assert Config().hub_may == "numbers"


def test_an_earlier_list_is_not_taken_again(made: Callable[..., Made]) -> None:
    it = made(entry(least=Level.IO))
    ended = packet(serial=3)
    it.levels.entries.take(ended, TAKES)
    with pytest.raises(BadEntries, match="a later list"):
        it.levels.entries.take(packet(entry(least=Level.IO), serial=2), TAKES)
    it.levels.entries.take(ended, TAKES)
    assert it.levels.entries.holding(TAKES) == []


def test_what_was_taken_is_there_after_a_restart_and_what_is_not_signed_is_not(tmp_path: Path) -> None:
    said, lines = entry(least=Level.IO), list[str]()
    Entries(str(tmp_path), PUBLIC).take(packet(said, serial=7), TAKES)
    config = Config(hub_may="levels", hub_key=text_of(PUBLIC), run_dir=str(tmp_path))
    again = open_entries(config, lines.append)
    assert again.holding(TAKES) == [said] and lines == []
    with pytest.raises(BadEntries, match="a later list"):
        again.take(packet(serial=6), TAKES)
    assert os.stat(tmp_path / FILE).st_mode & 0o777 == 0o600
    (tmp_path / FILE).write_bytes(packet(said, key=OTHER))
    assert open_entries(config, lines.append).holding(TAKES) == []
    assert len(lines) == 1 and "has not signed this" in lines[0]
    open_entries(dataclasses.replace(config, hub_key="nonsense"), lines.append)
    assert "JOBLENS_HUB_KEY is no key" in lines[1]


def test_a_stolen_online_key_says_levels_caps_and_periods_alone_and_no_level_above_the_knob(
    made: Callable[..., Made],
) -> None:
    """No sink, no policy, no trace: an entry has no field for any of them."""
    assert {field.name for field in dataclasses.fields(Entry)} == {
        *("name", "role", "author", "reason", "begins", "ends", "least", "most", "period"),
        *("user", "group", "vo", "executable", "node", "cluster", "expression"),
    }
    it = made(entry(least=Level.TRACE, role=Role.ADMINISTRATOR), max_level=Level.TRACE)
    run = it.begin("12.0", cap=Level.BASIC)
    before = it.node.runs.state["policy_cap"][run], it.node.runs.rows["sinks"][run]
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.IO, "JOBLENS_HUB_MAX_LEVEL"
    for knob, level in (({"max_level": Level.BASIC}, Level.BASIC), ({"hub_max_level": Level.PROFILE}, Level.PROFILE)):
        it.node.config = dataclasses.replace(it.node.config, **{"max_level": Level.TRACE, **knob})
        level_arbiter.arbitrate(it.levels)
        assert it.level(run) is level
    assert (it.node.runs.state["policy_cap"][run], it.node.runs.rows["sinks"][run]) == before


def test_a_clock_that_is_wrong_is_said(made: Callable[..., Made]) -> None:
    it = made()
    it.levels.entries._clock = lambda: 10_000.0
    for serial, issued in enumerate((10_000 - 3600, 10_000 + 3600, 10_000 - 59), 1):
        it.levels.entries.take(packet(serial=serial, issued=issued), TAKES)
    past, future = it.log
    assert "signed 3600 s ago: " in past and "signed 3600 s from now: " in future


def test_a_job_can_not_pass_for_another_users_by_an_attribute_of_its_own(made: Callable[..., Made]) -> None:
    it = made(entry(least=Level.IO, user="alice@site"))
    run = it.begin("12.0")
    ad = b'GlobalJobId = "ap#12.0#1"\nClusterId = 12\nProcId = 0\nOwner = "alice"\nUser = "alice@site"\n'
    run_identity.identify(it.node, run, literals(ad + b'RemoteUser = "bob@site"\n'))
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.IO


def test_after_a_restart_an_expression_holds_until_it_is_evaluated_again(made: Callable[..., Made]) -> None:
    said = entry(least=Level.IO, expression="true")
    it = made(said)
    run = it.begin("12.0")
    it.levels.inputs[run].entries = (said.name,)
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.IO
    it.levels.inputs[run] = recovery.known_input(it.node, run)
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.IO


def test_a_list_that_somebody_brings_again_and_again_fills_no_log(made: Callable[..., Made]) -> None:
    it = made()
    it.levels.entries._clock = lambda: 10_000.0
    for _ in range(3):
        it.levels.entries.take(packet(issued=10_000 - 3600), TAKES)
    assert len(it.log) == 1
    it.levels.entries.take(packet(issued=10_000 - 1800), TAKES)  # which the server has signed anew
    assert len(it.log) == 2 and "signed 1800 s ago: " in it.log[1]


def test_a_job_whose_ad_nobody_has_confirmed_is_raised_by_nobody_but_root(made: Callable[..., Made]) -> None:
    it = made(entry(least=Level.IO, role=Role.ADMINISTRATOR))
    run = it.begin("12.0")
    it.node.runs.state["ad_trust"][run] = 1
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.BASIC


def test_of_one_rank_the_lowest_bound_from_above_counts(made: Callable[..., Made]) -> None:
    it = made(entry(least=Level.IO), entry(most=Level.BASIC), entry(least=Level.IO))
    run = it.begin("12.0", Level.IO)
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.BASIC
    it.levels.entries.take(
        packet(entry(most=Level.BASIC), entry(least=Level.IO, role=Role.ADMINISTRATOR), serial=2), TAKES
    )
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.IO


def test_a_level_that_others_would_have_raised_is_due_to_who_kept_it_low(made: Callable[..., Made]) -> None:
    keeps = entry(most=Level.BASIC, role=Role.ADMINISTRATOR)
    it = made(entry(least=Level.IO), keeps)
    run = it.begin("12.0", Level.BASIC)
    level_arbiter.arbitrate(it.levels)
    assert it.level(run) is Level.BASIC and it.node.runs.state["entry"][run] == keeps.name.encode()
    it.levels.entries.take(packet(keeps, serial=2), TAKES)
    level_arbiter.arbitrate(it.levels)
    assert it.node.runs.state["entry"][run] == b""  # nobody else says more: that is the policies' level
    kept = level_arbiter.kept_low(it.levels, run)
    assert kept.startswith(f"entry {keeps.name} keeps it from more: at most basic, by administrator carol")
    it.node.runs.state["policy_level"][run] = Level.OFF
    level_arbiter.arbitrate(it.levels)
    assert level_arbiter.kept_low(it.levels, run) == ""


OPERATORS, ADMINISTRATORS = {"role": Role.OPERATOR}, {"role": Role.ADMINISTRATOR}
MANAGERS = {"role": Role.MANAGER, "group": "physics"}


@pytest.mark.parametrize(
    "policies, by_hand, said, level, decided",
    [
        # lowered from what policies, or the owner, have raised
        (Level.IO, None, [{"most": Level.BASIC}], Level.BASIC, 0),
        (Level.BASIC, Level.PROFILE, [{"most": Level.IO}], Level.IO, 0),
        # one who says exactly what there is anyway
        (Level.BASIC, None, [{"least": Level.BASIC, "most": Level.BASIC}], Level.BASIC, 0),
        # two of one rank, and of two
        (Level.PROFILE, None, [{"most": Level.IO}, {"most": Level.BASIC}], Level.BASIC, 1),
        (Level.BASIC, None, [{"least": Level.IO}, {"least": Level.BASIC, **ADMINISTRATORS}], Level.IO, 0),
        (Level.BASIC, None, [{"least": Level.IO}, {"least": Level.IO, **ADMINISTRATORS}], Level.IO, 1),
        (Level.BASIC, None, [{"least": Level.PROFILE}, {"most": Level.IO, **ADMINISTRATORS}], Level.IO, 1),
        (Level.BASIC, None, [{"most": Level.BASIC}, {"least": Level.IO, **ADMINISTRATORS}], Level.IO, 1),
        (Level.IO, Level.PROFILE, [{"most": Level.BASIC}, {"least": Level.IO, **ADMINISTRATORS}], Level.IO, 1),
        (Level.IO, None, [{"most": Level.BASIC}, {"least": Level.BASIC, **ADMINISTRATORS}], Level.BASIC, 0),
        (Level.BASIC, None, [{"least": Level.IO, **MANAGERS}, {"most": Level.BASIC}], Level.BASIC, 1),
        (Level.BASIC, None, [{"least": Level.IO, **MANAGERS}, {"most": Level.IO}], Level.IO, 0),
        # the site's cap, and what policies give within all bounds, are no entry's
        (Level.BASIC, None, [{"most": Level.IO}], Level.BASIC, None),
        (Level.IO, None, [{"least": Level.BASIC}], Level.IO, None),
    ],
)
def test_the_entry_is_named_that_decided(
    made: Callable[..., Made], policies: Level, by_hand: Level | None, said: list[dict[str, Any]], level: Level,
    decided: int | None,
) -> None:  # fmt: skip
    entries = [entry(**each) for each in said]
    it = made(*entries, max_level=Level.PROFILE, hub_max_level=Level.PROFILE)
    run = it.begin("12.0", policies)
    it.node.runs.rows["accounting_group"][run] = b"physics"
    if by_hand is not None:
        state = it.node.runs.state
        state["override_level"][run], state["override_until"][run] = by_hand, time.monotonic() + 60
    level_arbiter.arbitrate(it.levels)
    name = b"" if decided is None else entries[decided].name.encode()
    assert (it.node.runs.state["target_level"][run], it.node.runs.state["entry"][run]) == (level, name)


def test_who_wants_another_level_is_told_the_first_entry_that_leaves_it_not(made: Callable[..., Made]) -> None:
    first, second = entry(least=Level.BASIC, **ADMINISTRATORS), entry(least=Level.IO, **MANAGERS)
    third = entry(most=Level.IO)
    it = made(second, first, third, max_level=Level.PROFILE)
    run = it.begin("12.0")
    it.node.runs.rows["accounting_group"][run] = b"physics"
    level_arbiter.arbitrate(it.levels)
    for level, by in ((Level.OFF, first), (Level.BASIC, second), (Level.PROFILE, third)):
        why = level_arbiter.refusal(it.levels, run, level, by_root=False)
        assert why.startswith(f"entry {by.name} of this site has the last word, {by.says()}, by ")
    assert level_arbiter.refusal(it.levels, run, Level.IO, by_root=False) == ""


def test_what_staff_says_gives_way_to_a_budget_last_and_to_no_quota(made: Callable[..., Made]) -> None:
    it = made(entry(least=Level.IO, cluster=2), max_jobs_io=1)
    old, young = it.begin("1.0", Level.IO, age=1000), it.begin("2.0", age=10)
    it.node.runs.state["policy_priority"][old] = 1000.0
    it.node.runs.state["quota"][young], it.node.runs.state["quota_jobs"][young] = 7, 0
    level_arbiter.arbitrate(it.levels)
    assert (it.level(old), it.level(young)) == (Level.BASIC, Level.IO)


def test_whom_staff_keeps_from_more_has_no_more_right_to_a_level(made: Callable[..., Made]) -> None:
    it = made(entry(most=Level.IO), max_jobs_io=1, max_level=Level.PROFILE)
    first, second = it.begin("1.0", Level.IO, age=1000), it.begin("2.0", Level.IO, age=10)
    state = it.node.runs.state
    state["policy_cap"][[first, second]], state["policy_priority"][first] = Level.PROFILE, 1.0
    state["override_level"][second], state["override_until"][second] = Level.PROFILE, time.monotonic() + 60
    level_arbiter.arbitrate(it.levels)
    assert (it.level(first), it.level(second)) == (Level.IO, Level.BASIC)


def test_each_of_many_entries_finds_its_jobs(made: Callable[..., Made]) -> None:
    it = made(*(entry(least=Level.IO, cluster=number) for number in range(50)))
    runs = [it.begin(f"{number}.0") for number in range(100)]
    level_arbiter.arbitrate(it.levels)
    assert np.flatnonzero(it.node.runs.rows["level_number"][runs] == Level.IO).tolist() == list(range(50))


def test_what_the_policy_child_says_of_an_expression_counts(made: Callable[..., Made]) -> None:
    said = entry(least=Level.IO, expression='Owner == "alice"')
    it = made(said, policy_hold=3600.0)
    run = it.begin("12.0")
    assert it.levels.entries.expressions(it.node.config) == [(said.name, 'Owner == "alice"')]
    assert policy_input.request(it.levels, run, b"", None).expressions == [(said.name, 'Owner == "alice"')]
    it.node.runs.state["policy_decided_at"][run] = time.monotonic()
    for entries, level in (((), Level.BASIC), ((said.name,), Level.IO), ((), Level.BASIC)):
        # its own level has to wait, and what is said of entries has not
        decision = Decision(Level.PROFILE, None, "", "rule", "because", "", entries=entries)
        policy_decisions.record(it.levels, run, decision)
        level_arbiter.arbitrate(it.levels)
        assert it.level(run) is level


def test_a_preview_counts_and_changes_nothing(made: Callable[..., Made]) -> None:
    it = made(entry(most=Level.BASIC, cluster=3, role=Role.ADMINISTRATOR))
    for job, level in (("1.0", Level.BASIC), ("2.0", Level.IO), ("3.0", Level.BASIC)):
        it.begin(job, level)
    before = it.node.runs.rows.tobytes(), it.node.runs.state.tobytes()
    for fields, wanted in (
        ({"least": Level.IO}, (3, 1, 0, 1)),
        ({"most": Level.OFF}, (3, 0, 3, 0)),
        ({"least": Level.IO, "user": "bob"}, (0, 0, 0, 0)),
        ({"least": Level.IO, "expression": "false"}, (3, 1, 0, 1)),
    ):
        counted = level_arbiter.preview(it.levels, entry(**fields))
        assert tuple(counted[name] for name in ("Jobs", "Raised", "Lowered", "Beaten")) == wanted
    assert (it.node.runs.rows.tobytes(), it.node.runs.state.tobytes()) == before


def test_a_preview_has_the_levels_of_the_node_and_what_says_the_opposite_of_the_same_jobs(
    made: Callable[..., Made],
) -> None:
    most, others = entry(most=Level.BASIC, cluster=3), entry(most=Level.BASIC, user="bob")
    it = made(most, others, entry(most=Level.IO), hub_max_level=Level.IO)
    for job in ("1.0", "2.0", "3.0"):
        it.begin(job, Level.BASIC)
    names = ("Before", "After", "Begun", "Capped", "Contradicts")
    shared = {most.name: 1, others.name: 0}

    def counted(**fields: Any) -> list[Any]:
        found = level_arbiter.preview(it.levels, entry(**fields))
        return [found[name] for name in names]

    basic = [0, 3, 0, 0, 0]
    assert counted(least=Level.IO) == [basic, [0, 1, 2, 0, 0], 3, 0, shared]
    assert counted(least=Level.PROFILE)[3] == 3, "the site's knob leaves entries no more than io"
    assert counted(least=Level.BASIC) == [basic, basic, 0, 0, {}]
    assert counted(most=Level.OFF) == [basic, [3, 0, 0, 0, 0], 0, 0, {}]
    it.begin("4.0", Level.IO)
    assert counted(most=Level.BASIC) == [[0, 3, 1, 0, 0], [0, 4, 0, 0, 0], -4, 0, {}]
    assert counted(period=5.0, user="nobody") == [[0, 3, 1, 0, 0]] * 2 + [0, 0, {}]


def test_a_question_is_no_list_and_a_list_no_question(made: Callable[..., Made]) -> None:
    it, said, now = made(), entry(least=Level.IO), int(time.time() * 1000)
    question = sign(EntryList(9, now, (said,)), KEY, signed.QUESTION)
    assert it.levels.entries.asked(question, Config()) == said, "numbers are told by default"
    with pytest.raises(BadEntries):
        it.levels.entries.take(question, TAKES)
    for bad, config in (
        (packet(said), Config()),
        (question, Config(hub_may="none")),
        (sign(EntryList(9, now - 301_000, (said,)), KEY, signed.QUESTION), Config()),
        (sign(EntryList(9, now, (said, entry(least=Level.IO))), KEY, signed.QUESTION), Config()),
        (sign(EntryList(9, now, (said,)), OTHER, signed.QUESTION), Config()),
    ):
        with pytest.raises(BadEntries):
            it.levels.entries.asked(bad, config)
    assert it.levels.entries.holding(TAKES) == []
