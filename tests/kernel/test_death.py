"""Programs that die in every way there is: what is kept of them, and the sentence that it makes."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ground as grounds
import numpy as np
import pytest
from ground import Ground, Slot, until

from condor_joblens.agent.lifecycle.death import add_exits
from condor_joblens.jobs import death_sentence
from condor_joblens.sample import cgroup_files
from condor_joblens.sample.kernel_counters import NANO
from condor_joblens.tracer import map_layout

pytestmark = pytest.mark.guest

MIB = 1 << 20
LIMIT = 32 * MIB
NO_END = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
ENDING = [number for number in signal.Signals if number not in (*NO_END, *STOPS) and number < 32]


class Dead:
    """A job that has ended, and what is known of it."""

    def __init__(self, slot: Slot, limit: int = -1) -> None:
        self.found = slot.tracer.processes.take()
        self.death: np.ndarray = np.zeros(1, death_sentence.DEATH)
        ended = self.found[(self.found["kind"] == 2)]
        add_exits(self.death, ended[(ended["exit_code"] != 0) | (ended["flags"] & 1 != 0)])
        self.kernel = slot.tracer.counters[slot.index]
        self.sender = bytes(self.kernel["ender"]).decode()
        self.ending = death_sentence.RunEnding(
            code=int(self.kernel["main_exit_code"]),
            time=float(self.death["main"]["time"][0]),
            command="",
            checkpoint_code=-1,
            signal=int(self.kernel["ender_signal"]) if self.kernel["ender_ns"] else 0,
            signal_age=(int(self.found["time_ns"][-1]) - int(self.kernel["ender_ns"])) * NANO,
            by_htcondor=False,
            sender=self.sender,
            limit_bytes=limit,
        )

    @property
    def why(self) -> str:
        return death_sentence.sentence(self.death[0], self.ending)


def as_a_starter_starts() -> None:
    """Python ignores these signals, and so would the job."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def run(slot: Slot, *arguments: str, before_exec: Callable[[], object] = lambda: None) -> Dead:
    """A program to its end."""

    def act() -> None:
        before_exec()
        as_a_starter_starts()
        os.execv(arguments[0], list(arguments))

    os.waitpid(slot.fork(act), 0)
    return Dead(slot)


def script(slot: Slot, text: str) -> Dead:
    return run(slot, "/bin/sh", "-c", text)


def test_a_job_that_ends_well_is_not_dead(slot: Slot) -> None:
    assert script(slot, "/bin/sh -c 'exit 3'; exit 0").why == ""


def test_the_innermost_program_that_fails_is_named(slot: Slot, tmp_path: Path) -> None:
    payload = tmp_path / "payload.py"
    payload.write_text("import os; os._exit(4)")
    wrapper = tmp_path / "wrapper.sh"
    wrapper.write_text(f"{sys.executable} {payload} with arguments; exit $?")
    assert script(slot, f"/bin/sh {wrapper} || exit $?").why == "payload.py exited 4"


def test_the_first_failure_is_named_as_well(slot: Slot, tmp_path: Path) -> None:
    copier = tmp_path / "xrdcp"
    copier.symlink_to(grounds.JOB)
    dead = script(slot, f"{copier} leave 54; sleep 0.3; {grounds.JOB} leave 1; exit 1")
    assert re.fullmatch(r"test_job exited 1; first failure: xrdcp exited 54, [\d.]+ s before", dead.why)


def test_a_crash_with_a_core(slot: Slot, tmp_path: Path) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    dead = run(
        slot, "/bin/sh", "-c", f"cd {tmp_path}; kill -SEGV $$",
        before_exec=lambda: resource.setrlimit(resource.RLIMIT_CORE, unlimited),
    )  # fmt: skip
    assert dead.why == "SIGSEGV in sh (core dumped)"


