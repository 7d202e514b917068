#!/usr/bin/env python3
"""What joblensd costs on a full node: real programs in the kernel, real cgroups, N jobs of five processes each.

A small C program (crowd.c) is the starters and their jobs: slots' cgroups, folders with the two ads, processes that
sleep and wake every five seconds for a little work, one open TCP connection a job. The agent is the real one, in a
mount namespace with a bpffs of its own, so that it meets no other one's pins. It sees the jobs start together (the
worst that can happen to it), then runs undisturbed and is measured; then psutil reads what it can of the same
processes, and the jobs end together. All at level basic, then all at level io. Then 200 jobs that each start four
programs a second, as scripts do: without a sink that takes events, and with one and its reader.

The jobs are as young as can be, and the ads of the young are refreshed most often. With --thorough it is measured again
with the pace that jobs have after an hour, and a second agent is timed part by part.

Figures are CPU time as the scheduler has it, which a busy machine falsifies least.

    bench_agent.py [--jobs N ...] [--level L ...] [--seconds S] [--thorough] [--only-starts]
                        as root, after `make build`; 200 and 1000 jobs at basic and io, 10 s each: two minutes in all
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]  # not installed: the code of this checkout

from results import Section  # noqa: E402

from condor_joblens.agent.priority import MODULE as LENDER  # noqa: E402
from condor_joblens.common.config import Config  # noqa: E402
from condor_joblens.common.process_starter import MODULE as STARTER  # noqa: E402
from condor_joblens.owner_files.client import MODULE as FILES  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402
from condor_joblens.shm.ring import EventReader  # noqa: E402

PROCESSES = 5
SETTLE = 5.0
NANO = 1e-9
STARTERS, STARTS = 200, 4  # jobs that start programs, and how many each starts a second
PSUTIL_ROUNDS = 5
PSUTIL_NUMBERS = ["cpu_times", "memory_info", "io_counters", "num_threads", "status"]
MIB = 1 << 20
NOBODY = 65534
CONDOR = 64  # who owns EXECUTE and the starters' folders, as in crowd.c
JOBS, LEVELS = (200, 1000), ("basic", "io")
TARGETS = {("basic", 200): (1, 60), ("basic", 1000): (3, 80), ("io", 200): (2, 70), ("io", 1000): (6, 100)}
"""Level and jobs: percent of a core, MB of resident memory."""

# An attribute of each kind that job ads have, until the ad has its usual size.
AD = "".join(
    f"BenchAttribute{n} = {value}\n"
    for n in range(24)
    for value in (f'"/home/nobody/run_{n}/output.root"', f"{n}.5", "false", f"ifThenElse(Universe =?= 5, {n}, 0)")
)


# -- the crowd ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ground:
    """Where one run of the benchmark has its things: folders, and a cgroup whose children are slots."""

    folder: Path  # on disk, as EXECUTE is
    run_dir: Path  # in memory, as /run is
    base: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def execute(self) -> Path:
        return self.folder / "execute"

    def build(self, level: str) -> None:
        """Compiles the crowd and the wrapper's helper; the jobs ask for this level."""
        for name in ("execute", "log", "bin"):
            (self.folder / name).mkdir()
        os.chown(self.folder / "log", NOBODY, NOBODY)
        os.chown(self.execute, CONDOR, CONDOR)
        self.folder.chmod(0o755)
        compiler = shutil.which("musl-gcc") or "cc"
        static = [compiler, "-O2", "-static", "-o"]
        subprocess.run([*static, str(self.folder / "crowd"), str(CHECKOUT / "benchmarks/crowd.c")], check=True)
        socket = f'-DJOBLENS_SOCKET="{self.run_dir}/activate.sock"'
        helper = [*static, str(self.folder / "activate"), socket, str(CHECKOUT / "hooks/joblens_activate.c")]
        subprocess.run(helper, check=True)
        # joblensd knows the wrapper by its interpreter, and its helper by the name beside it
        (self.folder / "wrapper").write_text(f"#!{self.folder}/crowd\n")
        os.link(self.folder / "activate", self.folder / "joblens_activate")
        (self.folder / "ad").write_text(f'JobLensLevel = "{level}"\n{AD}')

    def clear(self) -> None:
        """Ends what was started here, also where the benchmark failed, and takes the cgroups away."""
        for process in self.started:
            _end_group(process)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _until(lambda: not self.processes(), "the end of all jobs")
        for path, _, _ in os.walk(self.base, topdown=False):
            os.rmdir(path)

    def processes(self) -> list[int]:
        """The ids of all processes in the slots."""
        return [int(pid) for path in self.base.glob("*/*/cgroup.procs") for pid in path.read_text().split()]

    def configure(self, knobs: dict[str, str]) -> None:
        """Makes this the configuration: what condor_config_val says."""
        macros = {
            "EXECUTE": self.execute,
            "LOG": self.folder / "log",
            "JOBLENS_RUN_DIR": self.run_dir,
            "JOBLENS_ARTIFACT_DIR": self.run_dir / "artifacts",
            "USER_JOB_WRAPPER": self.folder / "wrapper",
            "JOBLENS_BASE_CGROUP": self.base.relative_to(_cgroup_mount()),
            "JOBLENS_POLICY_DIR": CHECKOUT / "lua_policies",
            **knobs,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in macros.items())
        program = self.folder / "bin" / "condor_config_val"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
        program.chmod(0o755)


