"""Connections that close after the end of their job: the run's last row is put right once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.lifecycle.settling import LONGEST, SHARE, Settling
from condor_joblens.model.metrics import ABSENT
from condor_joblens.tracer import map_layout

SLOTS = 4 * SHARE
BEFORE = 1000  # bytes that were sent before a checkpoint: the kernel's counter does not have them


class Kernel:
    """The counters of all slots, and the connections that are still open."""

    def __init__(self) -> None:
        self.counters = np.zeros(SLOTS, map_layout.COUNTERS)
        self.connections = np.zeros(SLOTS, map_layout.LIVING)
        self.stopped: list[int] = []
        self.walks = 0

    def count_connections(self) -> None:
        """They are as the test says."""
        self.walks += 1

    def stop(self, slot: int) -> None:
        self.stopped.append(slot)


class Case:
    def __init__(self, made: Made) -> None:
        self.node: Any = made.node
        self.kernel = self.node.tracer = Kernel()
        self.corrected: list[np.void] = []
        self.node.ended = SimpleNamespace(correct=self.corrected.append)
        self.now = 100.0
        self.settling = Settling(self.node, lambda: self.now)
        self.made = made

    def end(self, slot: int, sent: int, is_open: bool = True) -> int:
        """A run whose connection has sent so much when the job ends."""
        run = self.made.begin()
        state, row = self.node.runs.state, self.node.runs.rows[run : run + 1]
        state["kernel_slot"][run], state["offset"]["tcp_sent_bytes"][run] = slot, BEFORE
        row["tcp_sent_bytes"], row["tcp_received_bytes"], row["tcp_retransmits"] = BEFORE + sent, 0, 0
        row["tcp_loopback_sent_bytes"], row["sequence"], row["final"] = ABSENT, 7, True
        row["tcp_unsent_bytes"], row["tcp_open"] = 50, 1
        self.kernel.counters["connected"][slot] = 1
        self.kernel.counters["closed"][slot] = not is_open
        return run

    def close(self, slot: int, sent: int) -> None:
        self.kernel.counters["sent_bytes"][slot], self.kernel.counters["closed"][slot] = sent, 1


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(make(tmp_path, monkeypatch))


def test_what_is_sent_after_the_end_is_in_a_second_last_row(case: Case) -> None:
    assert case.settling.begin(case.end(3, sent=20))
    case.settling.tick()
    assert (case.corrected, case.kernel.stopped) == ([], [])
    case.close(3, sent=70)
    case.settling.tick()
    (row,) = case.corrected
    assert (row["tcp_sent_bytes"], row["tcp_unsent_bytes"], row["tcp_open"]) == (BEFORE + 70, 0, 0)
    assert (row["sequence"], row["corrects"], row["final"]) == (8, True, True)
    assert row["tcp_loopback_sent_bytes"] == ABSENT, "the level did not count it"
    assert case.kernel.stopped == [3]
    case.settling.tick()
    assert len(case.corrected) == 1


def test_nothing_open_is_nothing_to_wait_for(case: Case) -> None:
    assert not case.settling.begin(case.end(3, sent=70, is_open=False))


def test_a_run_that_nobody_knows_has_no_row_to_put_right(case: Case) -> None:
    run = case.end(3, sent=20)
    case.node.runs.state["named"][run] = False
    assert not case.settling.begin(run)


def test_a_peer_that_does_not_read_is_given_up_and_what_is_left_is_said(case: Case) -> None:
    case.settling.begin(case.end(3, sent=20))
    case.kernel.connections["sent_bytes"][3], case.kernel.connections["unsent_bytes"][3] = 30, 40
    case.kernel.connections["connections"][3] = 1
    case.now += LONGEST
    case.settling.tick()
    (row,) = case.corrected
    assert (row["tcp_sent_bytes"], row["tcp_unsent_bytes"], row["tcp_open"]) == (BEFORE + 30, 40, 1)
    assert case.kernel.stopped == [3]


def test_a_row_that_was_right_is_not_said_twice(case: Case) -> None:
    run = case.end(3, sent=70)
    case.node.runs.rows["tcp_unsent_bytes"][run] = 0
    case.settling.begin(run)
    case.close(3, sent=70)
    case.settling.tick()
    assert (case.corrected, case.kernel.stopped) == ([], [3])


def test_many_that_do_not_end_take_a_share_of_the_kernels_slots(case: Case) -> None:
    for slot in range(SLOTS // SHARE + 2):
        case.settling.begin(case.end(slot, sent=20))
    assert case.kernel.stopped == [0, 1], "the oldest"


def test_all_that_are_given_up_at_once_take_one_walk_over_connections(case: Case) -> None:
    for slot in (1, 2, 3):
        case.settling.begin(case.end(slot, sent=20))
        case.kernel.connections["sent_bytes"][slot] = 30 + slot
    case.now += LONGEST
    case.settling.tick()
    assert [row["tcp_sent_bytes"] for row in case.corrected] == [BEFORE + 31, BEFORE + 32, BEFORE + 33]
    assert (case.kernel.walks, case.kernel.stopped) == (1, [1, 2, 3])
