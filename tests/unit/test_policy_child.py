"""The policy child as joblensd has it: real processes, ClassAds and Lua, and everything that kills them."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.common import readiness
from condor_joblens.model.levels import Level
from condor_joblens.policy import child_pool, child_process
from condor_joblens.policy.child_frames import MAX_AD, MAX_REPLY, pack
from condor_joblens.policy.policy_answers import ActivationRequest, Decision, PolicyAnswer, PolicyFailure
from condor_joblens.policy.policy_client import PolicyClient
from condor_joblens.policy.requests import ChildLimits

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = ("10-default.lua", (ROOT / "lua_policies" / "10-default.lua").read_text())
PATIENT = ChildLimits(cpu_seconds=5.0, wall_seconds=60.0)  # where the budget is not what is tested

LONG_C_CALL = """
rule "long" {
    when = function(job)
        if job.Owner ~= "mallory" then return false end
        local text = "aaaaaaaa"
        while #text < 1048576 do text = text .. text end
        while true do local copy = text .. "b" end
    end,
    level = "io",
}
"""
"""Megabytes copied with each instruction of Lua: neither the hook nor the bound on memory ends it soon."""

CRASHING_AD = b'Owner = "mallory"\nJobLensLevel = ' + b"1+" * 200_000 + b"1\n"


def request(ad: bytes, default: Level = Level.BASIC, cap: Level = Level.IO) -> ActivationRequest:
    return ActivationRequest(ad, {"Name": "slot1_1@node"}, default, cap)


def drive(child: PolicyClient, until: Callable[[], bool]) -> dict[Any, PolicyAnswer]:
    """joblensd's loop, until there is what is awaited."""
    outcomes: dict[Any, PolicyAnswer] = {}
    deadline = time.monotonic() + 300  # on a machine that does much else
    while not until():
        assert time.monotonic() < deadline, f"nothing came: {outcomes}"
        wait = child.timeout(time.monotonic())
        readiness.readable([child], 0.2 if wait is None else min(wait, 0.2))
        child.expire(time.monotonic())
        for key, outcome in child.receive():
            assert key not in outcomes, "a request was answered twice"
            outcomes[key] = outcome
        if outcomes and until is never:
            break
    return outcomes


def never() -> bool:
    """Until the first outcome."""
    return False


def ask(child: PolicyClient, ad: bytes, **asked: Level) -> PolicyAnswer:
    child.submit("job", request(ad, **asked))
    return drive(child, never)["job"]


def ask_all(child: PolicyClient, ads: dict[str, bytes]) -> dict[str, PolicyAnswer]:
    for key, ad in ads.items():
        child.submit(key, request(ad))
    outcomes: dict[str, PolicyAnswer] = {}
    while len(outcomes) < len(ads):
        outcomes.update(drive(child, never))
    return outcomes


@pytest.fixture
def make() -> Iterator[Callable[..., PolicyClient]]:
    """Makes children that are ready, and ends them."""
    children: list[PolicyClient] = []

    def make(*policies: tuple[str, str], limits: ChildLimits = PATIENT, **more: Any) -> PolicyClient:
        child = PolicyClient(policies or [DEFAULT], limits, **more)
        children.append(child)
        child.start()
        drive(child, lambda: child.ready)
        return child

    yield make
    for child in children:
        child.stop()


@pytest.fixture(scope="module")
def patient() -> Iterator[PolicyClient]:
    """One child for the tests that do it no harm."""
    child = PolicyClient([DEFAULT], PATIENT)
    child.start()
    yield child
    child.stop()


# What is decided.


