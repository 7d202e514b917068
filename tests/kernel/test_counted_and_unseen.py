"""What is counted and what is declared as not seen are all calls: with processes that fork, and libraries that come."""

from __future__ import annotations

import os

import pytest
import traced_jobs
from ground import steps_library, steps_program, until
from standing import Told, begin
from traced_jobs import SECONDS, Traces, job

from condor_joblens.profiles.traced_calls import TracedCalls

CHILDREN, CALLS = 6, 60

pytestmark = [
    pytest.mark.traces,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="functions are traced on x86-64 alone"),
]


@pytest.mark.parametrize("has, probed", [((), CHILDREN), (("has",), CHILDREN + 1)])
def test_what_is_not_counted_is_in_the_time_that_is_declared(
    traces: Traces, monkeypatch: pytest.MonkeyPatch, has: tuple[str, ...], probed: int
) -> None:
    """Children load the library while they are traced, or inherit it with breakpoints that count for nobody."""
    library = steps_library()
    monkeypatch.setattr(traced_jobs, "traced_program", steps_program)
    told = Told()
    with job(traces.slot, str(library), str(CHILDREN), str(CALLS), *has) as process:
        channel = begin(traces, "libsteps.so:step(int)")
        until(lambda: told.receive(channel) and (told.has_probed("step") if has else told.sums), SECONDS)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        truth = dict(times_of(process.stdout.readline()) for _ in range(CHILDREN))
        until(lambda: told.receive(channel) and processes(told) == probed, SECONDS)
        process.stdin.close()
        kept = told.rest(channel)
    (step,) = kept.functions
    missing = {pid: CALLS - len(counted(kept, pid)) for pid in truth}
    for pid, count in missing.items():
        assert counted(kept, pid) == list(range(count + 1, CALLS + 1)), "what is missing was before all that is there"
    assert step.counts["Calls"] == CHILDREN * CALLS - sum(missing.values())
    assert step.counts["Returned"] == step.counts["Calls"] and step.counts["LostHits"] == 0
    unseen = sum(truth[pid][count - 1] - truth[pid][0] for pid, count in missing.items() if count) / 1e9
    assert step.unseen is not None and unseen <= step.unseen


def times_of(line: str) -> tuple[int, list[int]]:
    """Of a child: its pid, and when each of its calls was (ns)."""
    pid, *times = map(int, line.split())
    assert len(times) == CALLS
    return pid, times


def processes(told: Told) -> int:
    """In how many processes the function was probed, as of what was kept last."""
    return told.kept[-1].functions[0].counts["Processes"] if told.kept and told.kept[-1].functions else 0


def counted(kept: TracedCalls, pid: int) -> list[int]:
    """The numbers of a child's calls that were counted."""
    return sorted(int(call.arguments[0]) for call in kept.calls if call.pid == pid and call.arguments)
