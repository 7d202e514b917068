"""What the queue says of where jobs run: asked, parsed, and compared with records from Kafka."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from condor_joblens.hub.ingest import command_output
from condor_joblens.hub.ingest.doubts import Doubts
from condor_joblens.hub.ingest.places import CLOCKS, GOOD_SECONDS, Places, Unsure, parsed
from condor_joblens.hub.store.client import StoreGone
from condor_joblens.hub.store.schema import CONTRADICTS, DOUBTED, SAMPLES, TAKEN, WAITS

JOB = "ap#1.0#5"
BEGIN = 1_700_000_000
ASKED = BEGIN + 1000.0


def test_lines_of_the_queue_are_read_and_strange_ones_are_left_out() -> None:
    lines = [
        '"ap#1.0#5" "slot1_1@EP1.example.org" 17',
        '"ap#2.0#5" "slot1@startd2@ep2.example.org"   18',
        '"ap#3.0#5" undefined 19',
        '"ap#4.0#5" "nohost" 20',
        r'"ap#5.0#5" "slot1@x\n\"ap#1.0#5\" slot1@evil" 21',
        '"ap#6.0#5" "slot1@ep6" undefined',
        "-- Schedd: ap",
    ]
    assert parsed(lines) == {"ap#1.0#5": ("ep1.example.org", 17), "ap#2.0#5": ("ep2.example.org", 18)}


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def queue(folder: Path, host: str = "here", start: int = BEGIN, job: str = JOB, code: int = 0) -> str:
    """A condor_q that has one job."""
    file = folder / "condor_q"
    file.write_text(f'#!/bin/sh\necho \'"{job}" "slot1@{host}" {start}\'\necho "$@" > {folder}/asked\nexit {code}\n')
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def clock() -> Clock:
    return Clock(ASKED)


@pytest.fixture
def known(tmp_path: Path, clock: Clock) -> Places:
    said: list[str] = []
    found = Places(queue(tmp_path) + " -global", said.append, clock)
    found.ask()
    assert said == [] and (tmp_path / "asked").read_text().startswith("-global -constraint")
    return found


def test_a_job_that_was_elsewhere_before_and_after_contradicts(known: Places) -> None:
    then = BEGIN + 500.0
    assert known.contradiction(JOB, "there", then) == f"the queue has the job on here since {BEGIN}"
    assert known.contradiction(JOB, "HERE", then) == ""


def test_of_other_jobs_and_of_times_before_its_start_nothing_is_known(known: Places) -> None:
    assert known.contradiction("ap#9.0#5", "there", BEGIN + 500.0) == ""
    assert known.contradiction(JOB, "there", BEGIN + CLOCKS - 1) == ""
    assert known.contradiction(JOB, "there", BEGIN + CLOCKS)


def test_what_the_queue_was_not_asked_after_can_not_be_told_yet(known: Places) -> None:
    with pytest.raises(Unsure):
        known.contradiction(JOB, "there", ASKED - CLOCKS)
    assert known.contradiction(JOB, "there", ASKED - CLOCKS - 1)


def test_an_old_answer_says_nothing(known: Places, clock: Clock) -> None:
    clock.now += GOOD_SECONDS
    assert known.contradiction(JOB, "there", BEGIN + 500.0) == "" and known.time == 0


def test_a_queue_that_can_t_be_asked_is_said_once_and_changes_nothing(tmp_path: Path, clock: Clock) -> None:
    said: list[str] = []
    found = Places(queue(tmp_path), said.append, clock)
    found.ask()
    queue(tmp_path, host="elsewhere", code=3)
    found.ask()
    found.ask()
    assert found.contradiction(JOB, "there", BEGIN + 500.0) and len(said) == 1 and "ended with 3" in said[0]
    (tmp_path / "condor_q").unlink()
    found.ask()
    assert len(said) == 2 and "No such file" in said[1]


def test_an_answer_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_output, "MOST_BYTES", 10_000)
    said: list[str] = []
    file = tmp_path / "condor_q"
    file.write_text("#!/bin/sh\nexec yes\n")
    file.chmod(0o755)
    Places(str(file), said.append).ask()
    monkeypatch.setattr(command_output, "ANSWER_SECONDS", 0.2)
    file.write_text("#!/bin/sh\nsleep 1000\n")
    Places(str(file), said.append).ask()
    assert len(said) == 2 and "says more than" in said[0] and "ended with -9" in said[1]


def test_without_a_command_nothing_is_asked_and_nothing_waits() -> None:
    found = Places("", pytest.fail)
    found.begin()
    assert found.contradiction(JOB, "there", BEGIN + 500.0) == "" and found.time > time.time()


# --- records that differ


class Store:
    """Keeps the rows of two tables; what waits is asked for."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {DOUBTED.name: [], SAMPLES.name: []}
        self.is_gone = False

    def insert(self, table: Any, lines: list[bytes], leave_out: bool = False, names: Any = ()) -> None:
        if self.is_gone:
            raise StoreGone("it is gone")
        self.rows[table.name] += map(json.loads, lines)

    def ask(self, query: str, **parameters: float) -> list[Any]:
        over = {row["Digest"] for row in self.rows[DOUBTED.name] if row["Judged"] != WAITS}
        return [
            {name: value for name, value in row.items() if name not in ("Judged", "Why")}
            for row in self.rows[DOUBTED.name]
            if row["Digest"] not in over and row["Moment"] < parameters["then"]
        ]


