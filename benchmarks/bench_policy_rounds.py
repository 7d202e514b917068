#!/usr/bin/env python3
"""What policies on running jobs cost joblensd itself: a round over 1000 of them, asking all anew, who calls meanwhile.

The node is that of the unit tests: rows, policy child and everything between them are real, the kernel is not. The
policies are the eleven that ship, the ad is benchmarks/job.ad. Figures are CPU time of this process.

    bench_policy_rounds.py
"""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "unit")]

import pytest  # noqa: E402
from agent_node import Made, make  # noqa: E402
from results import Section  # noqa: E402

from condor_joblens.agent.levels import level_arbiter, policy_input, policy_rounds  # noqa: E402
from condor_joblens.agent.lifecycle import first_decision  # noqa: E402
from condor_joblens.common import readiness  # noqa: E402
from condor_joblens.control import frames  # noqa: E402
from condor_joblens.control.server import ControlServer  # noqa: E402
from condor_joblens.control.stream import Stream  # noqa: E402
from condor_joblens.control.verbs import Request  # noqa: E402
from condor_joblens.jobs.run_table import Runs  # noqa: E402
from condor_joblens.model.metrics import METRICS  # noqa: E402
from condor_joblens.policy.policy_client import PolicyClient  # noqa: E402
from condor_joblens.policy.requests import ChildLimits  # noqa: E402

AD = (CHECKOUT / "benchmarks" / "job.ad").read_bytes()
POLICIES = [
    (path.name, path.read_text())
    for path in sorted((CHECKOUT / "lua_policies").rglob("*.lua"), key=lambda path: path.name)
    if path.parent.name != "triggers"
]
LIMITS = ChildLimits(cpu_seconds=1.0, wall_seconds=60.0, spare_seconds=None)
RUNNING = 1000
ROUNDS = 10
CALLS = 400


def main() -> int:
    """Measures all of it; exit code 1 where a target is missed."""
    section = Section("policy_rounds", "Policies on running jobs", "1000 jobs, eleven policies, all metrics known.")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        made = full_node(Path(folder), patch)
        child = with_child(made, POLICIES)
        anew(made, child, section)
        rounds(made, child, section)
        settling(made, section)
        child.stop()
        wrapper(made, Path(folder), section)
    section.write()
    return 1 if section.missed else 0


def full_node(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """A node on which RUNNING jobs run, with an ad each."""
    made = make(folder, patch, max_jobs_io=RUNNING, policy_hold=0.0)
    made.node.runs = Runs(str(folder / "more.state"), RUNNING)
    for number in range(RUNNING):
        run = made.begin(f"{number}.0")
        made.levels.saved_ads.keep(int(made.node.runs.state["cgroup_id"][run]), AD, "alice")
    for metric in METRICS:
        made.node.runs.rows[metric.column] = 1000
    return made


def with_child(made: Made, policies: list[tuple[str, str]]) -> PolicyClient:
    """The node's policies in a real child, ready."""
    child = PolicyClient(policies, LIMITS, print, policy_input.PATHS)
    made.levels.policy = child
    child.start()
    while not child.ready:
        turn(made, child)
    return child


def turn(made: Made, child: PolicyClient) -> float:
    """One pass of joblensd's loop; CPU seconds."""
    readiness.readable([child], 0.05)
    began = time.process_time()
    child.expire(time.monotonic())
    first_decision.apply_answers(made.agent)
    return time.process_time() - began


def drive(made: Made, child: PolicyClient, until: Callable[[], bool]) -> tuple[float, float]:
    """CPU seconds of all passes until then, and of the longest one."""
    began = time.process_time()
    policy_rounds.tick(made.levels)
    passes = [time.process_time() - began]
    while not until():
        passes.append(turn(made, child))
    return sum(passes), max(passes)


def anew(made: Made, child: PolicyClient, section: Section) -> None:
    """All jobs are told to a new child, as after condor_reconfig."""
    made.levels.round.next_at = time.monotonic() + 3600
    total, longest = drive(made, child, lambda: not made.levels.round.unknown and child.idle)
    section.add(f"all {RUNNING} jobs told to a new child, joblensd", total * 1000, "ms")
    section.add("the longest pass of the loop meanwhile", longest * 1000, "ms", 10)


def rounds(made: Made, child: PolicyClient, section: Section) -> None:
    """Rounds in which nobody's mind changes: the usual case."""
    totals, longest = [], []
    for _ in range(ROUNDS):
        made.levels.round.next_at = 0.0
        total, most = drive(made, child, lambda: not made.levels.round.due and child.idle)
        totals.append(total)
        longest.append(most)
    section.add(f"a round over {RUNNING} jobs, joblensd", statistics.median(totals) * 1000, "ms", 30)
    section.add("the longest pass of the loop in a round", statistics.median(longest) * 1000, "ms", 10)


def settling(made: Made, section: Section) -> None:
    """What each second costs in which no level changes."""
    began = time.process_time()
    for _ in range(100):
        level_arbiter.arbitrate(made.levels)
    section.add(f"who has the last word on {RUNNING} jobs", (time.process_time() - began) * 1e6 / 100, "µs")


def wrapper(made: Made, folder: Path, section: Section) -> None:
    """A wrapper calls while its job is with the policies: what it waits, with eleven policies and without any."""
    medians = {}
    for name, policies in (("to warm up", POLICIES), ("without policies", []), ("with eleven policies", POLICIES)):
        child = with_child(made, policies)
        medians[name] = statistics.median(calls(made, child, folder / "activate.sock")) * 1e6
        child.stop()
        if name != "to warm up":
            section.add(f"a wrapper's wait, {name}", medians[name], "µs")
    ratio = medians["with eleven policies"] / medians["without policies"]
    section.add("the one by the other", ratio, "times", 1.5, "both are the noise of a busy machine")


class Basic:
    """Commands that cost nothing."""

    def answer(self, request: Request) -> dict[str, str]:
        """As to a wrapper."""
        return {"level": "basic"}

    def stream(self, request: Request, stream: Stream) -> None:
        """Nobody asks for one."""


def calls(made: Made, child: PolicyClient, path: Path) -> list[float]:
    """Seconds that each of CALLS calls waited."""
    waits: list[float] = []

    def wrappers() -> None:
        packet = frames.encode_packet("activate", {"slot": b"slot1_1"}, frames.MAX_REQUEST_1)
        for _ in range(CALLS):
            began = time.perf_counter()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(path))
                connection.send(packet)
                connection.recv(512)
            waits.append(time.perf_counter() - began)
            time.sleep(0.002)

    def ask(number: int) -> None:
        child.submit(f"{number}.{number}", policy_input.request(made.levels, 0, AD, None))

    selector = selectors.DefaultSelector()
    server = ControlServer(str(path), selector, Basic(), print)
    selector.register(child, selectors.EVENT_READ, child.receive)
    thread = threading.Thread(target=wrappers)
    thread.start()
    number = 0
    while thread.is_alive():
        for key, _ in selector.select(0.001):
            key.data()
        child.expire(time.monotonic())
        if child.idle:
            number += 1
            ask(number)
    thread.join()
    server.close()
    return waits


if __name__ == "__main__":
    sys.exit(main())