@pytest.mark.parametrize(("limit", "ended_by"), [("ulimit -t 1", "SIGKILL"), ("ulimit -S -t 1", "SIGXCPU")])
def test_who_has_used_up_its_cpu_time_died_of_that(slot: Slot, limit: str, ended_by: str) -> None:
    dead = script(slot, f"ulimit -c 0; (trap 'exit 2' TERM; {limit}; while :; do :; done); exit $?")
    assert dead.why == f"{ended_by} in sh: used up its CPU time limit of 1 s (ulimit -t)"


@pytest.mark.parametrize("sent", ["KILL", "XCPU"])
def test_a_signal_that_somebody_sent_is_no_limit_of_cpu_time(slot: Slot, sent: str) -> None:
    assert script(slot, f"ulimit -c 0; ulimit -t 1000; kill -{sent} $$").why == f"SIG{sent} in sh"


def test_a_crash_that_a_shell_passes_on(slot: Slot) -> None:
    dead = script(slot, f"ulimit -c 0; {sys.executable} -c 'import os; os.abort()'; exit $?")
    assert dead.why.startswith("SIGABRT in python")


def test_every_signal_that_it_sends_itself(slot: Slot) -> None:
    for number in ENDING:
        slot.tracer.counters["awaits_exec"][slot.index] = map_layout.AWAITS_FIRST
        # by number: shells know few names
        dead = script(slot, f"ulimit -c 0; kill -{int(number)} $$; exit 0")
        assert dead.ending.code & 0x7F == number
        assert (dead.why, dead.sender) == (f"{number.name} in sh", "")


BEGUN = 'until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.1; done;'


def test_signals_that_end_nothing_and_those_it_is_stopped_by(slot: Slot) -> None:
    stops = " ".join(f"kill -{int(number)} $!; kill -CONT $!;" for number in STOPS)
    ignored = " ".join(f"kill -{int(number)} $!;" for number in NO_END)
    dead = script(slot, f"sleep 60 & {BEGUN} {stops} {ignored} kill -TERM $!; wait $!; exit 0")
    assert dead.why == ""
    assert [death_sentence.said(end) for end in death_sentence.last_exits(dead.death[0])] == ["SIGTERM in sleep"]


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_from_outside_has_a_sender(slot: Slot, number: signal.Signals) -> None:
    job = slot.start("wait", 60000, before_exec=as_a_starter_starts)
    until(lambda: slot.tracer.counters["executed"][slot.index])
    os.kill(job.pid, number)
    job.wait()
    dead = Dead(slot)
    own = Path("/proc/self/comm").read_text().rstrip("\n")
    core = " (core dumped)" if dead.ending.code & 0x80 else ""
    assert dead.why == f"{number.name} in test_job{core}, sent by {own}"
    assert dead.kernel["ender_pid"] == os.getpid()


def test_a_whole_cgroup_s_kill_has_a_sender(slot: Slot) -> None:
    if not (slot.path / "cgroup.kill").exists():  # before 5.14
        assert tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14)
        return
    job = slot.start("wait", 60000)
    until(lambda: slot.tracer.counters["executed"][slot.index])
    (slot.path / "cgroup.kill").write_text("1")
    job.wait()
    dead = Dead(slot)
    assert (dead.ending.signal, dead.kernel["ender_pid"]) == (signal.SIGKILL, os.getpid())


def test_a_signal_to_another_than_the_first_process_is_nobody_s_end(slot: Slot) -> None:
    job = slot.start("peak", 8, 60000, "freed")
    until(lambda: len(slot.pids()) == 2)
    until(lambda: slot.tracer.counters["executed"][slot.index])
    child = next(pid for pid in slot.pids() if pid != job.pid)
    os.kill(child, signal.SIGKILL)
    job.wait()
    dead = Dead(slot)
    assert (dead.ending.signal, dead.why) == (0, "")
    assert [death_sentence.said(end) for end in death_sentence.last_exits(dead.death[0])] == ["SIGKILL in test_job"]


