"""The next job in a cgroup that HTCondor could not remove is a run of its own, and both say what is not exact."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.lifecycle import checkpoint, recovery, reuse, run_end, slot_events
from condor_joblens.jobs.run_table import Ended
from condor_joblens.model.metrics import text
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.tracer import cgroup_uses, map_layout

SLOT, NEXT = 5, 6


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A node of which the tracer has two slots, and the cgroup has used 9 seconds."""
    made = make(tmp_path, monkeypatch)
    tracer: Any = made.node.tracer
    tracer.counters = np.zeros(8, map_layout.COUNTERS)
    (tmp_path / "cpu.stat").write_text("usage_usec 9000000\nuser_usec 6000000\nsystem_usec 3000000\n")

    def gone(agent: Any, run: int) -> None:
        made.node.ended.add(made.node.runs.rows[run])
        made.node.runs.remove(run)

    monkeypatch.setattr(run_end, "cgroup_gone", gone)
    made.node.ended = Ended(str(tmp_path / "ended"), os.getgid())
    return made


def job_of(made: Made, cgroup_id: int, slot: int, tmp_path: Path) -> int:
    """A run in that cgroup."""
    run = made.begin(f"{slot}.0")
    runs = made.node.runs
    del runs.by_cgroup[int(runs.state["cgroup_id"][run])]
    runs.state["cgroup_id"][run], runs.state["kernel_slot"][run] = cgroup_id, slot
    runs.by_cgroup[cgroup_id] = run
    runs.rows["complete"][run], runs.rows["cgroup"][run] = True, b"htcondor/condor_slot1_1"
    made.node.tracer.counters["cgroup_id"][slot] = cgroup_id
    folder = os.open(tmp_path, os.O_RDONLY)
    made.node.handles[run].files = CgroupFiles.open(folder)
    os.close(folder)
    return run


def earlier(made: Made, tmp_path: Path) -> int:
    """A run that has ended, after 7 seconds of CPU time of its own and 1 of the job before; its cgroup is there."""
    run = job_of(made, 4711, SLOT, tmp_path)
    rows, state = made.node.runs.rows, made.node.runs.state
    rows["final"][run], rows["process_live"][run] = True, 0
    rows["cpu_seconds"][run], state["offset"]["cpu_seconds"][run] = 7.0, -1.0
    made.node.handles[run].is_counted_to_end = True
    return run


def follow(made: Made, tmp_path: Path) -> tuple[Any, Any]:
    """The next job comes: the last row of the earlier run, and the row of the new one."""
    second = cgroup_uses.next_use(4711)
    before = reuse.end_earlier(made.agent, second)
    assert made.node.runs.by_cgroup == {}
    run = job_of(made, second, NEXT, tmp_path)
    reuse.begin(made.node, run, before)
    return made.node.ended.rows[-1], made.node.runs.rows[run]


def test_it_begins_at_zero_and_both_are_complete(made: Made, tmp_path: Path) -> None:
    earlier(made, tmp_path)
    old, new = follow(made, tmp_path)
    assert (old["cpu_seconds"], old["complete"]) == (7.0, True)
    assert (new["cpu_seconds"], new["complete"], text(new["note"])) == (0.0, True, "")
    offset = made.node.runs.state["offset"]["cpu_seconds"]
    assert offset[made.node.runs.by_cgroup[cgroup_uses.next_use(4711)]] == -8.0, "what the files said at its end"
    assert text(new["uncounted"]) == reuse.PEAK


@pytest.mark.parametrize("cause", ["processes", "connections", "shared"])
def test_what_may_be_the_others_is_said(made: Made, tmp_path: Path, cause: str) -> None:
    run = earlier(made, tmp_path)
    if cause == "processes":
        made.node.handles[run].is_counted_to_end = False
    elif cause == "connections":
        made.node.tracer.counters["connected"][SLOT] = 1
    else:
        made.node.tracer.counters["entered_shared"][NEXT] = 1
    old, new = follow(made, tmp_path)
    assert (old["complete"], text(old["note"])) == ((True, "") if cause == "shared" else (False, reuse.FOLLOWED))
    assert (new["complete"], text(new["note"])) == (False, reuse.FOLLOWS)


