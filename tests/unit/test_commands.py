"""Commands of the control socket: who may ask for what, the wrapper's call, and a job that is watched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from selectors import DefaultSelector
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from agent_node import OWNER, Made, make
from control_socket import Server
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.control_socket import CommandNode
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.levels.entries import Entries
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.commands import authority
from condor_joblens.commands.authority import MAY, Caller
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common import user_names
from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import audit, client
from condor_joblens.control.frames import Words
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import VERBS, Payer, Refused, Request, understand
from condor_joblens.jobs.run_state import STATE
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ROW, SCHEMA_HASH, empty_rows
from condor_joblens.shm import artifacts

SCHEMA = f"{SCHEMA_HASH:016x}"
STRANGER = OWNER + 1


@dataclass
class Site:
    """A node (commands/node_protocol.py) with one run, of slot1_1; a test says what the kernel and the ads say."""

    owner: int | None = OWNER  # None: the folder of the run's starter is unknown
    is_alone: bool = True
    is_next_job: bool = False
    wants_python: str = ""
    wants_variables: bool = False
    raised: list[tuple[int, int, str, str, str]] = field(default_factory=list)
    found: list[tuple[int, str, str]] = field(default_factory=list)
    began: list[tuple[int, int]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    done: list[tuple[Payer, dict[str, object]]] = field(default_factory=list)
    config: Config = field(default_factory=lambda: Config(ask=True))
    artifacts: Any = field(default_factory=lambda: Kept("1.hang"))
    remote: Any = None
    notify_refusal: str = ""

    def __post_init__(self) -> None:
        self.runs: Any = SimpleNamespace(rows=empty_rows(2), state=np.zeros(2, STATE))
        self.runs.living = lambda: np.flatnonzero(self.runs.state["used"])
        self.ended: Any = SimpleNamespace(rows=empty_rows(0))
        self.appear(0)

    def appear(self, run: int, number: int = 7) -> None:
        row, state = self.runs.rows[run : run + 1], self.runs.state[run : run + 1]
        row["slot"], row["level"], row["job_id"], row["run_number"] = b"slot1_1", b"basic", b"12.0", number
        state["used"] = state["named"] = True
        state["policy_cap"] = Level.TRACE

    def log(self, message: str) -> None:
        self.lines.append(message)

    def take_evidence(self, run: int, whose: Payer, stream: Any) -> None:
        stream.end({})

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Any) -> None:
        self.done.append((whose, dict(request)))
        stream.end({})

    def notify(self, run: int, line: bytes) -> str:
        self.done.append((run, {"line": line}))
        return self.notify_refusal

    def keep_last_events(self, run: int, whose: Payer) -> float:
        self.done.append((whose, {"run": run}))
        return 1.0

    def sandbox(self, run: int) -> Any:
        return None if self.owner is None else SimpleNamespace(scratch_uid=self.owner)

    def cgroup(self, run: int) -> str:
        return f"/sys/fs/cgroup/slot{run}"

    def describe(self, run: int) -> str:
        return "slot1_1: run 12.0"

    def note(self, run: int, without: str = "") -> str:
        return f"all but {without}"

    def run_of_process(self, pid: int, slot: str, scratch: str) -> int:
        self.found.append((pid, slot, scratch))
        if pid == 666:
            raise Refused("this process is in no slot's cgroup: run it inside a job")
        return 0

    def next_job(self, run: int, pid: int) -> bool:
        if self.is_next_job:
            self.runs.state["activated"][run] = False
        return self.is_next_job

    def only_wrapper_ran(self, run: int) -> bool:
        return self.is_alone

    def begin_counting(self, run: int, pid: int) -> None:
        self.began.append((run, pid))

    def traces_python(self, run: int) -> str:
        return self.wants_python

    def python_ring(self, run: int, pid: int, version: str) -> tuple[dict[str, str], int]:
        return {"file0": "fit.py"}, pid

    def has_raised(self, run: int, pid: int, line: str, place: str, traceback: str) -> bool:
        self.raised.append((run, pid, line, place, traceback))
        return self.wants_variables

    def has_variables(self, run: int, pid: int, lines: str) -> None:
        self.raised.append((run, pid, lines, "", ""))

    def level_refusal(self, run: int, level: Level | None, by_root: bool) -> str:
        node = SimpleNamespace(runs=self.runs, config=self.config)
        levels: Any = SimpleNamespace(node=node, entries=Entries())
        return level_arbiter.refusal(levels, run, level, by_root)

    def kept_low(self, run: int) -> str:
        return ""

    def count_entry(self, packet: bytes) -> dict[str, int]:
        Entries().asked(packet, Config())
        return {}

    def take_entries(self, packet: bytes) -> None:
        Entries().take(packet, Config(hub_may="levels"))

    def apply_levels(self, run: int) -> None:
        self.settled.append(run)


class Kept:
    """A store of artifacts (shm/artifacts.py) with one of each name, all about the run."""

    def __init__(self, *names: str, uid: int = OWNER) -> None:
        self.folder = "/nonexistent"
        self.names, self.uid = names, uid

    def stored(self) -> list[artifacts.StoredArtifact]:
        return [
            artifacts.StoredArtifact(name, 7, "ap#12.0#1700000000#1", "slot1_1", self.uid, "alice", 4096, 0.0, 0.0, 0.0)
            for name in self.names
        ]


class Sink:
    """A stream that keeps what is sent."""

    def __init__(self) -> None:
        self.rows: list[np.void] = []
        self.is_open = self.has_room = True
        self.fields: Mapping[str, str] | None = None

    def send(self, data: bytes) -> bool:
        assert self.has_room
        self.rows.append(np.frombuffer(data, ROW)[0])
        return True

    def end(self, fields: Mapping[str, str]) -> None:
        self.fields, self.is_open = fields, False


def asks(site: Site, verb: str, uid: int, pid: int = 1, stream: Any = None, **arguments: Any) -> Mapping[str, str]:
    request = Request(verb, arguments, pid, uid)
    if VERBS[verb].streams:
        Dispatcher(site).stream(request, stream or Sink())
        return {}
    return Dispatcher(site).answer(request)


# -- who may --------------------------------------------------------------------------------------------------

GOOD: dict[str, dict[str, Any]] = {
    "activate": {"slot": "slot1_1"},
    "say": {"words": "step 3 of 10"},
    "python": {"version": "3.13.1"},
    "raised": {"line": "KeyError: 1", "traceback": "KeyError: 1\n"},
    "variables": {"lines": "@f, fit.py:1"},
    "level": {"job": "12.0"},
    "last": {"job": "12.0"},
    "ask": {"job": "12.0"},
    "watch": {"job": "12.0", "schema": SCHEMA},
    "artifacts": {"job": "12.0"},
    "evidence": {"job": "12.0"},
    "ps": {"job": "12.0"},
    "tail": {"job": "12.0", "file": "stdout", "lines": 10},
    "head": {"job": "12.0", "file": "stdout", "lines": 10},
    "cat": {"job": "12.0", "file": "stdout"},
    "log": {"job": "12.0", "lines": 10},
    "get": {"job": "12.0", "file": "stdout"},
    "env": {"job": "12.0"},
    "peek": {"job": "12.0", "spec": "prog:counter"},
    "node": {"job": "12.0"},
    "ls": {"job": "12.0"},
    "kill": {"job": "12.0", "signal": 15},
    "notify": {"job": "12.0", "text": "stop soon"},
    "trace": {"job": "12.0", "spec": "prog:main"},
    "warrant": {"job": "12.0", "packet": b"not looked at here: tests/unit/test_remote_commands.py"},
    "entries": {"packet": b"not looked at here: tests/unit/test_entries.py"},
    "preview": {"packet": b"not looked at here: tests/unit/test_entries.py"},
}
CALLERS = {"root": (0, 666), "the owner": (OWNER, 666), "a stranger": (STRANGER, 666), "the wrapper": (OWNER, 1)}
"""Of each: user id and process id; process 1 is in the job's slot, 666 is not."""

