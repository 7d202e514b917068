"""What starts the policy child for joblensd, which has no right to: each child can be ended, and none is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ground import forked

from condor_joblens.common import own_process
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.privilege import NEEDED, keep_only
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.model.levels import Level
from condor_joblens.policy import child_process
from condor_joblens.policy.policy_answers import ActivationRequest
from condor_joblens.policy.policy_client import PolicyClient
from condor_joblens.policy.requests import ChildLimits

CHECKOUT = Path(__file__).resolve().parents[2]
UID, GID = 64002, 65534
POLICY = ("policy.lua", 'rule "all" { level = "io" }')


@pytest.fixture
def children() -> Iterator[ProcessStarter]:
    children = ProcessStarter("policy children", child_process.MODULE, UID, GID)
    yield children
    children.close()


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def ask(client: PolicyClient) -> Level:
    client.submit("job", ActivationRequest(ad=b"A = 1", slot={}, default=Level.BASIC, cap=Level.IO))
    found: list[Level] = []

    def answered() -> bool:
        client.expire(time.monotonic())
        found.extend(answer.level for _, answer in client.receive())
        return bool(found)

    until(answered)
    return found[0]


def test_policies_are_decided_by_joblensd_without_the_right_to_start_their_child(children: ProcessStarter) -> None:
    def live() -> None:
        keep_only(tuple(NEEDED))
        client = PolicyClient([POLICY], ChildLimits(wall_seconds=60.0), start=children.start)
        client.start()
        assert ask(client) is Level.IO
        first = client.pid
        assert first and status(first)["Uid"].split() == [str(UID)] * 4
        assert int(status(first)["CapPrm"], 16) == 0 and status(first)["Seccomp_filters"] == "2"
        with pytest.raises(PermissionError):
            os.kill(first, signal.SIGKILL)
        client.reload([POLICY])  # ends the child and starts another, without CAP_KILL
        assert ask(client) is Level.IO
        assert client.pid != first
        until(lambda: not Path(f"/proc/{first}").exists())
        client.stop()

    assert os.waitpid(forked(live), 0)[1] == 0


def test_its_own_end_is_noticed_and_ends_all_that_it_has_started(children: ProcessStarter) -> None:
    ours, theirs = socket.socketpair()
    process = children.start(theirs)
    theirs.close()
    assert process.poll() is None
    until(lambda: process.poll() is None and process.pid)
    # only when it has asked for it a process ends with the one that started it
    until(lambda: status(process.pid)["Seccomp_filters"] == "2")  # its own list is its last step
    os.kill(children.pid, signal.SIGKILL)
    with pytest.raises(HelperLost, match="what starts policy children was ended by signal 9"):
        until(lambda: process.poll() is not None)
    assert process.poll() == -9
    until(lambda: not Path(f"/proc/{process.pid}").exists())
    ours.close()


def test_how_a_process_ended_is_known(children: ProcessStarter) -> None:
    ours, theirs = socket.socketpair()
    used: list[float] = []
    killed, over = children.start(theirs), children.start(theirs, charge=used.append)
    killed.kill()
    assert killed.wait() == -9
    with pytest.raises(subprocess.TimeoutExpired):
        over.wait(0.0)
    theirs.close()
    ours.close()
    assert over.wait() == 0
    assert len(used) == 1 and used[0] > 0
    over.kill()  # does nothing: its number is nobody's


def test_cpu_is_that_of_what_lives_and_of_what_has_ended(children: ProcessStarter) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = children.cpu_seconds()
        started = children.start(theirs)
        until(lambda: started.pid and children.cpu_seconds() - before > 0.02)  # Python's start takes as much
        used = children.cpu_seconds()
    assert started.wait() == 0
    assert children.cpu_seconds() >= used, "it is not lost with the process"
    assert children._used_by_ended > 0.02


def test_cpu_of_a_family_is_that_of_children_that_live_and_of_those_that_have_ended() -> None:
    burn = "import os, time\nwhile time.process_time() < 0.3: pass\n"
    family = f"import os, sys\nif os.fork() == 0:\n    exec({burn!r})\n    os._exit(0)\nos.wait()\n"
    family += f"if os.fork() == 0:\n    exec({burn!r})\nprint(1, flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", family], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        until(lambda: own_process.cpu_seconds_of_family(process.pid) > 0.5)  # each figure of both is cut to 10 ms
        assert process.stdin is not None
        process.stdin.close()
    assert own_process.cpu_seconds_of_family(process.pid) == 0


def test_it_is_an_ordinary_user_and_can_be_looked_into_by_nobody(children: ProcessStarter) -> None:
    facts = status(children.pid)
    assert facts["Uid"].split() == [str(UID)] * 4 and facts["Gid"].split() == [str(GID)] * 4
    assert [int(facts[f"Cap{name}"], 16) for name in ("Eff", "Prm", "Bnd", "Inh", "Amb")] == [0] * 5
    assert (facts["Groups"].split(), facts["NoNewPrivs"], facts["Seccomp"]) == ([], "1", "2")
    assert os.stat(f"/proc/{children.pid}/mem").st_uid == 0  # not dumpable


@pytest.mark.parametrize("packet", [b"x", b"\1\0\0\0\0", b"\2" * 100, b"\3\0\0\0\0"])
def test_what_joblensd_would_not_send_ends_it(packet: bytes) -> None:
    children = ProcessStarter("policy children", child_process.MODULE, UID, GID)
    children._channel.send(packet)
    with pytest.raises(HelperLost):
        until(children.receive)
    children.close()


def test_without_the_right_to_become_that_user_it_says_so() -> None:
    def live() -> None:
        keep_only(())
        with pytest.raises(JobLensError, match="CAP_SETUID"):
            ProcessStarter("policy children", child_process.MODULE, UID, GID)

    assert os.waitpid(forked(live), 0)[1] == 0


def test_it_ends_with_joblensd() -> None:
    script = f"""
import os
from condor_joblens.common.process_starter import ProcessStarter
print(ProcessStarter("x", "condor_joblens.policy.child", {UID}, {GID}).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env={"PYTHONPATH": str(CHECKOUT)})
    until(lambda: not Path(f"/proc/{int(done.stdout)}").exists())


def test_a_signal_to_all_of_joblensds_processes_is_joblensds_to_obey(children: ProcessStarter) -> None:
    """Else their ends would come before its own, as if they were lost."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(children.pid, number)
    ours, theirs = socket.socketpair()
    process = children.start(theirs)
    theirs.close()
    until(lambda: process.pid)
    ignored = int(status(process.pid)["SigIgn"], 16)
    assert not ignored >> (signal.SIGTERM - 1) & 1
    ours.close()
    assert process.wait() == 0