@pytest.mark.parametrize(
    ("line", "level", "requested", "note"),
    [
        (b"", Level.BASIC, None, ""),
        (b'JobLensLevel = "off"', Level.OFF, Level.OFF, ""),
        (b'joblenslevel = "Io"', Level.IO, Level.IO, ""),
        (b"JobLensLevel = 2", Level.IO, Level.IO, ""),
        (b'JobLensLevel = "IO "', Level.IO, Level.IO, 'JobLensLevel = "IO " is taken as io'),
        (b'JobLensLevel = ifThenElse(RequestCpus > 1, "io", "off")', Level.IO, Level.IO, ""),
        (
            b'JobLensLevel = "trace"',
            Level.IO,
            Level.TRACE,
            'JobLensLevel = "trace" is above this site\'s JOBLENS_MAX_LEVEL = io: capped',
        ),
    ],
)
def test_a_request_is_granted_up_to_the_cap(
    patient: PolicyClient, line: bytes, level: Level, requested: Level | None, note: str
) -> None:
    outcome = ask(patient, b"RequestCpus = 4\n" + line)
    assert isinstance(outcome, Decision)
    assert (outcome.level, outcome.requested, outcome.note) == (level, requested, note)
    assert outcome.policy == "as asked"
    assert outcome.errors == ()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("7", "7"),
        ('"io; rm -rf /"', '"io; rm -rf /"'),
        ("{1,2}", "{ 1, 2 }"),
        ("NoSuchAttribute", "NoSuchAttribute (= undefined)"),
        ("error", "error"),
        ('"a" + 1', '"a" + 1 (= error)'),
        ("1.5", "1.500000000000000E+00"),
        ("true", "true"),
    ],
)
def test_what_is_no_level_gets_the_default_and_a_note(patient: PolicyClient, value: str, shown: str) -> None:
    outcome = ask(patient, f"JobLensLevel = {value}".encode())
    assert isinstance(outcome, Decision)
    assert outcome.level is Level.BASIC
    assert outcome.requested is None
    refusal = "is not a level (off, basic, io, profile, trace or 0-4)"
    assert outcome.note == f"JobLensLevel = {shown} {refusal}: taken as basic"


def test_a_request_that_refers_to_itself_gets_the_default_and_a_note(patient: PolicyClient) -> None:
    outcome = ask(patient, b"JobLensLevel = JobLensLevel")
    assert outcome.level is Level.BASIC
    value = outcome.note.partition(" is not a level ")[0]  # it depends on HTCondor's version which
    assert value in [f"JobLensLevel = JobLensLevel (= {value})" for value in ("undefined", "error")]


def test_the_default_and_the_cap_are_the_sites(patient: PolicyClient) -> None:
    assert ask(patient, b"A = 1", default=Level.OFF).level is Level.OFF
    assert ask(patient, b"A = 1", default=Level.TRACE, cap=Level.BASIC).level is Level.BASIC
    assert ask(patient, b"JobLensLevel = 4", cap=Level.TRACE).level is Level.TRACE


def test_the_cap_holds_against_policies(make: Callable[..., PolicyClient]) -> None:
    child = make(("10-all.lua", 'rule "all" { level = "trace" }'))
    assert ask(child, b"A = 1").level is Level.IO


def test_the_job_is_known_by_its_ad(patient: PolicyClient) -> None:
    ad = b"""GlobalJobId = "ap#7.1#1700000000"
ClusterId = 7
ProcId = 1
Owner = "alice"
User = "alice@example.org"
AcctGroup = "cms.prod"
Cmd = "/usr/bin/analyse"
JobUniverse = 5
NumShadowStarts = 3
RequestCpus = 2
RequestMemory = ifthenelse(MemoryUsage =!= undefined, MemoryUsage, ( ImageSize + 1023 ) / 1024)
ImageSize = 1048576
Secret = "not for the log"
InteractiveJob = ImageSize > 0
"""
    assert ask(patient, ad).identity == {
        "GlobalJobId": "ap#7.1#1700000000",
        "ClusterId": 7,
        "ProcId": 1,
        "Owner": "alice",
        "User": "alice@example.org",
        "AcctGroup": "cms.prod",
        "Cmd": "analyse",
        "JobUniverse": 5,
        "NumShadowStarts": 3,
        "RequestCpus": 2,
        "RequestMemory": 1024,
        "InteractiveJob": True,
    }


def test_the_last_rule_that_matches_decides(make: Callable[..., PolicyClient]) -> None:
    child = make(
        DEFAULT,
        ("20-site.lua", 'rule "trial" { when = { Owner = "alice" }, cap = "off", reason = "a trial" }'),
        ("30-none.lua", 'rule "bob" { when = { Owner = "bobby" }, cap = "basic" }'),
    )
    alice = ask(child, b'Owner = "alice"\nJobLensLevel = "io"')
    assert isinstance(alice, Decision)
    assert (alice.level, alice.policy, alice.reason) == (Level.OFF, "trial", "a trial")
    assert alice.note == 'JobLensLevel = "io" was asked, policy trial gave off'
    bob = ask(child, b'Owner = "bob"\nJobLensLevel = "io"')
    assert isinstance(bob, Decision)
    assert (bob.level, bob.policy) == (Level.IO, "as asked")