GRANTED = {
    ("activate", "the wrapper"),
    ("say", "the wrapper"),
    ("raised", "the wrapper"),
    ("variables", "the wrapper"),
    ("python", "the wrapper"),
    ("ask", "root"),
    ("level", "root"),
    ("level", "the owner"),
    ("level", "the wrapper"),
    ("watch", "root"),
    ("watch", "the owner"),
    ("watch", "the wrapper"),
    ("artifacts", "root"),
    ("artifacts", "the owner"),
    ("artifacts", "the wrapper"),
    ("evidence", "root"),
    ("evidence", "the owner"),
    ("evidence", "the wrapper"),
    ("ps", "root"),
    ("ps", "the owner"),
    ("ps", "the wrapper"),
    ("tail", "root"),
    ("tail", "the owner"),
    ("tail", "the wrapper"),
    *itertools.product(
        ("head", "cat", "log", "get", "env", "peek", "node", "ls", "kill", "notify", "trace", "last"),
        ("root", "the owner", "the wrapper"),
    ),
}
"""All that is granted. The wrapper runs as the job's owner."""


def test_the_table_has_every_verb_and_no_other() -> None:
    assert set(MAY) == set(VERBS) == set(GOOD)
    dispatcher = Dispatcher(Site())
    assert {*dispatcher._answers, *dispatcher._streams} == VERBS.keys()
    assert {name for name, verb in VERBS.items() if verb.streams} == dispatcher._streams.keys()