def test_without_the_earlier_run_it_begins_at_what_the_files_say_now(made: Made, tmp_path: Path) -> None:
    run = job_of(made, cgroup_uses.next_use(4711), NEXT, tmp_path)
    reuse.begin(made.node, run, None)
    assert made.node.runs.state["offset"]["cpu_seconds"][run] == -9.0
    assert made.node.handles[run].cpu_before == 9.0
    assert text(made.node.runs.rows["note"][run]) == reuse.FOLLOWS


def test_an_empty_cgroup_that_joblensd_finds_is_no_run(made: Made, tmp_path: Path) -> None:
    node, base = made.node, tmp_path / "htcondor"
    left = base / "condor_var_lib_condor_execute_slot1_1@node"
    left.mkdir(parents=True)
    inode = left.stat().st_ino
    tree: Any = node.tree
    tracer: Any = node.tracer
    tree.path.side_effect = lambda cgroup: str(tmp_path / cgroup)
    node.bases, node.executes = ["htcondor"], []
    tracer.events.return_value = np.zeros(0, map_layout.EVENT)
    tracer.counted_id.return_value = tracer.slot_of.return_value = None
    tracer.take.return_value = SLOT
    recovery.reconcile(made.agent)
    assert node.runs.by_cgroup == {} and inode in made.agent.leftovers
    assert tracer.counters["main_exits"][SLOT] == 1, "the kernel waits for the next job"
    event = np.zeros(1, map_layout.EVENT)
    event["kind"], event["cgroup_id"] = map_layout.CGROUP_GONE, inode
    tracer.events.side_effect = [event, np.zeros(0, map_layout.EVENT)]
    slot_events.drain(made.agent)
    assert inode not in made.agent.leftovers
    tracer.stop.assert_called_once_with(SLOT)


def test_ids_of_one_cgroup() -> None:
    cgroup_id = 0x1234567890
    for number in range(cgroup_uses.USES):
        assert (cgroup_uses.inode_of(cgroup_id), cgroup_uses.jobs_before(cgroup_id)) == (0x1234567890, number)
        assert cgroup_id < 1 << 63, "the same as a signed number"
        cgroup_id = cgroup_uses.next_use(cgroup_id)
    assert cgroup_id == 0x1234567890


@pytest.mark.parametrize(
    ("known_starter", "checkpoint_code", "goes_on"),
    [(313, -1, True), (314, 85, False), (0, 85, True), (0, -1, False)],
    ids=["its own", "another's", "joblensd is new", "joblensd is new, and the job has no checkpoint"],
)
def test_totals_go_on_for_the_same_starters_job_alone(
    made: Made, tmp_path: Path, known_starter: int, checkpoint_code: int, goes_on: bool
) -> None:
    """The name alone can be that of the slot's next job, if a startd's answer was late."""
    first = job_of(made, 4711, SLOT, tmp_path)
    rows, state = made.node.runs.rows, made.node.runs.state
    rows["process_forked"][first], rows["job_id"][first], rows["run"][first] = 4, b"1.0", b"ap#1.0#1#1"
    made.agent.restarts.ended("condor_slot1_1", known_starter)
    run_end.cgroup_gone(made.agent, first)
    again = job_of(made, 4712, NEXT, tmp_path)
    rows["job_id"][again], rows["run"][again] = b"1.0", b"ap#1.0#1#1"
    rows["slot"][again] = made.node.ended.rows["slot"][-1]
    state["starter"][again], state["checkpoint_code"][again] = 313, checkpoint_code
    checkpoint.resume(made.agent, again)
    assert bool(rows["process_forked"][again] == 4) is goes_on
    assert len(made.node.ended.rows) == (0 if goes_on else 1)
