"""What a trace tells triggers: the fields of calls, commands and throws, without secrets, and so many a second."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from condor_joblens.model.events import COMMAND_ENDS, EVENT, FUNCTION_ENDS, EventKind
from condor_joblens.tracing import calls, commands, for_triggers
from condor_joblens.tracing.for_triggers import ForTriggers
from condor_joblens.tracing.lines import Lines
from condor_joblens.tracing.outbox import Outbox
from condor_joblens.tracing.standing_messages import MOST_EVENTS, understood_events

CALL = [100.0, 44, 45, "fit(int, char*)", ["7", '"/data/a"'], "returned", 2.5, "0", 1]


class Told:
    """What joblensd hears."""

    def __init__(self) -> None:
        self.joblensd, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.now = 50.0
        self.outbox = Outbox(channel)
        self.made = ForTriggers(self.outbox, lambda: self.now)

    def want(self, *kinds: EventKind, most: int = 1000) -> None:
        said = for_triggers.request(kinds, most)
        assert len(said) < 256
        self.made.hear({"tell": [int(kind) for kind in kinds], "most": most})
        self.now += 1

    def taken(self) -> list[tuple[int, np.ndarray]]:
        self.outbox.flush()
        found = []
        while True:
            try:
                found.append(understood_events(self.joblensd.recv(1 << 16, socket.MSG_DONTWAIT)[1:], 7))
            except BlockingIOError:
                return found


@pytest.fixture
def told() -> Iterator[Told]:
    found = Told()
    yield found
    found.joblensd.close()
    found.outbox.channel.close()


def fields(event: for_triggers.Event) -> Any:
    return np.array([event], EVENT)[0]


def call(**changes: Any) -> Any:
    names = ("when", "pid", "thread", "name", "arguments", "end", "seconds", "result", "depth")
    row = [changes.get(name, value) for name, value in zip(names, CALL)]
    return fields(for_triggers.of_call(row, changes.get("caller", "main"), Lines(), has_texts=True))


def test_the_words_for_ends_are_those_of_the_traces() -> None:
    assert {each.value for each in calls.End} == set(FUNCTION_ENDS)
    assert {each.value for each in commands.End} == set(COMMAND_ENDS)


def test_a_call() -> None:
    made = call()
    assert (made["kind"], made["time"], made["pid"], made["parent_pid"]) == (EventKind.FUNCTION, 102.5, 44, 45)
    assert (made["text"], made["program"], made["value"]) == (b'fit(int, char*)\nmain\n7, "/data/a"', b"0", 1)
    assert (made["lived_seconds"], made["exit_code"]) == (2.5, 0)
    unwound = call(end="unwound", seconds=None, result=None, arguments=None, caller="")
    assert math.isnan(unwound["lived_seconds"]) and unwound["text"] == b"fit(int, char*)\n\n"
    assert FUNCTION_ENDS[unwound["exit_code"]] == "unwound"


def test_of_long_names_there_is_something_of_each_and_no_text_makes_a_part() -> None:
    parts = call(name="f" * 300, caller="g\n" * 100, arguments=['"a\\nb"', "x " * 150])["text"].split(b"\n")
    assert [len(part) for part in parts] == [*for_triggers.WIDTHS, 160 - 2 - sum(for_triggers.WIDTHS)]


def test_secrets_are_taken_out() -> None:
    assert b"hunter" not in call(arguments=['"--password=hunter22222"'])["text"]
    row = [1.0, 2, 3, "std::runtime_error", "Authorization: Bearer hunter22222", "open(int)", 0]
    assert b"hunter" not in fields(for_triggers.of_throw(row, Lines()))["text"]


def test_a_command_and_a_throw() -> None:
    made = fields(for_triggers.of_command([1.0, 2, "/home/a/job.sh", 12, "xrdcp a b", "ended", 54, 3.0, 0]))
    assert (made["program"], made["value"], made["exit_code"], made["text"]) == (b"job.sh", 12, 54, b"xrdcp a b")
    made = fields(for_triggers.of_command([1.0, 2, "", 1, "sleep 9", "background", None, None, 0]))
    assert made["exit_code"] == -1 and COMMAND_ENDS[made["limit"]] == "background"
    made = fields(for_triggers.of_throw([1.0, 2, 3, "Missing", None, "", 0], Lines()))
    assert (made["kind"], made["text"]) == (EventKind.EXCEPTION, b"Missing\n\n")


def test_so_many_a_second_are_told_and_the_others_are_counted(told: Told) -> None:
    event = for_triggers.of_call(CALL, "", Lines(), has_texts=False)
    assert not told.made.wants(EventKind.FUNCTION)
    told.want(EventKind.FUNCTION, most=500)
    assert told.made.wants(EventKind.FUNCTION) and not told.made.wants(EventKind.COMMAND)
    told.made.tell([event] * 600)
    told.made.tell([event] * 10)
    assert [(untold, len(events)) for untold, events in told.taken()] == [
        *[(100, MOST_EVENTS)] * 2,
        (100, 500 - 2 * MOST_EVENTS),
        (110, 0),
    ]
    told.now += 0.5
    told.made.tell([event] * 300)
    ((untold, events), *_) = told.taken()
    assert untold == 160 and events["run_number"].tolist() == [7] * len(events)