@pytest.mark.parametrize("verb, caller", list(itertools.product(VERBS, CALLERS)))
def test_every_pair_of_verb_and_caller(verb: str, caller: str) -> None:
    uid, pid = CALLERS[caller]
    site = Site()
    if (verb, caller) in GRANTED:
        asks(site, verb, uid, pid, **GOOD[verb])
    else:
        with pytest.raises(Refused):
            asks(site, verb, uid, pid, **GOOD[verb])
        assert site.began == site.settled == site.done == []
        assert not site.runs.state["activated"][0]


@pytest.mark.parametrize("verb", [verb for verb, may in MAY.items() if Caller.OWNER in may])
@pytest.mark.parametrize("uid", [OWNER, STRANGER])
def test_of_a_job_whose_owner_is_unknown_only_root_is_believed(verb: str, uid: int) -> None:
    with pytest.raises(Refused, match="only root and the user as whom the job runs may do this"):
        asks(Site(owner=None), verb, uid, **GOOD[verb])
    asks(Site(owner=None), verb, 0, **GOOD[verb])


@pytest.mark.parametrize("verb", [verb for verb, may in MAY.items() if Caller.OWNER in may])
@pytest.mark.parametrize("uid", user_names.nobodys())
def test_whoever_is_nobody_owns_no_job_whatever_he_is_called(
    verb: str, uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "name_of", lambda uid: "nfsnobody")
    with pytest.raises(Refused, match="only root"):
        asks(Site(owner=uid, artifacts=Kept("1.hang", uid=uid)), verb, uid, **GOOD[verb])


@pytest.mark.parametrize("verb", [verb for verb, may in MAY.items() if Caller.OWNER in may and verb != "artifacts"])
def test_a_refusal_names_nobody_else_s_job(verb: str) -> None:
    site = Site()
    site.runs.rows["job_id"][0] = b"4711.0"
    with pytest.raises(Refused) as refused:
        asks(site, verb, STRANGER, **{**GOOD[verb], "job": "slot1_1"})
    assert "4711" not in str(refused.value)
    site.appear(1, 8)
    site.runs.rows["job_id"][1] = b"4712.0"
    for uid, names_them in ((STRANGER, False), (OWNER, True), (0, True)):
        with pytest.raises(Refused, match="means several jobs") as refused:
            asks(site, verb, uid, **{**GOOD[verb], "job": "slot1_1"})
        assert ("471" in str(refused.value)) == names_them


def test_a_trace_is_of_a_spec_or_the_jobs_own_that_is_followed() -> None:
    for wrong in ({"job": "12.0"}, {"job": "12.0", "spec": "prog:main", "follow": True}):
        with pytest.raises(Refused, match="either spec or follow"):
            asks(Site(), "trace", OWNER, **wrong)
    site = Site()
    asks(site, "trace", OWNER, job="12.0", follow=True)
    asked: Any = site.done.pop()[1]
    assert asked == {"verb": "trace", "spec": "", "seconds": 10, "follow": True}


def test_who_asks_about_a_node_hears_of_his_own_jobs_alone() -> None:
    site = Site()
    site.appear(1, 8)
    site.sandbox = lambda run: SimpleNamespace(scratch_uid=(STRANGER, OWNER)[run])  # type: ignore[method-assign]
    site.runs.rows["job_id"][1] = b"4712.0"

    def listed(uid: int) -> list[str]:
        asks(site, "node", uid, job="4712.0")
        asked: Any = site.done.pop()[1]
        return [each["JobId"] for each in asked["jobs"]]

    assert (listed(OWNER), listed(0)) == (["4712.0"], ["12.0", "4712.0"])


