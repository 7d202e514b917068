"""In which order joblensd handles what the kernel tells of slots: ends of runs do not wait for anything else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent.lifecycle import run_end, run_start, slot_events
from condor_joblens.agent.lifecycle.leftovers import Leftovers
from condor_joblens.tracer import map_layout

BORN, EXITED, EMPTY, GONE = map_layout.BORN, map_layout.MAIN_EXITED, map_layout.EMPTY, map_layout.CGROUP_GONE


class Kernel:
    """Tells of slots what a test puts in, and notes what joblensd does. The cgroup N is that of run N."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.leased: list[tuple[int, float]] = []  # runs whose starters wait for their ads, and from when on
        self.now, self.open_until = 100.0, 0.0
        self.opens_at = "", 0.0  # with what is done connections open, and until when
        self.meanwhile: dict[str, list[tuple[int, int]]] = {}  # what is done -> what happens meanwhile
        self._told: list[tuple[int, int]] = []
        by_cgroup: dict[int, int] = {}
        tracer = SimpleNamespace(events=self._events, fileno=lambda: -1)
        node = SimpleNamespace(tracer=tracer, runs=SimpleNamespace(by_cgroup=by_cgroup))
        job_ads = SimpleNamespace(lease=lambda runs: self.leased.extend((run, self.now) for run in runs))
        self.agent: Any = SimpleNamespace(node=node, output=SimpleNamespace(job_ads=job_ads), leftovers=Leftovers())

        def exited(agent: Any, ends: dict[int, bool]) -> dict[int, bool]:
            self._note("end", *ends)
            return dict.fromkeys(ends, False)

        def made(agent: Any, cgroup_id: int, event: np.void, between: Callable[[], None]) -> None:
            by_cgroup[cgroup_id] = cgroup_id
            self._note("birth", cgroup_id)
            between()
            self._note("born", cgroup_id)

        def gone(agent: Any, run: int, between: Callable[[], None]) -> None:
            self._note("going", run)
            between()
            self._note("gone", run)
            del by_cgroup[run]

        def tell(agent: Any, run: int, has_died: bool) -> None:
            self._note("told", run)

        fakes: dict[str, Callable[..., Any]] = {"first_process_exited": exited, "cgroup_gone": gone, "tell": tell}
        for name, fake in fakes.items():
            monkeypatch.setattr(run_end, name, fake)
        monkeypatch.setattr(run_start, "cgroup_made", made)
        monkeypatch.setattr(slot_events.measure, "any_open", lambda node, runs: self._is_open())
        monkeypatch.setattr(slot_events, "readiness", SimpleNamespace(readable=self._sleep))
        monkeypatch.setattr(slot_events, "time", SimpleNamespace(monotonic=lambda: self.now))

    def born(self, *cgroups: int) -> None:
        self.agent.node.runs.by_cgroup.update({cgroup: cgroup for cgroup in cgroups})

    def tells(self, *told: tuple[int, int]) -> list[str]:
        self._told.extend(told)
        slot_events.drain(self.agent)
        return self.done

    def _note(self, *words: object) -> None:
        self.done.append(" ".join(map(str, words)))
        if self.done[-1] == self.opens_at[0]:
            self.open_until = self.opens_at[1]
        self._told.extend(self.meanwhile.pop(self.done[-1], []))

    def _is_open(self) -> bool:
        return self.now < self.open_until

    def _sleep(self, *arguments: Any) -> None:
        self.now += arguments[-1]

    def _events(self) -> np.ndarray:
        found: np.ndarray = np.zeros(len(self._told), map_layout.EVENT)
        for place, (kind, cgroup_id) in enumerate(self._told):
            found["kind"][place], found["cgroup_id"][place] = kind, cgroup_id
        self._told.clear()
        return found


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_ends_come_before_births_and_cgroups_that_go(kernel: Kernel) -> None:
    kernel.born(1, 2, 3)
    done = kernel.tells((GONE, 1), (BORN, 7), (EXITED, 2), (BORN, 8), (EXITED, 3))
    assert done == ["end 2 3", "told 2", "told 3", "going 1", "gone 1", "birth 7", "born 7", "birth 8", "born 8"]