def test_a_job_that_forks_until_it_can_t(slot: Slot, tmp_path: Path) -> None:
    def as_a_user() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (40, 40))
        os.setgid(12399)
        os.setuid(12399)  # nobody else's: the limit is of all processes of a user

    forks = "import os\ntry:\n while os.fork(): pass\n os.read(0, 1)\nexcept OSError: os.killpg(0, 9)"
    reader, writer = os.pipe()
    dead = run(
        slot, "/usr/bin/python3", "-c", forks,
        before_exec=lambda: (os.setpgid(0, 0), os.dup2(reader, 0), os.close(writer), as_a_user()),
    )  # fmt: skip
    os.close(writer)
    os.close(reader)
    until(lambda: not slot.pids())
    totals = slot.totals()
    assert totals["process_forked"] >= 5
    assert totals["process_signalled"] == totals["process_exited"] == totals["process_forked"] + 1
    assert dead.why.startswith("SIGKILL in python3")


def test_the_last_sixteen_of_many_failures_are_kept_and_the_first(slot: Slot) -> None:
    dead = script(slot, "i=0; while [ $i -lt 40 ]; do i=$((i+1)); (exit $i); done; exit 9")
    assert [int(end["code"]) >> 8 for end in death_sentence.last_exits(dead.death[0])] == [*range(26, 41), 9]
    assert dead.death["count"][0] == 41
    assert "first failure: sh exited 1," in dead.why


# -- out of memory ------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(slot: Slot, name: str) -> Iterator[Path]:
    """The cgroup that limits the slot: its own, or one of version 1 where the controller is there."""
    if (slot.path / "memory.max").exists():
        (slot.path / "memory.max").write_text(str(LIMIT))
        if (slot.path / "memory.swap.max").exists():
            (slot.path / "memory.swap.max").write_text("0")
        yield slot.path
        return
    path = Path("/sys/fs/cgroup/memory") / name
    path.mkdir()
    (path / "memory.limit_in_bytes").write_text(str(LIMIT))
    yield path
    path.rmdir()


def test_the_oom_killer_s_choice_and_what_it_held(slot: Slot, limited: Path) -> None:
    enter = limited / "cgroup.procs"
    dead = run(slot, str(grounds.JOB), "greedy", "128", before_exec=lambda: enter.write_text("0"))
    # its parent ends well
    assert dead.ending.code == 0 and dead.why == ""
    victim = dead.death["victim"][0]
    assert (victim["program"], victim["code"]) == (b"test_job", signal.SIGKILL)
    assert 0.75 * LIMIT <= dead.death["victim_bytes"][0] <= LIMIT + MIB
    assert death_sentence.said(death_sentence.last_exits(dead.death[0])[-1]) == "SIGKILL in test_job"


def test_a_job_out_of_memory_says_so(slot: Slot, limited: Path) -> None:
    enter = limited / "cgroup.procs"
    eat = f"b = bytearray({4 * LIMIT}); b[::4096] = b'x' * len(b[::4096])"
    dead = run(slot, "/usr/bin/python3", "-c", eat, before_exec=lambda: enter.write_text("0"))
    assert dead.ending.code & 0x7F == signal.SIGKILL
    held = death_sentence.in_gib(int(dead.death["victim_bytes"][0]))
    assert dead.why.startswith("out of memory: python3") and dead.why.endswith(f" held {held}")


@pytest.mark.controllers
def test_a_slot_s_own_limit_is_in_the_sentence(ground: Ground) -> None:
    slot = ground.slot()
    (slot.path / "memory.max").write_text(str(LIMIT))
    folder = os.open(slot.path, os.O_RDONLY | os.O_DIRECTORY)
    files = cgroup_files.CgroupFiles.open(folder)
    os.close(folder)
    limit = int(cgroup_files.read_slow([files])["memory_limit_bytes"][0])
    assert limit == LIMIT
    eat = f"b = bytearray({4 * LIMIT}); b[::4096] = b'x' * len(b[::4096])"
    os.waitpid(slot.fork(lambda: os.execv("/usr/bin/python3", ["python3", "-c", eat])), 0)
    dead = Dead(slot, limit)
    assert dead.why.startswith("out of memory: python3") and dead.why.endswith(" of 32 MiB")
    files.close()