def test_a_wrapper_hears_whether_its_pythons_are_traced() -> None:
    assert asks(Site(), "activate", OWNER) == {"level": "basic"}
    assert asks(Site(wants_python="raises"), "activate", OWNER) == {"level": "basic", "python": "raises"}


def test_an_exception_is_that_of_the_process_that_tells_it() -> None:
    site = Site()
    assert asks(site, "raised", OWNER, 1, line="KeyError: 7", place="fit.py:3", traceback="whole") == {}
    assert asks(site, "raised", OWNER, 1, line="KeyError: 7", traceback="whole") == {}
    assert site.raised == [(0, 1, "KeyError: 7", "fit.py:3", "whole"), (0, 1, "KeyError: 7", "", "whole")]
    site.wants_variables = True
    assert asks(site, "raised", OWNER, 1, line="E", traceback="whole") == {"variables": "wanted"}
    assert asks(site, "variables", OWNER, 1, lines="@f, fit.py:3\n=run=7") == {}
    assert site.raised[-1] == (0, 1, "@f, fit.py:3\n=run=7", "", "")
    with pytest.raises(Refused, match="bytes"):
        understand(Words("raised", {"line": b"E", "traceback": b"x" * 15001}), 1, OWNER, 2)


def says(site: Site, uid: int = OWNER, pid: int = 1, **said: Any) -> str:
    return asks(site, "say", uid, pid, **said)["progress"]


def test_a_job_says_how_far_it_is_and_what_it_does() -> None:
    site = Site()
    assert says(site, words="begins") == "begins"
    assert says(site, share=0.3) == "30 %: begins"
    assert says(site, words="step 3 of 10: 7 % of it") == "30 %: step 3 of 10: 7 % of it"
    assert says(site, share=0.3456) == "34.6 %: step 3 of 10: 7 % of it"
    assert says(site, share=1.0, words="") == "100 %"
    assert site.runs.rows["progress"][0] == b"100 %" and site.runs.rows["progress"][1] == b""
    with pytest.raises(Refused, match="nothing is said"):
        says(site)
    assert site.lines == [], "what a job says is in no log"


def test_what_a_job_says_is_cut_and_escaped() -> None:
    site = Site()
    said = says(site, words="\x1b[2J\n" + "ä" * 200)
    assert said.isprintable() and said.startswith("\\x1b[2J") and len(said.encode()) <= 128


@pytest.mark.parametrize("uid, pid", [(OWNER, 666), (0, 666), (0, 1), (STRANGER, 1), (STRANGER, 666)])
def test_nobody_says_anything_for_another_job(uid: int, pid: int) -> None:
    site = Site()
    with pytest.raises(Refused):
        says(site, uid, pid, words="mine")
    assert site.runs.rows["progress"][0] == b""


@pytest.mark.parametrize("wrong", [b"", b"2", b"-1", b"nan", b"1e-3", b"0.12345678", b"1.1", b"inf", b" 0"])
def test_a_share_is_from_0_to_1(wrong: bytes) -> None:
    with pytest.raises(Refused, match="from 0 to 1"):
        understand(Words("say", {"share": wrong}), 1, OWNER, 1)
    assert understand(Words("say", {"share": b"0.25"}), 1, OWNER, 1).arguments == {"share": 0.25}


def test_root_gets_the_names_of_variables_alone() -> None:
    site = Site()
    for uid, values in ((0, False), (OWNER, True)):
        asks(site, "env", uid, job="12.0")
        assert site.done.pop()[1] == {"verb": "env", "pid": 0, "values": values}


def test_root_asks_by_a_program_where_the_site_allows_it() -> None:
    site = Site()
    request = Request("ask", {"job": "12.0"}, 666, 0)
    assert Dispatcher(site).answer(request) == {"cgroup": "/sys/fs/cgroup/slot0"}
    assert site.lines == ["slot1_1: run 12.0: root asks about it by a BPF program of his own"]
    with pytest.raises(Refused, match="set JOBLENS_ASK = true"):
        Dispatcher(Site(config=Config())).answer(request)