def test_functions_that_the_last_rule_names_are_traced_of_its_jobs(make: Callable[..., PolicyClient]) -> None:
    child = make(
        ("20-site.lua", 'rule "all" { trace = "libXrdCl.so*:*Open*" }'),
        ("30-alice.lua", 'rule "alice" { when = { Owner = "alice" }, level = "io", trace = "reco:fit(int); reco:io" }'),
        ("40-carol.lua", 'rule "carol" { when = { Owner = "carol" }, trace = "" }'),
    )
    wanted = {"alice": "reco:fit(int); reco:io", "bob": "libXrdCl.so*:*Open*", "carol": ""}
    for owner, specs in wanted.items():
        outcome = ask(child, f'Owner = "{owner}"'.encode())
        assert isinstance(outcome, Decision) and outcome.traced == specs


def test_a_rule_that_fails_on_a_job_is_left_out_and_told(make: Callable[..., PolicyClient]) -> None:
    child = make(
        DEFAULT,
        ("20-bad.lua", "rule 'bad' { level = 'off', when = function(job)\n  error('bad')\nend }"),
        ("30-loop.lua", 'rule "loop" { level = "off", when = function() while true do end end }'),
        ("50-escape.lua", 'rule "escape" { level = "off", when = function() pcall(error) end }'),
    )
    outcome = ask(child, b'JobLensLevel = "io"\nOwner = "alice"')
    assert isinstance(outcome, Decision)
    assert (outcome.level, outcome.policy) == (Level.IO, "as asked")
    blamed = [(error.file, error.line, error.rule) for error in outcome.errors]
    assert blamed == [("20-bad.lua", 2, "bad"), ("30-loop.lua", 1, "loop"), ("50-escape.lua", 1, "escape")]
    assert str(outcome.errors[2]) == '50-escape.lua:1: rule "escape": pcall is not known here'


def test_a_policy_with_a_mistake_is_set_aside_and_told_once(make: Callable[..., PolicyClient]) -> None:
    log: list[str] = []
    mistake = "20-typo.lua:2: '}' expected (to close '{' at line 1) near 'cap': is a comma missing before it, or a } "
    mistake += "further up?"
    child = make(DEFAULT, ("20-typo.lua", 'rule "typo" {\n  level = "io" cap = "io"\n}'), log=log.append)
    assert log == [f"policy set aside: {mistake}"]
    assert child.errors == [mistake]
    kill_and_replace(child)
    assert len(log) == 1
    assert ask(child, b'JobLensLevel = "io"').level is Level.IO


def test_without_any_policy_jobs_get_the_default(make: Callable[..., PolicyClient]) -> None:
    child = make(("10-empty.lua", ""))
    outcome = ask(child, b'JobLensLevel = "io"')
    assert isinstance(outcome, Decision)
    assert (outcome.level, outcome.policy) == (Level.BASIC, "")
    assert outcome.note == 'JobLensLevel = "io" was asked, no policy is in force: taken as basic'


# What ads can do.


def test_an_ad_of_a_megabyte_is_decided(patient: PolicyClient) -> None:
    start = b'JobLensLevel = "io"\nEnvironment = "'
    ad = start + b"x" * (MAX_AD - len(start) - 1) + b'"'
    assert len(ad) == MAX_AD
    assert ask(patient, ad).level is Level.IO


def test_a_larger_ad_is_refused_unread(patient: PolicyClient) -> None:
    outcome = ask(patient, b"x" * (MAX_AD + 1))
    assert isinstance(outcome, PolicyFailure)
    assert outcome.note == "the job's ad has 1048577 bytes, more than 1048576: watched at the default, basic"


def test_an_ad_that_crashes_its_parser_costs_one_decision(make: Callable[..., PolicyClient]) -> None:
    child = make()
    outcomes = ask_all(child, {"before": b"JobLensLevel=2", "bad": CRASHING_AD, "after": b"JobLensLevel=2"})
    bad = outcomes["bad"]
    assert isinstance(bad, PolicyFailure)
    assert bad.level is Level.BASIC
    assert bad.note == "the job's ad killed the policy child (SIGSEGV): watched at the default, basic"
    assert bad.identity == {"Owner": "mallory"}
    assert outcomes["before"].level is outcomes["after"].level is Level.IO


