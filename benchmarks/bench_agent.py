#!/usr/bin/env python3
"""What joblensd costs on a full node: real programs in the kernel, real cgroups, N jobs of five processes each.

A small C program (crowd.c) is the starters and their jobs: slots' cgroups, folders with the two ads, processes that
sleep and wake every five seconds for a little work, one open TCP connection a job. The agent is the real one, in a
mount namespace with a bpffs of its own, so that it meets no other one's pins. It sees the jobs start together (the
worst that can happen to it), then runs undisturbed and is measured; then psutil reads the same numbers of the same
processes, and the jobs end together. A second agent is then timed part by part.

The jobs are as young as can be, and the ads of the young are refreshed most often; so it is measured again with the
pace that jobs have after an hour.

Figures are CPU time (utime + stime), which a busy machine falsifies least; quartiles are of five-second windows.

    bench_agent.py [--jobs N ...] [--seconds S]            as root, after `make build`; 200 and 1000 jobs, 60 s
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))  # not installed: the code of this checkout

from condor_joblens.config import Config  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402

PROCESSES = 5
WINDOW = 5.0
SETTLE = 10.0
PSUTIL_ROUNDS = 5
PSUTIL_NUMBERS = ["cpu_times", "memory_info", "io_counters", "num_threads", "status"]
MIB = 1 << 20
NOBODY = 65534
TARGETS = {200: (1.0, 60), 1000: (3.0, 80)}  # jobs: percent of a core, MB of resident memory

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

    @property
    def execute(self) -> Path:
        return self.folder / "execute"

    def build(self) -> None:
        """Compiles the crowd and the wrapper's helper."""
        for name in ("execute", "log", "bin"):
            (self.folder / name).mkdir()
        os.chown(self.folder / "log", NOBODY, NOBODY)
        self.folder.chmod(0o755)
        compiler = shutil.which("musl-gcc") or "cc"
        static = [compiler, "-O2", "-static", "-o"]
        subprocess.run([*static, str(self.folder / "crowd"), str(CHECKOUT / "benchmarks/crowd.c")], check=True)
        socket = f'-DJOBLENS_SOCKET="{self.run_dir}/activate.sock"'
        helper = [*static, str(self.folder / "activate"), socket, str(CHECKOUT / "hooks/joblens_activate.c")]
        subprocess.run(helper, check=True)
        (self.folder / "ad").write_text(AD)
        self.configure({})

    def configure(self, knobs: dict[str, str]) -> None:
        """Makes this the configuration: what condor_config_val says."""
        macros = {
            "EXECUTE": self.execute,
            "LOG": self.folder / "log",
            "JOBLENS_RUN_DIR": self.run_dir,
            "JOBLENS_BASE_CGROUP": self.base.relative_to(_cgroup_mount()),
            "JOBLENS_POLICY_DIR": CHECKOUT / "lua_policies",
            **knobs,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in macros.items())
        program = self.folder / "bin" / "condor_config_val"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
        program.chmod(0o755)


@contextmanager
def ground() -> Iterator[Ground]:
    """A ground of its own, gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="joblens-bench-", dir="/var/tmp") as folder,
        tempfile.TemporaryDirectory(prefix="joblens-bench-", dir="/dev/shm") as run_dir,
    ):
        base = _cgroup_mount() / f"joblens-bench-{os.getpid()}"
        base.mkdir()
        os.chmod(run_dir, 0o755)
        made = Ground(Path(folder), Path(run_dir), base)
        try:
            made.build()
            yield made
        finally:
            for path, _, _ in os.walk(base, topdown=False):
                os.rmdir(path)


def _cgroup_mount() -> Path:
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        return Path(next(line.split()[1] for line in mounts if line.split()[2] == "cgroup2"))


class Crowd:
    """The jobs of a node."""

    def __init__(self, ground: Ground, jobs: int) -> None:
        self._ground = ground
        paths = [ground.execute, ground.base, ground.folder / "ad", ground.folder / "activate"]
        command = [str(ground.folder / "crowd"), *map(str, paths), str(jobs), str(PROCESSES)]
        self._process = subprocess.Popen(command, start_new_session=True)
        _until(lambda: len(self.processes()) == jobs * PROCESSES, f"{jobs * PROCESSES} processes of jobs")

    def processes(self) -> list[int]:
        """The ids of all processes in the slots."""
        return [int(pid) for path in self._ground.base.glob("*/*/cgroup.procs") for pid in path.read_text().split()]

    def end(self) -> None:
        """Ends all jobs at once; their starters take the cgroups away, as HTCondor's do."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        _until(lambda: not self.processes(), "the end of the jobs")
        for slot in self._ground.base.iterdir():
            if slot.is_dir():
                (slot / "job.scope").rmdir()
                slot.rmdir()