def test_a_job_is_told_by_whom_and_the_log_has_no_word_of_it() -> None:
    site = Site()
    asks(site, "notify", 0, job="12.0", text="stop\nbeim nächsten\x1b")
    assert site.done[0][1]["line"].decode().endswith("Z root: stop\\x0abeim nächsten\\x1b\n")
    assert site.lines == ["slot1_1: run 12.0: root asked for notify"]
    site.notify_refusal = "it is full"
    with pytest.raises(Refused, match="it is full"):
        asks(site, "notify", 0, job="12.0", text="again")
    with pytest.raises(Refused, match="only root and the user"):
        asks(site, "notify", STRANGER, job="12.0", text="again")
    assert all("was refused: " in line and "again" not in line for line in site.lines[1:]) and len(site.lines) == 3
    assert len(site.done) == 2


def test_a_file_is_fetched_up_to_the_bound_of_its_node() -> None:
    site = Site(config=Config(get_max_bytes=7))
    asks(site, "get", OWNER, job="12.0", file="log", offset=3)
    assert site.done.pop()[1] == {"verb": "get", "file": "log", "offset": 3, "most": 7}


def test_of_several_jobs_the_caller_s_own_is_meant() -> None:
    site = Site()
    site.appear(1, 8)
    site.sandbox = lambda run: SimpleNamespace(scratch_uid=(STRANGER, OWNER)[run])  # type: ignore[method-assign]
    site.runs.rows["job_id"][1] = b"4712.0"
    assert asks(site, "level", OWNER, job="slot1_1")["job_id"] == "4712.0"


def test_what_level_io_has_missed_is_told_while_io_is_counted() -> None:
    site = Site()
    for level, note in (("basic", "all but late_io"), ("off", "all but late_io"), ("io", "all"), ("trace", "all")):
        site.runs.rows["level"], site.runs.rows["note"] = level.encode(), b"all"
        assert asks(site, "level", OWNER, job="12.0")["note"] == note
    site.runs.rows["level"], site.runs.rows["note"] = b"basic", b""
    assert "note" not in asks(site, "level", OWNER, job="12.0")


def test_a_verb_that_the_table_lacks_is_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(authority.MAY, "level")
    for uid in (0, OWNER):
        with pytest.raises(Refused, match="only nobody may do this"):
            asks(Site(), "level", uid, job="12.0")


# -- activate -------------------------------------------------------------------------------------------------


def test_the_wrapper_is_answered_with_the_level_and_its_job_begins() -> None:
    site = Site()
    assert asks(site, "activate", OWNER, 5, slot="slot1_1@node", scratch="/x") == {"level": "basic"}
    assert (site.found, site.began) == ([(5, "slot1_1@node", "/x")], [(0, 5)])
    assert site.runs.state["activated"][0]