@pytest.mark.parametrize(
    ("ad", "why"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"garbage", "can't be parsed"),
        (b"\x00\xff\xfe", "can't be parsed"),
        (b"\n".join(b"A%d = 1" % n for n in range(20001)), "has more than 20000 attributes"),
    ],
)
def test_an_unusable_ad_gets_the_default_and_a_note(patient: PolicyClient, ad: bytes, why: str) -> None:
    pid = patient.pid
    outcome = ask(patient, ad)
    assert isinstance(outcome, PolicyFailure)
    assert outcome.note == f"the job's ad {why}: watched at the default, basic"
    assert patient.pid == pid


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: f"JobLensLevel = {text}".encode()))
def test_any_ad_is_answered(patient: PolicyClient, ad: bytes) -> None:
    outcome = ask(patient, ad)
    assert outcome.level <= Level.IO
    assert len(outcome.note) <= 200 and outcome.note.isprintable()


@pytest.mark.slow
def test_a_memory_bomb_in_an_ad_costs_one_decision(make: Callable[..., PolicyClient]) -> None:
    child = make()
    lines = [b"A%d = strcat(A%d, A%d)" % (n, n - 1, n - 1) for n in range(1, 23)]
    ad = b'A0 = "' + b"x" * 1000 + b'"\n' + b"\n".join(lines) + b"\nJobLensLevel = A22"
    assert isinstance(ask(child, ad), PolicyFailure)
    assert ask(child, b"JobLensLevel = 2").level is Level.IO


# Budgets and deaths.


def test_a_policy_beyond_its_cpu_is_killed_and_named(make: Callable[..., PolicyClient]) -> None:
    child = make(DEFAULT, ("20-find.lua", LONG_C_CALL), limits=ChildLimits(cpu_seconds=0.25, wall_seconds=60))
    outcomes = ask_all(child, {"bad": b'Owner = "mallory"', "good": b"JobLensLevel = 2"})
    bad = outcomes["bad"]
    assert isinstance(bad, PolicyFailure)
    assert bad.note == 'policy 20-find.lua:2: rule "long" took more than 250 ms of CPU: watched at the default, basic'
    assert outcomes["good"].level is Level.IO