def _until(true: Callable[[], bool], what: str, seconds: float = 60) -> None:
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
        self._process = subprocess.Popen(command, env=environment)
        self._rows = ground.run_dir / "rows"
        self._log = ground.folder / "log" / "JobLensdLog"
        _until((ground.run_dir / "activate.sock").exists, "joblensd to listen")
        self.process = psutil.Process(self._process.pid)

    def known(self) -> int:
        """How many jobs it publishes."""
        return len(Reader(str(self._rows)).rows()[0])

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()

    def cpu(self) -> float:
        """CPU seconds of the agent alone."""
        used = self.process.cpu_times()
        return used.user + used.system

    def policy_cpu(self) -> float:
        """CPU seconds of its policy child, that of children that ended included."""
        used = [child.cpu_times() for child in self.process.children()]
        ended = self.process.cpu_times()
        return sum(each.user + each.system for each in used) + ended.children_user + ended.children_system

    def memory(self) -> tuple[float, float, float]:
        """Resident, proportional and the policy child's resident megabytes."""
        own = self.process.memory_full_info()
        children = sum(child.memory_info().rss for child in self.process.children())
        return own.rss / MIB, own.pss / MIB, children / MIB

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._process.terminate()
        if self._process.wait(20) != 0:
            raise SystemExit(f"bench_agent: joblensd failed:\n{self.log()}")


def watch(agent: Agent, what: str, seconds: float) -> float:
    """Prints the share of a core (percent) that it uses in the next `seconds`, and gives it."""
    shares = []
    policy = agent.policy_cpu()
    for _ in range(max(2, round(seconds / WINDOW))):
        cpu, began = agent.cpu(), time.monotonic()
        time.sleep(WINDOW)
        shares.append(100 * (agent.cpu() - cpu) / (time.monotonic() - began))
    low, median, high = statistics.quantiles(shares, n=4)
    mean = statistics.mean(shares)
    print(
        f"  joblensd, {what}: {mean:.2f} % of a core in {seconds:.0f} s (quartiles {low:.2f} {median:.2f} {high:.2f}), "
        f"its policy child {100 * (agent.policy_cpu() - policy) / seconds:.2f} %"
    )
    return mean


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
    from condor_joblens.agent import measure, publishing
    from condor_joblens.sample import cgroupfiles, kernel, totals
    from condor_joblens.tracer.tracer import Tracer

    watch = Stopwatch()
    for place, name, part in (
        (Tracer, "count_living", "iterator over threads"),
        (Tracer, "count_connections", "iterator over connections"),
        (Tracer, "lost", "losses"),
        (cgroupfiles, "read_cpu", "cpu.stat"),
        (cgroupfiles, "read_slow", "pressure and memory files"),
        (kernel, "columns", "columns from counters"),
        (totals, "merge", "columns into rows"),
        (totals, "cores", "rates"),
        (measure, "everything", "rest of measuring"),
        (publishing, "rows", "rows into shared memory"),
        (publishing, "usage_ads", "ads: text"),
        (publishing.updatead, "replace", "ads: files"),
        (publishing, "ads", "ads: rest"),
        (publishing, "repair_ads", "looking for ads overwritten"),
        (agent, "_round", "rest of the round"),
    ):
        watch.on(place, name, part)
    # from here on: what comes before has the jobs' starts in it
    signal.signal(signal.SIGUSR1, lambda *_: (watch.spent.clear(), watch.calls.clear()))
    code = agent.main()
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"spent": watch.spent, "calls": watch.calls}, file)
    return code