@pytest.mark.parametrize(
    "site, uid, slot, reason",
    [
        (Site(), OWNER, "slot1_2", "in another slot"),
        (Site(), OWNER, "@slot1_1", "in another slot"),
        (Site(), STRANGER, "slot1_1", "not the job's user's"),
        (Site(), 0, "slot1_1", "not the job's user's"),
        (Site(is_alone=False), OWNER, "", "started already"),
    ],
)
def test_a_call_that_begins_nothing(site: Site, uid: int, slot: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        asks(site, "activate", uid, slot=slot)
    assert site.began == [] and not site.runs.state["activated"][0]


def test_a_job_is_activated_once() -> None:
    site = Site()
    asks(site, "activate", OWNER)
    with pytest.raises(Refused, match="started already"):
        asks(site, "activate", OWNER)
    assert len(site.began) == 1


def test_the_next_job_in_the_same_cgroup_is_checked_like_the_first() -> None:
    site = Site(is_next_job=True)
    site.runs.state["activated"][0] = True
    asks(site, "activate", OWNER)
    assert len(site.found) == 2 and len(site.began) == 1


def test_the_next_job_of_somebody_else_is_not_begun_by_its_predecessors_user() -> None:
    site = Site(is_next_job=True)
    site.runs.state["activated"][0] = True
    owners = iter([OWNER, STRANGER])
    site.sandbox = lambda run: SimpleNamespace(scratch_uid=next(owners))  # type: ignore[method-assign]
    with pytest.raises(Refused, match="not the job's user's"):
        asks(site, "activate", OWNER)
    assert site.began == []


# -- level ----------------------------------------------------------------------------------------------------

LEVEL = st.sampled_from(list(Level))


@given(LEVEL, LEVEL, LEVEL, LEVEL, st.booleans())
def test_what_is_granted_is_what_the_arbiter_then_gives(
    maximum: Level, decided: Level, cap: Level, wish: Level, is_root: bool
) -> None:
    """Nothing is granted that comes to nothing, and nothing is refused that would have come to what was asked for."""
    site = Site(config=Config(max_level=maximum))
    state = site.runs.state
    # what the policies decide keeps to the site's cap and to their own
    state["policy_cap"][0], state["policy_level"][0] = cap, min(decided, cap, maximum)
    state["override_until"][0] = 0
    try:
        asks(site, "level", 0 if is_root else OWNER, job="12.0", level=wish)
    except Refused:
        assert site.settled == [] and state["override_until"][0] == 0
        # what would have come of it is not what was asked for
        state["override_level"][0], state["override_until"][0], state["override_by_root"][0] = wish, 1e12, is_root
        (given,), _ = level_arbiter.precedence(state, np.array([0]), maximum, Level.BASIC, 0.0)
        assert given != wish
    else:
        (given,), _ = level_arbiter.precedence(state, np.array([0]), maximum, Level.BASIC, 0.0)
        assert given == wish and site.settled == [0]


# -- ps, tail, kill -------------------------------------------------------------------------------------------


def test_what_the_owner_does_is_asked_in_full_and_audited() -> None:
    site = Site()
    asks(site, "tail", OWNER, job="12.0", file="a/\x1b[2Jb", lines=5, follow=True)
    asks(site, "kill", 0, job="12.0", signal=10)
    Dispatcher(site).stream(Request("kill", {"job": "12.0", "signal": 9, "pid": 77}, 1, OWNER), Sink())  # type: ignore[arg-type]
    assert site.done == [
        (OWNER, {"verb": "tail", "file": "a/\x1b[2Jb", "lines": 5, "follow": True}),
        (0, {"verb": "kill", "pid": 0, "signal": 10}),
        (OWNER, {"verb": "kill", "pid": 77, "signal": 9}),
    ]
    who = authority.name_of(OWNER)
    assert site.lines == [
        f"slot1_1: run 12.0: {who} asked for tail -f a/\\x1b[2Jb",
        "slot1_1: run 12.0: root asked for kill SIGUSR1",
        f"slot1_1: run 12.0: {who} asked for kill SIGKILL 77",
    ]


def test_a_refusal_is_audited_with_its_reason() -> None:
    site = Site()
    with pytest.raises(Refused):
        asks(site, "kill", STRANGER, job="12.0", signal=9)
    with pytest.raises(Refused):
        asks(site, "ps", OWNER, job="13.0")
    assert site.lines[0].startswith(f"job 12.0: {authority.name_of(STRANGER)} asked for kill SIGKILL, and was refused")
    assert "no job 13.0 runs on this node" in site.lines[1]


def test_a_user_asks_for_one_command_a_second_after_the_first_ones() -> None:
    now, lines = [100.0], list[str]()
    book = audit.Audit(lines.append, lambda: now[0])
    for _ in range(audit.IN_A_ROW):
        book.pace(OWNER)
    with pytest.raises(Refused, match="one a second"):
        book.pace(OWNER)
    book.pace(STRANGER)
    for _ in range(1000):
        book.pace(0)
    now[0] += 1
    book.pace(OWNER)
    with pytest.raises(Refused):
        book.pace(OWNER)
    assert lines == []


def test_the_first_refusals_of_a_minute_have_a_line_and_the_others_a_sum() -> None:
    now, lines = [100.0], list[str]()
    book = audit.Audit(lines.append, lambda: now[0])
    for _ in range(25):
        book.refused(OWNER, "no")
    book.refused(STRANGER, "nor he")
    assert lines == ["no"] * audit.REFUSALS + ["nor he"]
    now[0] += 61
    lines.clear()
    book.refused(OWNER, "again")
    assert lines == [f"user {OWNER}: 15 more commands were refused in a minute", "again"]


def test_users_beyond_the_bound_are_forgotten_with_their_sum() -> None:
    lines = list[str]()
    book = audit.Audit(lines.append, lambda: 0.0)
    for _ in range(audit.REFUSALS + 3):
        book.refused(1, "no")
    lines.clear()
    for uid in range(2, 2 + audit.MOST_USERS):
        book.pace(uid)
    assert lines == ["user 1: 3 more commands were refused in a minute"]


def test_the_lines_of_all_refusals_are_bounded_too() -> None:
    """One person can ask as any of thousands of user ids."""
    lines, now = list[str](), [0.0]
    book = audit.Audit(lines.append, lambda: now[0])
    for uid in range(5000):
        for _ in range(audit.REFUSALS + 1):
            book.refused(uid, "no")
    assert lines == ["no"] * audit.REFUSALS_OF_ALL
    now[0] += 61
    lines.clear()
    book.refused(9999, "nor he")
    assert "more lines about refused commands" in lines[0] and lines[-1] == "nor he" and len(lines) == 3


def test_a_flood_that_ends_has_its_sum_when_its_minute_is_over() -> None:
    lines, now = list[str](), [0.0]
    book = audit.Audit(lines.append, lambda: now[0])
    book.sums()
    assert book.timeout() == 3600.0
    for _ in range(audit.REFUSALS + 1):
        book.refused(OWNER, "no")
    now[0] += 30
    for _ in range(audit.REFUSALS + 2):
        book.refused(STRANGER, "nor he")
    assert book.timeout() == 30.0
    lines.clear()
    book.sums()
    assert lines == []
    now[0] += book.timeout()
    book.sums()
    assert lines == [f"user {OWNER}: 1 more commands were refused in a minute"]
    now[0] += book.timeout()
    book.sums()
    assert lines[1:] == [f"user {STRANGER}: 2 more commands were refused in a minute"] and book.timeout() == 3600.0
    now[0] += 1000
    book.sums()
    book.sums(at_once=True)
    assert len(lines) == 2


def test_a_flood_of_many_users_has_its_sum_too_and_all_have_theirs_at_the_end() -> None:
    lines, now = list[str](), [0.0]
    book = audit.Audit(lines.append, lambda: now[0])
    for uid in range(audit.REFUSALS_OF_ALL + 5):
        book.refused(uid, "no")
    for _ in range(audit.REFUSALS):
        book.refused(OWNER, "no")
    lines.clear()
    assert book.timeout() == audit.REFUSALS_SECONDS
    now[0] += audit.REFUSALS_SECONDS
    book.sums()
    assert lines == [f"{5 + audit.REFUSALS} more lines about refused commands of many users were left out"]
    for _ in range(audit.REFUSALS + 1):
        book.refused(OWNER, "no")
    lines.clear()
    book.sums(at_once=True)
    assert lines == [f"user {OWNER}: 1 more commands were refused in a minute"]


def test_joblensd_tells_them_in_its_own_loop() -> None:
    site, now = Site(), [0.0]
    dispatcher = Dispatcher(site)
    dispatcher._audit = audit.Audit(site.log, lambda: now[0])
    for _ in range(audit.REFUSALS + 1):
        dispatcher._audit.refused(OWNER, "no")
    assert dispatcher.timeout() == audit.REFUSALS_SECONDS
    now[0] += audit.REFUSALS_SECONDS
    dispatcher.tell_sums()
    assert site.lines[-1] == f"user {OWNER}: 1 more commands were refused in a minute"


# -- watch ----------------------------------------------------------------------------------------------------


def begun(site: Site, *sinks: Sink) -> Dispatcher:
    dispatcher = Dispatcher(site)
    for sink in sinks:
        dispatcher.stream(Request("watch", GOOD["watch"], 1, OWNER), sink)  # type: ignore[arg-type]
    return dispatcher


def measured(site: Site, seconds: float) -> None:
    site.runs.rows["cpu_seconds"][0] = seconds
    site.runs.rows["sequence"][0] += 1


def test_who_watches_gets_the_row_now_and_each_newer_one() -> None:
    site, sinks = Site(), [Sink(), Sink()]
    measured(site, 1)
    watch = begun(site, *sinks).watch
    watch.send()  # nothing new
    for seconds in (2, 3):
        measured(site, seconds)
        watch.send()
        watch.send()
    for sink in sinks:
        assert [row["cpu_seconds"] for row in sink.rows] == [1, 2, 3]


def test_a_slow_reader_misses_rows_and_can_tell_how_many() -> None:
    site, slow, quick = Site(), Sink(), Sink()
    measured(site, 1)
    watch = begun(site, slow, quick).watch
    slow.has_room = False
    for seconds in (2, 3):
        measured(site, seconds)
        watch.send()
    slow.has_room = True
    measured(site, 4)
    watch.send()
    assert [int(row["sequence"]) for row in slow.rows] == [1, 4]
    assert [int(row["sequence"]) for row in quick.rows] == [1, 2, 3, 4]


def test_the_last_row_is_sent_and_then_the_end() -> None:
    site, sink = Site(), Sink()
    watch = begun(site, sink).watch
    last = site.runs.rows[:1].copy()
    last["cpu_seconds"], last["final"] = 99, True
    other = last.copy()
    other["run_number"] = 6
    site.ended.rows = np.concatenate([last, other])
    site.runs.state["used"][0] = False
    watch.send()
    assert (sink.rows[-1]["cpu_seconds"], sink.rows[-1]["final"]) == (99, True)
    assert sink.fields == {} and not watch.is_watched


def test_the_next_run_in_the_same_place_is_another_one() -> None:
    site, sink, next_sink = Site(), Sink(), Sink()
    dispatcher = begun(site, sink)
    site.appear(0, number=8)
    dispatcher.stream(Request("watch", GOOD["watch"], 1, OWNER), next_sink)  # type: ignore[arg-type]
    assert sink.fields == {} and next_sink.is_open
    measured(site, 5)
    dispatcher.watch.send()
    assert [int(row["run_number"]) for row in sink.rows] == [7]
    assert [int(row["run_number"]) for row in next_sink.rows] == [8, 8]


def test_who_has_left_is_forgotten() -> None:
    site, sink = Site(), Sink()
    watch = begun(site, sink).watch
    sink.is_open = False
    watch.send()
    assert not watch.is_watched


def test_who_knows_other_columns_is_told_what_to_do() -> None:
    with pytest.raises(Refused, match="restart joblensd"):
        asks(Site(), "watch", OWNER, job="12.0", schema="0")


# -- all of it, over a socket ---------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    return lambda **knobs: make(tmp_path, monkeypatch, **knobs)


def command_node(it: Made) -> CommandNode:
    nobody, node = DefaultSelector(), it.agent.node
    return CommandNode(it.agent, Evidence(node, None, nobody), OwnerCommands(node, None, nobody))


def test_a_notice_is_not_written_as_who_has_got_the_folder_meanwhile(made: Callable[..., Made]) -> None:
    it = made()
    run = it.begin("12.0")
    sandbox: Any = it.node.handles[run].sandbox
    sandbox.is_of_its_user.return_value = False
    assert "belongs to another user than when the job began" in command_node(it).notify(run, b"x\n")
    sandbox.add_notice.assert_not_called()


def test_a_job_of_the_real_table_is_watched_over_a_real_socket(made: Callable[..., Made], tmp_path: Path) -> None:
    it = made()
    run = it.begin("12.0")
    dispatcher = Dispatcher(command_node(it))
    path = str(tmp_path / "activate.sock")

    def begin(request: Request, stream: Stream) -> None:
        dispatcher.stream(Request(request.verb, request.arguments, request.pid, 0), stream)

    server = Server(path, begin)
    try:
        with pytest.raises(JobLensError, match=r"no job 13\.0 runs on this node"):
            next(client.stream(path, "watch", {"job": "13.0", "schema": SCHEMA}))
        rows = client.stream(path, "watch", {"job": "12.0", "schema": SCHEMA})
        assert np.frombuffer(next(rows), ROW)["job_id"] == b"12.0"

        def later() -> None:
            it.node.runs.rows["cpu_seconds"][run] = 42
            it.node.runs.rows["sequence"][run] += 1
            dispatcher.watch.send()

        server.run(later)
        assert np.frombuffer(next(rows), ROW)["cpu_seconds"] == 42
        it.node.ended = SimpleNamespace(rows=empty_rows(0))  # type: ignore[assignment]
        server.run(lambda: (it.node.runs.remove(run), dispatcher.watch.send()))
        assert list(rows) == []
    finally:
        server.stop()