@contextmanager
def ground(level: str, knobs: dict[str, str]) -> Iterator[Ground]:
    """A ground of its own, gone afterwards; its jobs ask for this level."""
    with (
        tempfile.TemporaryDirectory(prefix="joblens-bench-", dir="/var/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="joblens-bench-", dir="/dev/shm") as run_dir,
    ):
        base = _cgroup_mount() / f"joblens-bench-{os.getpid()}"
        base.mkdir()
        os.chmod(run_dir, 0o755)
        made = Ground(Path(folder), Path(run_dir), base)
        try:
            made.build(level)
            made.configure(knobs)
            yield made
        finally:
            made.clear()


def _cgroup_mount() -> Path:
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        return Path(next(line.split()[1] for line in mounts if line.split()[2] == "cgroup2"))


class Crowd:
    """The jobs of a node."""

    def __init__(self, ground: Ground, jobs: int, starts: int = 0) -> None:
        """So many `jobs`, of which each starts so many programs a second."""
        self._ground = ground
        paths = [ground.execute, ground.base, ground.folder / "ad", ground.folder / "activate"]
        command = [
            str(ground.folder / "crowd"),
            *map(str, paths),
            str(jobs),
            f"{PROCESSES}+{starts}" if starts else str(PROCESSES),
        ]
        self._process = subprocess.Popen(command, start_new_session=True)
        ground.started.append(self._process)
        _until(lambda: len(self.processes()) >= jobs * PROCESSES, f"{jobs * PROCESSES} processes of jobs")

    def processes(self) -> list[int]:
        """The ids of all processes in the slots."""
        return self._ground.processes()

    def end(self) -> None:
        """Ends all jobs at once; their starters take the cgroups away, as HTCondor's do."""
        _end_group(self._process)
        _until(lambda: not self.processes(), "the end of the jobs")
        for slot in self._ground.base.iterdir():
            if slot.is_dir():
                (slot / "job.scope").rmdir()
                slot.rmdir()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _until(true: Callable[[], bool], what: str, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"bench_agent: waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


# -- the agent, and what it uses ------------------------------------------------------------------------------------


class Agent:
    """joblensd as a process of its own; with `parts` it writes there what each part of a round took."""

    def __init__(self, ground: Ground, parts: Path | None = None) -> None:
        program = [sys.executable, "-m", "condor_joblens.agent"]
        if parts is not None:
            program = [sys.executable, __file__, "--timed-agent", str(parts)]
        script = 'mount -t bpf bpf /sys/fs/bpf && exec "$@"'
        environment = {
            "PATH": f"{ground.folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *program]
        self._process = subprocess.Popen(command, env=environment, start_new_session=True)
        ground.started.append(self._process)
        self._rows = ground.run_dir / "rows"
        self._log = ground.folder / "log" / "JobLensdLog"
        _until((ground.run_dir / "activate.sock").exists, "joblensd to listen")
        self.process = psutil.Process(self._process.pid)

    def known(self, level: str = "") -> int:
        """How many jobs it publishes, or publishes at this level."""
        rows = Reader(str(self._rows)).rows()[0]
        return int((rows["level"] == level.encode()).sum()) if level else len(rows)

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()

    def cpu(self) -> float:
        """CPU seconds of the agent, of the helper that writes its ads, and of what lends them priority."""
        helpers = [*self._helpers(FILES), *self._helpers(LENDER)]
        pids = [self._process.pid, *(helper.pid for helper in helpers)]
        return NANO * sum(
            int(task.read_text().split()[0]) for pid in pids for task in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )

    def policy_cpu(self) -> float:
        """CPU seconds of its policy child and what starts it, that of children that ended included."""
        starters = self._helpers(STARTER)
        used = [each.cpu_times() for starter in starters for each in (starter, *starter.children())]
        ended = [starter.cpu_times() for starter in starters]
        return sum(each.user + each.system for each in used) + sum(
            each.children_user + each.children_system for each in ended
        )

    def memory(self) -> tuple[float, float, float, float]:
        """Resident, proportional, the policy child's resident and its two helpers' own megabytes."""
        own = self.process.memory_full_info()
        starters = self._helpers(STARTER)
        children = sum(child.memory_info().rss for starter in starters for child in starter.children())
        helpers = sum(
            helper.memory_full_info().uss for helper in [*starters, *self._helpers(FILES), *self._helpers(LENDER)]
        )
        return own.rss / MIB, own.pss / MIB, children / MIB, helpers / MIB

    def _helpers(self, module: str) -> list[psutil.Process]:
        """The processes of its own that run this module."""
        return [child for child in self.process.children() if module in child.cmdline()]

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._process.terminate()
        if self._process.wait(20) != 0:
            raise SystemExit(f"bench_agent: joblensd failed:\n{self.log()}")


def share(agent: Agent, seconds: float) -> float:
    """The share of a core (percent) that it uses in the next `seconds`."""
    cpu, began = agent.cpu(), time.monotonic()
    time.sleep(seconds)
    return 100 * (agent.cpu() - cpu) / (time.monotonic() - began)


def psutil_share(pids: list[int]) -> float:
    """The share of a core (percent) that psutil needs to read these processes once a second."""
    handles = {pid: psutil.Process(pid) for pid in pids}
    spent = []
    for _ in range(PSUTIL_ROUNDS):
        began = time.thread_time()
        for handle in handles.values():
            with contextlib.suppress(psutil.Error):
                handle.as_dict(PSUTIL_NUMBERS)
        psutil.net_connections("tcp")
        spent.append(time.thread_time() - began)
    return 100 * statistics.median(spent)


# -- the parts of a round -----------------------------------------------------------------------------------------


class Stopwatch:
    """CPU time spent in functions, each without what the others in it take."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inner = [0.0]

    def on(self, place: Any, name: str, part: str) -> None:
        """Puts the time of `place.name` down to `part`."""
        function = getattr(place, name)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            began = time.thread_time()
            self._inner.append(0.0)
            try:
                return function(*arguments, **keywords)
            finally:
                took = time.thread_time() - began
                self.spent[part] = self.spent.get(part, 0.0) + took - self._inner.pop()
                self.calls[part] = self.calls.get(part, 0) + 1
                self._inner[-1] += took

        setattr(place, name, timed)


def timed_agent(path: str) -> int:
    """Runs the agent with a stopwatch on the parts of a round, and writes what it shows."""
    from condor_joblens.agent import __main__ as agent
    from condor_joblens.agent import loop, measure
    from condor_joblens.agent.output import job_ads
    from condor_joblens.agent.output.job_ads import JobAds
    from condor_joblens.agent.output.publish_rows import RowPublisher
    from condor_joblens.owner_files.client import Helper
    from condor_joblens.sample import cgroup_files, cpu_rates, endpoint_lists, io_counters, kernel_counters, totals
    from condor_joblens.tracer.bpf import Tracer
    from condor_joblens.tracer.sensors.io import Io

    watch = Stopwatch()
    for place, name, part in (
        (Tracer, "count_living", "iterator over threads"),
        (Tracer, "count_connections", "iterator over connections"),
        (Tracer, "lost", "losses"),
        (cgroup_files, "read_cpu", "cpu.stat"),
        (cgroup_files, "read_slow", "pressure and memory files"),
        (Io, "counters", "counters of io of all CPUs"),
        (Tracer, "settle", "file systems and slots that went"),
        (io_counters, "blocks", "columns from counters of io"),
        (io_counters, "uncounted", "columns from counters of io"),
        (endpoint_lists.EndpointLists, "read", "endpoints"),
        (endpoint_lists.EndpointLists, "update", "endpoints"),
        (kernel_counters, "columns", "columns from counters"),
        (totals, "merge", "columns into rows"),
        (totals, "merge_counters", "columns into rows"),
        (cpu_rates, "cores", "rates"),
        (measure, "sample_all", "rest of measuring"),
        (RowPublisher, "publish", "rows into shared memory"),
        (job_ads, "usage_ads", "ads: text"),
        (Helper, "write_ads", "ads: files"),
        (JobAds, "publish_due", "ads: rest"),
        (JobAds, "restore_overwritten", "looking for ads overwritten"),
        (loop, "_round", "rest of the round"),
    ):
        watch.on(place, name, part)
    # from here on: what comes before has the jobs' starts in it
    signal.signal(signal.SIGUSR1, lambda *_: (watch.spent.clear(), watch.calls.clear()))
    code = agent.main()
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"spent": watch.spent, "calls": watch.calls}, file)
    return code


# -- the benchmark --------------------------------------------------------------------------------------------------


def burst(agent: Agent, ground: Ground, jobs: int, level: str) -> Crowd:
    """All jobs start together, and what that takes."""
    cpu, policy, began = agent.cpu(), agent.policy_cpu(), time.monotonic()
    crowd = Crowd(ground, jobs)
    started = time.monotonic() - began
    _until(lambda: agent.known(level) == jobs, f"{jobs} jobs at {level} (joblensd says:\n{agent.log()[-2000:]})")
    known = time.monotonic() - began
    _until(lambda: len(_written(ground)) == jobs, "the first ads")
    took = time.monotonic() - began
    print(
        f"  {jobs} jobs start within {started:.1f} s: all at {level} after {known:.1f} s, in their ads after "
        f"{took:.1f} s; joblensd {agent.cpu() - cpu:.2f} s of CPU, policies {agent.policy_cpu() - policy:.2f} s"
    )
    return crowd


def _written(ground: Ground) -> list[Path]:
    return [ad for ad in ground.execute.glob("*/htcondor/.update.ad") if b"\nJobLensUsage" in ad.read_bytes()]


def end(agent: Agent, crowd: Crowd, jobs: int) -> None:
    """All jobs end together, and what that takes."""
    cpu, began = agent.cpu(), time.monotonic()
    crowd.end()
    _until(lambda: agent.known() == 0, "the ends of all runs")
    print(f"  {jobs} jobs end within {time.monotonic() - began:.1f} s: joblensd {agent.cpu() - cpu:.2f} s of CPU")


def parts(jobs: int, level: str, seconds: float) -> None:
    """Prints what one round takes, by part."""
    with ground(level, knobs(jobs, level)) as place, ExitStack() as stack:
        path = place.folder / "parts"
        agent = Agent(place, path)
        crowd = Crowd(place, jobs)
        stack.callback(crowd.end)
        _until(lambda: agent.known(level) == jobs, f"{jobs} jobs at {level}")
        time.sleep(SETTLE)
        agent.process.send_signal(signal.SIGUSR1)
        time.sleep(seconds)
        agent.stop()
        found = json.loads(path.read_text())
    spent, rounds = found["spent"], found["calls"]["rest of the round"]
    print(f"  one round by part, mean of {rounds} rounds, ms of CPU (all: {1000 * sum(spent.values()) / rounds:.2f}):")
    for part, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"    {part:<30}{1000 * seconds / rounds:8.3f}   {found['calls'][part] / rounds:6.1f} calls")


def knobs(jobs: int, level: str) -> dict[str, str]:
    """All jobs may be at io, whatever their start together costs, and however long a busy machine takes for it.

    At basic the room for jobs at io is the default: it is the kernel's memory, and its programs are loaded.
    """
    patience = {"JOBLENS_MAX_CPU": "4", "JOBLENS_POLICY_CPU_MILLISECONDS": "1000"}
    if level == "profile":
        patience |= {"JOBLENS_MAX_LEVEL": "profile", "JOBLENS_MAX_JOBS_PROFILE": str(jobs)}
    return patience if level == "basic" else {"JOBLENS_MAX_JOBS_IO": str(jobs), **patience}


def measure(jobs: int, level: str, seconds: float, thorough: bool, section: Section) -> None:
    """One size of node at one level."""
    print(f"\n{jobs} jobs of {PROCESSES} processes at {level}, numbers taken every second")
    cpu, memory = TARGETS.get((level, jobs), (None, None))
    of = f"{jobs} jobs at {level}"
    with ground(level, knobs(jobs, level)) as place:
        agent = Agent(place)
        crowd = burst(agent, place, jobs, level)
        time.sleep(SETTLE)
        young = share(agent, seconds)
        section.add(f"{of}: joblensd", young, "% of a core", cpu)
        by_psutil = psutil_share(crowd.processes())
        section.add(f"{of}: psutil, what it knows of them", by_psutil, "% of a core", None, _times(by_psutil, young))
        if thorough:
            place.configure({**knobs(jobs, level), "JOBLENS_AD_PERIOD": str(3600 * Config().ad_slowdown)})
            agent.process.send_signal(signal.SIGHUP)
            time.sleep(Config().ad_period + SETTLE)  # until each has had its last turn at the old pace
            section.add(f"{of}: joblensd, jobs of an hour", share(agent, seconds), "% of a core", cpu)
        resident, proportional, child, helpers = agent.memory()
        note = f"its own share {proportional:.0f} MB; the policy child {child:.0f} MB, two helpers {helpers:.0f} MB"
        section.add(f"{of}: resident memory", resident, "MB", memory, note)
        end(agent, crowd, jobs)
        agent.stop()
    if thorough:
        parts(jobs, level, seconds)


def measure_starts(seconds: float, section: Section) -> None:
    """Jobs whose programs' starts and ends are events."""
    print(f"\n{STARTERS} jobs of {PROCESSES} processes at basic, of which each starts {STARTS} programs a second")
    for sinks, what, target in (
        ("prometheus", "no sink takes events", 1.5),
        ("prometheus, file", "a sink takes events", 3.0),
    ):
        with ground("basic", {**knobs(STARTERS, "basic"), "JOBLENS_SINKS": sinks}) as place:
            agent = Agent(place)
            if "file" in sinks:
                place.started.append(_reader(place))
            crowd = Crowd(place, STARTERS, STARTS)
            _until(lambda agent=agent: agent.known() == STARTERS, f"{STARTERS} jobs")
            time.sleep(SETTLE)
            before, began = _last_event(place), time.monotonic()
            cpu = share(agent, seconds)
            rate = (_last_event(place) - before) / (time.monotonic() - began)
            of = f"{STARTERS} jobs that start {STARTERS * STARTS} programs a second, {what}"
            section.add(of, cpu, "% of a core", target, f"{rate:.0f} events a second")
            crowd.end()
            agent.stop()


def _last_event(place: Ground) -> int:
    return EventReader(str(place.run_dir / "events")).head


def _reader(place: Ground) -> subprocess.Popen[bytes]:
    """Follows the events, as joblens-export does."""
    follow = f"from condor_joblens.shm import events\nfor _ in events(run_dir={str(place.run_dir)!r}): pass"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen([sys.executable, "-c", follow], env=environment, start_new_session=True)


def _times(other: float, ours: float) -> str:
    return f"{other / ours:.0f} times as much"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, action="append", help="how many (default: 200, and 1000)")
    parser.add_argument("--level", choices=LEVELS, action="append", help="of all jobs (default: basic, then io)")
    parser.add_argument("--seconds", type=float, default=10, help="how long to measure each")
    parser.add_argument("--only-starts", action="store_true", help="only the jobs that start programs")
    parser.add_argument("--thorough", action="store_true", help="jobs of an hour, and the parts of a round, too")
    parser.add_argument("--timed-agent", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timed_agent:
        return timed_agent(options.timed_agent)
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    explanation = (
        f"joblensd samples jobs of {PROCESSES} processes that have just started, once per second: CPU time over "
        f"{options.seconds:.0f} s each. psutil reads the same processes once per second, and knows less of them."
    )
    section = Section("agent", "joblensd on a full node", explanation)
    for jobs in () if options.only_starts else options.jobs or JOBS:
        for level in options.level or LEVELS:
            measure(jobs, level, options.seconds, options.thorough, section)
    if options.jobs is None or STARTERS in options.jobs:
        measure_starts(options.seconds, section)
    if not options.only_starts:
        section.write()
    return 1 if section.missed else 0


if __name__ == "__main__":
    sys.exit(main())