# -- the benchmark --------------------------------------------------------------------------------------------------


def burst(agent: Agent, ground: Ground, jobs: int) -> Crowd:
    """All jobs start together, and what that takes."""
    cpu, policy, began = agent.cpu(), agent.policy_cpu(), time.monotonic()
    crowd = Crowd(ground, jobs)
    started = time.monotonic() - began
    _until(lambda: agent.known() == jobs, f"{jobs} known jobs (joblensd says:\n{agent.log()[-2000:]})")
    known = time.monotonic() - began
    _until(lambda: len(_written(ground)) == jobs, "the first ads")
    took = time.monotonic() - began
    print(
        f"  {jobs} jobs start within {started:.1f} s: all known after {known:.1f} s, in their ads after {took:.1f} s; "
        f"joblensd {agent.cpu() - cpu:.2f} s of CPU, policies {agent.policy_cpu() - policy:.2f} s"
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


def parts(ground: Ground, jobs: int, seconds: float) -> None:
    """Prints what one round takes, by part."""
    path = ground.folder / "parts"
    with ExitStack() as stack:
        agent = Agent(ground, path)
        crowd = Crowd(ground, jobs)
        stack.callback(crowd.end)
        _until(lambda: agent.known() == jobs, f"{jobs} known jobs")
        time.sleep(SETTLE)
        agent.process.send_signal(signal.SIGUSR1)
        time.sleep(seconds)
        agent.stop()
    found = json.loads(path.read_text())
    spent, rounds = found["spent"], found["calls"]["rest of the round"]
    print(f"  one round by part, mean of {rounds} rounds, ms of CPU (all: {1000 * sum(spent.values()) / rounds:.2f}):")
    for part, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"    {part:<30}{1000 * seconds / rounds:8.3f}   {found['calls'][part] / rounds:6.1f} calls")


def measure(jobs: int, seconds: float) -> bool:
    """One size of node; whether its targets were met."""
    print(f"\n{jobs} jobs of {PROCESSES} processes, numbers taken every second")
    with ground() as place:
        agent = Agent(place)
        crowd = burst(agent, place, jobs)
        time.sleep(SETTLE)
        young = watch(agent, "young jobs", seconds)
        by_psutil = psutil_share(crowd.processes())
        place.configure({"JOBLENS_AD_PERIOD": str(3600 * Config().ad_slowdown)})
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(Config().ad_period + SETTLE)  # until each has had its last turn at the old pace
        old = watch(agent, "jobs of an hour", seconds)
        resident, proportional, child = agent.memory()
        print(f"  joblensd: RSS {resident:.1f} MB, PSS {proportional:.1f} MB; its policy child: RSS {child:.1f} MB")
        print(f"  psutil, the same numbers: {by_psutil:.1f} % of a core, {by_psutil / young:.0f} times as much")
        end(agent, crowd, jobs)
        agent.stop()
    with ground() as place:
        parts(place, jobs, seconds / 2)
    if jobs not in TARGETS:
        return True
    cpu, memory = TARGETS[jobs]
    met = max(young, old) <= cpu and resident <= memory
    print(f"  target: at most {cpu:g} % of a core and {memory} MB: {'met' if met else 'MISSED'}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, action="append", help="how many (default: 200, and 1000)")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure")
    parser.add_argument("--timed-agent", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timed_agent:
        return timed_agent(options.timed_agent)
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    print(f"{os.cpu_count()} CPUs, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}")
    return 0 if all([measure(jobs, options.seconds) for jobs in options.jobs or TARGETS]) else 1


if __name__ == "__main__":
    sys.exit(main())