def record(node: str, moment: float) -> dict[str, Any]:
    named = {"Run": f"{JOB}#1", "GlobalJobId": JOB, "RunNumber": 3, "Sequence": 1, "Id": f"{JOB}#1/3/1"}
    return {"Type": "sample", "Schema": 1, "Node": node, "Time": moment, "UpdateTime": int(moment), **named}


class Site:
    """A queue asked at `now`, a minute ago at first, and records that come from Kafka."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.said = folder, Store(), list[str]()
        self.begin = int(time.time()) - 1000
        self.clock = Clock(time.time() - 60)
        self.places = Places(queue(folder, start=self.begin), self.said.append, self.clock)
        self.places.ask()
        self.doubts = Doubts(self.places, self.store, self.said.append)  # type: ignore[arg-type]

    def comes(self, node: str, moment: float) -> str:
        """The table of it."""
        about = record(node, moment)
        row = self.doubts.row(0, json.dumps(about).encode(), about)
        if row is not None:
            self.store.insert(row.table, [row.line])
        return row.table.name if row else "its own"

    def asked_again(self, host: str, start: int) -> None:
        queue(self.folder, host, start)
        self.clock.now += 60
        self.places.ask()
        self.doubts.judge()

    @property
    def judged(self) -> list[int]:
        return [row["Judged"] for row in self.store.rows[DOUBTED.name]]


def test_what_contradicts_is_kept_apart_with_the_reason_and_told(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.comes("here", site.begin + 500) == "its own" and site.comes("there", site.begin + 500) == DOUBTED.name
    site.doubts.judge()
    (row,) = site.store.rows[DOUBTED.name]
    assert (
        row["Judged"] == CONTRADICTS and json.loads(row["Whole"])["Node"] == "there" and "on here since" in row["Why"]
    )
    assert site.said == [
        f"warning: 1 records from Kafka contradict the queue, and are kept apart. 1: there tells of {JOB}, but "
        f"the queue has the job on here since {site.begin}"
    ]


def test_a_job_that_has_moved_waits_and_is_taken(tmp_path: Path) -> None:
    site = Site(tmp_path)
    moved = site.clock.now - 30
    assert site.comes("there", moved) == DOUBTED.name and site.judged == [WAITS]
    site.doubts.judge()
    assert site.judged == [WAITS] and site.store.rows[SAMPLES.name] == []
    site.asked_again("there", int(moved))
    assert site.judged == [WAITS, TAKEN] and site.said == []
    assert [row["Node"] for row in site.store.rows[SAMPLES.name]] == ["there"]


def test_a_job_that_has_not_moved_contradicts_in_the_end_though_the_store_was_gone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.comes("there", site.clock.now - 30) == DOUBTED.name
    site.store.is_gone = True
    site.asked_again("here", site.begin)
    assert site.judged == [WAITS]
    site.store.is_gone = False
    site.doubts.judge()
    assert site.judged == [WAITS, CONTRADICTS] and site.store.rows[SAMPLES.name] == []


def test_what_names_no_job_is_not_doubted(tmp_path: Path) -> None:
    site = Site(tmp_path)
    about = {"Type": "health", "Node": "there", "Time": time.time()}
    assert site.doubts.row(0, b"{}", about) is None
