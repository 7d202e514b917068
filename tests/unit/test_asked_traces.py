"""Places for traces that somebody asks for: users share them, so that a further user gets one."""

from __future__ import annotations

import selectors
import socket
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent import traces as traces_module
from condor_joblens.agent.traces import GAVE_WAY, MOST_AT_ONCE, Traces
from condor_joblens.control.verbs import Payer, Refused
from condor_joblens.model.levels import Level

RUNS = 2 * MOST_AT_ONCE


class Asked(Traces):
    """Traces of which nothing runs."""

    def __init__(self) -> None:
        rows: Any = np.zeros(RUNS, [("run_number", "u8"), ("level_number", "i4")])
        rows["run_number"], rows["level_number"] = np.arange(RUNS) + 100, Level.TRACE
        runs = SimpleNamespace(rows=rows, state={"used": np.ones(RUNS, bool)})
        node: Any = SimpleNamespace(runs=runs, config=SimpleNamespace(trace_shell="process", max_cpu=0.05))
        super().__init__(node, None, None, selectors.DefaultSelector())

    def _check(self) -> None:
        pass

    def _started(self, *_: object) -> socket.socket:
        return socket.socketpair()[0]

    def ask(self, run: int, whose: Payer) -> socket.socket:
        sandbox: Any = None
        return self.start(run, -1, sandbox, {"spec": "a:b", "seconds": 60}, whose)

    def why(self, run: int, channel: socket.socket) -> str:
        return self.why_over(run, self.number(run), channel)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    times = iter(range(1000))
    monkeypatch.setattr(traces_module.time, "monotonic", lambda: float(next(times)))
    return Asked()


def test_two_users_with_all_places_make_room_for_a_third(asked: Asked) -> None:
    channels = [asked.ask(run, 1000 + run % 2) for run in range(MOST_AT_ONCE)]
    asked.ask(MOST_AT_ONCE, 1002)
    gone = [run for run, channel in enumerate(channels) if asked.why(run, channel)]
    assert gone in ([MOST_AT_ONCE - 1], [MOST_AT_ONCE - 2]), "the one that a user with most of them began last"
    assert asked.why(gone[0], channels[gone[0]]) == GAVE_WAY
    with pytest.raises(Refused, match=r"8 jobs are traced here, [34] of them for you"):
        asked.ask(MOST_AT_ONCE + 1, 1000)
    with pytest.raises(Refused, match="already"):
        asked.ask(0, 1000)


def test_each_of_as_many_users_as_places_gets_one_and_the_next_waits(asked: Asked) -> None:
    for run in range(MOST_AT_ONCE):
        asked.ask(run, "staff alice")
    for number in range(MOST_AT_ONCE - 1):
        asked.ask(MOST_AT_ONCE + number, 1000 + number)
    with pytest.raises(Refused, match="0 of them for you"):
        asked.ask(RUNS - 1, 2000)


def test_roots_traces_stay_and_what_is_over_leaves_its_place(asked: Asked) -> None:
    channels = [asked.ask(run, 0) for run in range(MOST_AT_ONCE)]
    with pytest.raises(Refused):
        asked.ask(MOST_AT_ONCE, 1000)
    channels[3].close()
    asked.ask(MOST_AT_ONCE, 1000)
    assert not any(asked.why(run, channel) for run, channel in enumerate(channels))


def test_a_run_whose_trace_gave_way_can_be_traced_again(asked: Asked) -> None:
    first = [asked.ask(run, 1000) for run in range(MOST_AT_ONCE)]
    asked.ask(MOST_AT_ONCE, 1001)
    first[0].close()
    again = asked.ask(MOST_AT_ONCE - 1, 1000)
    assert asked.why(MOST_AT_ONCE - 1, first[-1]) == GAVE_WAY and not asked.why(MOST_AT_ONCE - 1, again)