def test_a_child_that_ignores_its_own_timer_is_killed_for_its_cpu(
    make: Callable[..., PolicyClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = make(DEFAULT, ("20-find.lua", LONG_C_CALL), limits=ChildLimits(cpu_seconds=5, wall_seconds=60))
    monkeypatch.setattr(child_process.ChildProcess, "cpu_seconds", lambda self: time.monotonic() * 1000)
    outcome = ask(child, b'Owner = "mallory"')
    assert isinstance(outcome, PolicyFailure)
    assert "took more than 5000 ms of CPU" in outcome.note


def test_a_child_that_does_nothing_is_killed_by_the_wall_clock(make: Callable[..., PolicyClient]) -> None:
    child = make(limits=ChildLimits(cpu_seconds=5, wall_seconds=0.3))
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    outcome = ask(child, b"JobLensLevel = 2")
    assert isinstance(outcome, PolicyFailure)
    assert outcome.note == "the job's ad took more than 0.3 s: watched at the default, basic"


def kill_and_replace(child: PolicyClient) -> None:
    """kill -9 of the child, and wait for the next."""
    pid = child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    drive(child, lambda: child.ready and child.pid not in (None, pid))


def test_an_idle_child_that_is_killed_is_replaced(make: Callable[..., PolicyClient]) -> None:
    child = make()
    descriptor = child.fileno()
    for _ in range(3):
        kill_and_replace(child)
        assert ask(child, b"JobLensLevel = 2").level is Level.IO
    assert child.fileno() == descriptor


def test_a_child_killed_at_work_costs_the_one_request(make: Callable[..., PolicyClient]) -> None:
    child = make(DEFAULT, ("20-find.lua", LONG_C_CALL), limits=ChildLimits(cpu_seconds=30, wall_seconds=60))
    child.submit("bad", request(b'Owner = "mallory"'))
    for number in range(20):
        child.submit(number, request(b"JobLensLevel = 2"))
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    outcomes: dict[Any, PolicyAnswer] = {}
    while len(outcomes) < 21:
        outcomes.update(drive(child, never))
    bad = outcomes.pop("bad")
    assert isinstance(bad, PolicyFailure)
    assert "killed the policy child (SIGKILL)" in bad.note
    assert {outcome.level for outcome in outcomes.values()} == {Level.IO}


def test_requests_before_the_child_is_ready_are_answered() -> None:
    child = PolicyClient([DEFAULT], PATIENT)
    child.submit("early", request(b"JobLensLevel = 2"))
    child.start()
    child.submit("later", request(b"JobLensLevel = 0"))
    outcomes: dict[Any, PolicyAnswer] = {}
    while len(outcomes) < 2:
        outcomes.update(drive(child, never))
    child.stop()
    assert (outcomes["early"].level, outcomes["later"].level) == (Level.IO, Level.OFF)


def test_other_policies_are_taken_without_losing_a_request(make: Callable[..., PolicyClient]) -> None:
    child = make()
    for number in range(10):
        child.submit(number, request(b"JobLensLevel = 2"))
    child.reload([("10-off.lua", 'rule "off" { level = "off" }')])
    outcomes: dict[Any, PolicyAnswer] = {}
    while len(outcomes) < 10:
        outcomes.update(drive(child, never))
    assert all(isinstance(outcome, Decision) for outcome in outcomes.values())
    assert outcomes[9].level is Level.OFF


# A child that can't work, or lies.


def test_a_queue_without_bound_is_refused() -> None:
    child = PolicyClient([DEFAULT], ChildLimits(queue_bytes=100))
    child.submit("fits", request(b"x" * 100))
    child.submit("too much", request(b"x"))
    ((key, outcome),) = child.receive()
    assert key == "too much"
    assert outcome.note == "too many jobs wait for their policy: watched at the default, basic"
    child.stop()


@pytest.fixture
def impostor(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts another program in the child's place."""

    def install(code: str) -> None:
        monkeypatch.setattr(child_process, "COMMAND", [sys.executable, "-c", code])

    return install


def test_where_no_child_can_be_had_jobs_get_the_default_and_the_log_says_why_once(
    impostor: Callable[[str], None],
) -> None:
    impostor("import sys; sys.modules['lupa'] = None; from condor_joblens.policy import child; child.main()")
    log: list[str] = []
    child = PolicyClient([DEFAULT], ChildLimits(queue_seconds=1.0), log.append)
    child.start()
    drive(child, lambda: bool(log))
    outcome = ask(child, b"JobLensLevel = 2")
    child.stop()
    assert isinstance(outcome, PolicyFailure)
    assert outcome.level is Level.BASIC
    assert "the policy child can't work: ModuleNotFoundError" in outcome.note
    assert len(log) == 1
    assert "the policy child can't work: ModuleNotFoundError" in log[0]


READY = "import os, time; os.read(0, 1 << 20); os.write(0, {ready!r}); os.read(0, 1 << 20)\n"


def test_a_child_that_retires_with_a_request_in_its_hands_costs_nothing(
    impostor: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor(READY.format(ready=pack({"verb": "ready", "errors": []})))
    log: list[str] = []
    child = PolicyClient([DEFAULT], PATIENT, log.append)
    child.start()
    drive(child, lambda: child.ready)
    monkeypatch.undo()
    outcome = ask(child, b"JobLensLevel = 2")
    child.stop()
    assert outcome.level is Level.IO
    assert log == []


@pytest.mark.parametrize(
    "reply",
    [
        b"\xff" * 8,
        b"\0\0\0\2\0\0\0\0[]",
        b"\0\0\0\1\0\0\0\0x",
        pack({"verb": "decided", "id": 1}),
        pack({"verb": "decided", "id": 99, "level": "io"}),
        pack({"verb": "failed", "id": 1, "reason": None}),
        pack({"verb": "failed", "id": 1, "reason": []}),
        pack({"verb": "doing", "id": 1, "what": {}}),
        pack({"verb": "ready", "errors": 3}),
        pack({"verb": ["?"], "id": 1}),
        pack({"id": 1}),
        pack({"verb": "decided", "id": 1, "level": "x" * MAX_REPLY}),
    ],
)
def test_a_child_that_lies_is_ended(impostor: Callable[[str], None], reply: bytes) -> None:
    ready = pack({"verb": "ready", "errors": []})
    impostor(READY.format(ready=ready) + f"os.write(0, {reply!r}); time.sleep(60)")
    child = PolicyClient([DEFAULT], PATIENT)
    child.start()
    outcome = ask(child, b"JobLensLevel = 2")
    child.stop()
    assert isinstance(outcome, PolicyFailure)
    assert "answer nonsense" in outcome.note


def test_a_child_that_talks_without_end_does_not_hold_up_joblensd(impostor: Callable[[str], None]) -> None:
    ready = pack({"verb": "ready", "errors": []})
    chatter = pack({"verb": "doing", "id": 1, "what": "talking"}) * 1000
    impostor(READY.format(ready=ready) + f"while True: os.write(0, {chatter!r})")
    child = PolicyClient([DEFAULT], ChildLimits(wall_seconds=2.0))
    child.start()
    outcome = ask(child, b"JobLensLevel = 2")
    child.stop()
    assert isinstance(outcome, PolicyFailure)
    assert outcome.note.startswith("talking took more than")


def test_a_child_that_never_gets_ready_is_ended(impostor: Callable[[str], None]) -> None:
    impostor("import time; time.sleep(60)")
    log: list[str] = []
    child = PolicyClient([DEFAULT], ChildLimits(start_seconds=0.2), log.append)
    child.start()
    drive(child, lambda: bool(log))
    child.stop()
    assert log == ["the policy child was not ready after 0.2 s: no policies are in force"]


def test_deaths_without_a_decision_slow_the_next_start() -> None:
    assert list(child_pool.BACKOFF) == sorted(child_pool.BACKOFF)
    assert child_pool.BACKOFF[0] == 0.0


def test_no_environment_is_passed_on(make: Callable[..., PolicyClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDOR_PRIVATE_INHERIT", "the pool's session key")
    started: list[dict[str, str]] = []
    popen = subprocess.Popen

    def record(*arguments: Any, **more: Any) -> Any:
        started.append(more["env"])
        return popen(*arguments, **more)

    monkeypatch.setattr(child_process.subprocess, "Popen", record)
    make()
    assert [set(environment) for environment in started] == [{"PATH", "LC_ALL", "TZ", "PYTHONPATH"}]


# What the child has given up.

TRY_ALL = """
import os, signal, socket, sys, threading
from condor_joblens.policy.confine import confine
inherited = os.open("/", os.O_RDONLY)
parent = int(sys.argv[1])
confine()

def attempt(name, action):
    try:
        action()
    except (OSError, RuntimeError, MemoryError) as error:
        return
    os.write(1, name.encode() + b" ")

attempt("inherited", lambda: os.fstat(inherited))
attempt("open", lambda: os.open("/etc/passwd", os.O_RDONLY))
attempt("create", lambda: os.open("/tmp/joblens-test", os.O_CREAT | os.O_WRONLY))
attempt("fork", os.fork)
attempt("thread", lambda: threading.Thread(target=print).start())
attempt("exec", lambda: os.execv("/bin/true", ["true"]))
attempt("socket", socket.socket)
attempt("kill", lambda: os.kill(parent, 0))
attempt("setuid", lambda: os.setuid(0))
attempt("unlink", lambda: os.unlink("/tmp/joblens-test"))
attempt("memory", lambda: bytearray(600 << 20))
os.write(1, b"done")
"""


def test_a_confined_process_can_do_nothing_but_compute_and_talk() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRY_ALL, str(os.getpid())],
        capture_output=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"done", b"")


def expected_user() -> int:
    users = {user.pw_name: user.pw_uid for user in pwd.getpwall()}
    return next((users[name] for name in ("joblens-policy", "joblens") if name in users), 65534)


def test_the_child_is_another_user_without_privilege(make: Callable[..., PolicyClient]) -> None:
    child = make()
    status = Path(f"/proc/{child.pid}/status").read_text()
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if os.geteuid() == 0:
        assert facts["Uid"].split() == [str(expected_user())] * 4
        assert facts["Gid"].split() == ["65534"] * 4
        assert facts["Groups"].split() == []
        assert sorted(os.listdir(f"/proc/{child.pid}/fd")) == ["0", "1", "2"]
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == int(facts["CapAmb"], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"


def test_the_child_ends_when_joblensd_lets_go() -> None:
    ours, theirs = socket.socketpair()
    child = subprocess.Popen(child_process.COMMAND, stdin=theirs.fileno(), cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    theirs.close()
    ours.close()
    assert child.wait(60) == 0


HOLD_A_CHILD = """
import time
from condor_joblens.common import readiness
from condor_joblens.policy.policy_client import PolicyClient
child = PolicyClient([])
child.start()
while not child.ready:
    readiness.readable([child], 0.1)
    child.receive()
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_that_hangs_ends_with_joblensd() -> None:
    command = [sys.executable, "-c", HOLD_A_CHILD]
    joblensd = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert joblensd.stdout is not None
    with joblensd.stdout:
        pid = int(joblensd.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    joblensd.kill()
    joblensd.wait()
    deadline = time.monotonic() + 300  # on a machine that does much else
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process runs or is stopped; a zombie that nobody reaps is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