def test_starters_wait_from_the_moment_that_their_jobs_end_are_told(kernel: Kernel) -> None:
    kernel.born(1, 2)
    kernel.open_until = kernel.now + 0.01
    kernel.meanwhile["birth 3"] = [(EXITED, 2)]
    kernel.tells((BORN, 3), (EXITED, 1), (EMPTY, 1))
    assert [run for run, _ in kernel.leased] == [1, 1, 2]
    assert kernel.leased[0][1] == 100.0, "and not after the moment in which connections are closed"


def test_an_end_does_not_wait_for_what_is_told_of_another(kernel: Kernel) -> None:
    kernel.born(1, 2, 3)
    kernel.meanwhile = {"end 1": [(EXITED, 2)], "birth 7": [(EXITED, 3)]}
    done = kernel.tells((EXITED, 1), (BORN, 7), (BORN, 8))
    assert done == ["end 1", "end 2", "told 1", "told 2", "birth 7", "end 3", "born 7", "told 3", "birth 8", "born 8"]


def test_what_happens_in_one_slot_is_handled_in_its_order(kernel: Kernel) -> None:
    done = kernel.tells((BORN, 1), (EXITED, 1), (EMPTY, 1), (GONE, 1), (BORN, 2))
    assert done == ["birth 1", "born 1", "end 1", "told 1", "end 1", "told 1", "going 1", "gone 1", "birth 2", "born 2"]
    kernel.born(3)
    kernel.done.clear()
    assert kernel.tells((EXITED, 3), (EMPTY, 3), (GONE, 3)) == ["end 3", "told 3", "going 3", "gone 3"]


def test_an_end_does_not_wait_until_another_slot_is_closed(kernel: Kernel) -> None:
    kernel.born(1, 2)
    kernel.meanwhile = {"going 1": [(EXITED, 2), (BORN, 7)]}
    assert kernel.tells((GONE, 1)) == ["going 1", "end 2", "gone 1", "told 2", "birth 7", "born 7"]


def test_a_run_that_is_being_started_or_closed_does_not_end_in_between(kernel: Kernel) -> None:
    kernel.born(1)
    kernel.meanwhile = {"birth 7": [(EXITED, 7)], "going 1": [(EMPTY, 1)]}
    assert kernel.tells((BORN, 7)) == ["birth 7", "born 7", "end 7", "told 7"]
    kernel.done.clear()
    assert kernel.tells((GONE, 1)) == ["going 1", "gone 1"]


@pytest.mark.parametrize("told", [(EXITED, 1), (EMPTY, 1)])
def test_connections_have_a_moment_to_be_closed(kernel: Kernel, told: tuple[int, int]) -> None:
    kernel.born(1, 2)
    kernel.open_until = 100.0005
    assert kernel.tells(told) == ["end 1", "told 1"] and 100.0005 <= kernel.now < 100.001
    kernel.now, kernel.open_until = 100.0, 200.0
    assert kernel.tells(told)[2:] == ["end 1", "told 1"]
    assert 0 <= kernel.now - 100 - slot_events.PATIENCE <= slot_events.MOMENT, "no more: the starter looks soon"


def test_meanwhile_another_end_is_told_and_nothing_else_is_done(kernel: Kernel) -> None:
    kernel.born(1, 2)
    kernel.open_until = 100.0
    kernel.opens_at = "end 1", 100.0005
    kernel.meanwhile = {"end 1": [(EXITED, 2), (BORN, 7)]}
    assert kernel.tells((EXITED, 1)) == ["end 1", "told 1", "end 2", "told 2", "birth 7", "born 7"]


def test_what_is_nobodys_is_left(kernel: Kernel) -> None:
    assert kernel.tells((EXITED, 9), (GONE, 9), (EMPTY, 9)) == []
