"""What ran before a job: the wrapper alone, or more, which then stays in its numbers and is said."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import Made, make
from condor_joblens.tracer._bpf import lib

from condor_joblens.agent import before_job
from condor_joblens.jobs.pid_namespace_init import PidNamespaceInit
from condor_joblens.jobs.wrapper_programs import WrapperPrograms
from condor_joblens.model.metrics import text
from condor_joblens.sample import cgroup_files
from condor_joblens.tracer import map_layout

SHELL, HELPER, OTHER = (8 << 20 | 1, 11), (8 << 20 | 1, 12), (8 << 20 | 1, 99)


class Counted:
    """What is counted of the run when its wrapper calls; at first what an honest one leaves."""

    def __init__(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node: Any = made.node
        self.run = made.begin()
        self.cpu = 0.004
        self.node.runs.state["kernel_slot"][self.run] = 1
        self.node.runs.rows["complete"][self.run] = True
        counters = self.node.tracer.counters = np.zeros(3, map_layout.COUNTERS)
        self.io = np.zeros(0, map_layout.IO_COUNTERS)
        sensor = SimpleNamespace(counters=lambda slots: (np.ones(len(self.io), "?"), self.io))
        self.node.tracer.sensors = {"io": sensor}
        self.node.wrapper_programs = SimpleNamespace(
            knows=lambda *program: program in (SHELL, HELPER), helpers={HELPER, (8 << 20 | 1, 13)}
        )
        monkeypatch.setattr(cgroup_files, "read_cpu", lambda files: {"cpu_seconds": np.array([self.cpu])})
        self.count = counters[1:2]
        self.count["executed"], self.count["forked"] = 2, 1
        self.count["call_read_bytes"] = np.uint64(2**64 - 300)  # before its first exec, less than was taken off
        self.programs(SHELL, HELPER)

    def programs(self, *programs: tuple[int, int]) -> None:
        for number, (device, inode) in enumerate(programs):
            self.count["program_devices"][0][number] = device
            self.count["program_inodes"][0][number] = inode

    @property
    def said(self) -> tuple[bool, str]:
        row = self.node.runs.rows[self.run]
        return bool(row["complete"]), text(row["note"])


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(make(tmp_path, monkeypatch), monkeypatch)


def test_a_wrapper_is_alone_with_its_shell_and_its_helper(counted: Counted) -> None:
    assert before_job.only_wrapper_ran(counted.node, counted.run)
    assert counted.said == (True, "") and not counted.count["kept_early"][0]


def test_a_slot_in_which_no_exec_was_seen_can_have_had_only_a_wrapper(counted: Counted) -> None:
    counted.count["executed"] = counted.count["forked"] = 0
    counted.programs(OTHER, OTHER)  # of an earlier job in this place
    assert before_job.only_wrapper_ran(counted.node, counted.run)


@pytest.mark.parametrize(
    "field, value",
    [(name, most + 1) for name, most in map_layout.WRAPPERS_MOST.items()],
    ids=list(map_layout.WRAPPERS_MOST),
)
def test_more_than_a_wrapper_does_stays_and_is_said(counted: Counted, field: str, value: int) -> None:
    counted.count[field] = value
    assert not before_job.only_wrapper_ran(counted.node, counted.run)
    assert counted.said == (False, before_job.NOTE)
    assert counted.count["kept_early"][0] == 1, "the next joblensd knows it too"


@pytest.mark.parametrize("programs", [(OTHER, HELPER), (SHELL, OTHER)])
def test_other_programs_than_the_wrappers_are_not_alone(counted: Counted, programs: Any) -> None:
    counted.programs(*programs)
    assert not before_job.only_wrapper_ran(counted.node, counted.run)
    assert counted.said == (False, before_job.NOTE)


def test_cpu_time_is_that_since_the_job_before(counted: Counted) -> None:
    counted.cpu = 100 + map_layout.WRAPPERS_CPU_SECONDS
    counted.node.handles[counted.run].cpu_before = 100.0
    assert before_job.only_wrapper_ran(counted.node, counted.run)
    counted.cpu += 0.001
    assert not before_job.only_wrapper_ran(counted.node, counted.run)


@pytest.mark.parametrize("field, most", [(lib.CALL_RETURNS, "read_calls"), (lib.CALL_BYTES, "call_read_bytes")])
def test_calls_that_level_io_counted_are_few(counted: Counted, field: int, most: str) -> None:
    counted.io = np.zeros(1, map_layout.IO_COUNTERS)
    calls = counted.io["calls"][0]
    calls[field] = calls[lib.CALL_FIELDS + field] = map_layout.WRAPPERS_MOST[most] // 2
    assert before_job.only_wrapper_ran(counted.node, counted.run)
    calls[field] += 1
    assert not before_job.only_wrapper_ran(counted.node, counted.run)


def test_what_the_kernel_has_found_is_said_once(counted: Counted) -> None:
    counted.node.update_note = MagicMock(wraps=counted.node.update_note)
    counted.count["kept_early"] = 1
    for _ in range(2):
        before_job.declare(counted.node, np.array([counted.run]))
    assert counted.said == (False, before_job.NOTE)
    assert counted.node.update_note.call_count == 1


def test_an_init_that_did_more_is_said(counted: Counted) -> None:
    counted.count["kept_early"] = map_layout.KEPT_INIT
    before_job.declare(counted.node, np.array([counted.run]))
    assert counted.said == (False, before_job.INIT)


def test_an_init_that_an_upgrade_has_replaced_is_known_before_it_starts(counted: Counted, tmp_path: Path) -> None:
    counted.node.pid_namespace_init = PidNamespaceInit(str(tmp_path))
    counted.node.tracer.know_init = MagicMock()
    assert before_job.only_wrapper_ran(counted.node, counted.run)
    counted.node.tracer.know_init.assert_called_once_with(0, 0)


# -- a wrapper that was not heard ----------------------------------------------------------------------------------


def test_a_wrapper_that_was_not_heard_in_time_is_counted_and_said(counted: Counted) -> None:
    counted.count["executed"] = 3
    before_job.declare(counted.node, np.array([counted.run]))
    assert counted.said == (False, before_job.UNHEARD)


def test_a_wrapper_whose_helper_still_runs_may_be_heard(counted: Counted) -> None:
    before_job.declare(counted.node, np.array([counted.run]))
    assert counted.said == (True, "")


def test_a_job_of_many_programs_whose_wrapper_was_heard_is_complete(counted: Counted) -> None:
    counted.programs(SHELL, OTHER)  # the job's own first ones
    counted.count["executed"] = 100
    before_job.declare(counted.node, np.array([counted.run]))
    assert counted.said == (True, "")


def test_a_wrapper_that_has_called_is_not_unheard(counted: Counted) -> None:
    counted.count["executed"], counted.count["awaits_exec"] = 3, map_layout.AWAITS_JOB
    before_job.declare(counted.node, np.array([counted.run]))
    assert counted.said == (True, "")


# -- a wrapper that called and does not become the job --------------------------------------------------------------


def waiting(counted: Counted, called: float, at_end: bool = False) -> bool:
    """Whether it is still waited for the job of a wrapper that called so many seconds ago."""
    counted.count["awaits_exec"] = map_layout.AWAITS_JOB
    counted.node.runs.state["began"][counted.run] = time.monotonic() - called
    before_job.give_up_waiting(counted.node, np.array([counted.run]), at_end)
    is_waiting = bool(counted.count["awaits_exec"][0] == map_layout.AWAITS_JOB)
    assert is_waiting != counted.count["kept_early"][0]
    return is_waiting


def test_a_job_that_its_init_could_not_start_is_not_counted(counted: Counted) -> None:
    counted.count["executed"], counted.count["forked"], counted.count["exited"] = 3, 2, 3
    counted.count["init_tgid"] = 7
    assert waiting(counted, 1, at_end=True)


def test_a_shell_that_stays_is_the_job(counted: Counted) -> None:
    assert waiting(counted, before_job.PATIENCE - 1)
    assert not waiting(counted, before_job.PATIENCE + 1)


def test_a_job_that_could_not_be_started_leaves_nothing(counted: Counted) -> None:
    counted.count["exited"] = 2  # the helper and the shell
    assert waiting(counted, 1, at_end=True)


def test_a_shell_that_did_more_and_ended_is_counted(counted: Counted) -> None:
    counted.count["exited"] = 3
    assert not waiting(counted, 1, at_end=True)


# -- which programs are the wrapper's -------------------------------------------------------------------------------


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    path = tmp_path / "joblens_wrapper"
    (tmp_path / "shell").write_text("")
    (tmp_path / "joblens_activate").write_text("")
    path.write_text(f"#!{tmp_path}/shell -e\nexec\n")
    return path


def facts(path: Path) -> tuple[int, int]:
    """By /proc/self/maps, which has them from the kernel as well."""
    import mmap

    path.write_text("x")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 1, mmap.MAP_PRIVATE, mmap.PROT_READ):
        line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path)))
    major, minor = (int(part, 16) for part in line.split()[3].split(":"))
    return major << 20 | minor, int(line.split()[4])


def test_shell_and_helper_are_known_and_the_script_is_none(wrapper: Path) -> None:
    programs = WrapperPrograms([str(wrapper)])
    assert programs.knows(*facts(wrapper.parent / "shell"))
    helper = facts(wrapper.parent / "joblens_activate")
    assert programs.knows(*helper) and programs.helpers == {helper}
    status = os.stat(wrapper)
    assert not programs.knows(facts(wrapper.parent / "shell")[0], status.st_ino)


def test_a_helper_that_is_replaced_is_known_in_both_forms(wrapper: Path) -> None:
    programs = WrapperPrograms([str(wrapper)])
    helper = wrapper.parent / "joblens_activate"
    before = facts(helper)
    (wrapper.parent / "new").write_text("")
    (wrapper.parent / "new").rename(helper)
    assert facts(helper) != before
    assert programs.knows(*facts(helper)) and programs.knows(*before)


@pytest.mark.parametrize(
    "content", [None, b"", b"#!", b"#!\n", b"no script\n", b"\x00\xff" * 500, b"#!/no/such/shell\n"]
)
def test_a_wrapper_that_is_none_makes_nothing_known(tmp_path: Path, content: bytes | None) -> None:
    wrapper = tmp_path / "joblens_wrapper"
    if content is not None:
        wrapper.write_bytes(content)
    assert not WrapperPrograms([str(wrapper)]).knows(*facts(tmp_path / "other"))
