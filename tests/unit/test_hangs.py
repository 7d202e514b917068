"""What makes no progress is noticed, looked at twice, and told of; what is harmless is not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent import hangs
from condor_joblens.agent.hangs import TEXT, Hangs
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.run_state import empty_state
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import empty_rows
from condor_joblens.owner_files.reports import MARK, MARK_WITHIN, Report, ReportResult
from condor_joblens.profiles import evidence as told
from condor_joblens.profiling import look
from condor_joblens.sample import progress
from condor_joblens.sample.progress import ALLOWED_BYTES, ALLOWED_CORES, WINDOW

RUN = np.array([0])


class Job:
    """One run, whose numbers are measured every ten seconds."""

    def __init__(self) -> None:
        self.rows, self.state, self.now = empty_rows(1), empty_state(1), 1000.0
        self.rows["cpu_seconds"] = 0.0
        self.state["idle_since"] = self.now

    def goes_on(
        self, seconds: float, cores: float = 0.0, bytes_a_second: float = 0.0, column: str = "tcp_sent_bytes"
    ) -> float:
        for _ in range(int(seconds / 10)):
            self.now += 10
            self.rows["cpu_seconds"] += 10 * cores
            self.rows[column] = np.maximum(self.rows[column], 0) + int(10 * bytes_a_second)
            progress.measure(self.rows, self.state, RUN, self.now, WINDOW)
        return float(self.rows["hang_seconds"][0])


def test_a_job_that_does_nothing_stands_still_from_its_begin() -> None:
    assert Job().goes_on(600) == pytest.approx(590)


@pytest.mark.parametrize("cores", [ALLOWED_CORES * 2, 0.9])
def test_a_job_that_computes_makes_progress(cores: float) -> None:
    assert Job().goes_on(600, cores) < WINDOW


@pytest.mark.parametrize(
    "column", ["tcp_received_bytes", "io_call_read_bytes", "io_storage_write_bytes", "udp_received_bytes"]
)
def test_so_does_one_that_moves_bytes(column: str) -> None:
    assert Job().goes_on(600, 0, ALLOWED_BYTES * 2, column) < WINDOW


def test_keep_alives_and_a_loop_that_looks_once_a_second_are_no_progress() -> None:
    assert Job().goes_on(600, ALLOWED_CORES / 2, ALLOWED_BYTES / 2) == pytest.approx(590)


def test_it_begins_anew_with_the_first_progress() -> None:
    job = Job()
    job.goes_on(600)
    assert job.goes_on(10, 0.5) == 0
    assert job.goes_on(120) == pytest.approx(120)


def test_bytes_that_reach_storage_count_once() -> None:
    job = Job()
    job.rows["io_call_read_bytes"] = job.rows["io_storage_read_bytes"] = 700
    assert progress.moved_bytes(job.rows, RUN)[0] == 700


def test_suspended_time_is_none() -> None:
    job = Job()
    job.goes_on(600)
    job.state["idle_since"] = job.now - 30
    assert job.goes_on(10) == pytest.approx(40)


def test_unknown_cpu_time_is_progress() -> None:
    job = Job()
    job.rows["cpu_seconds"] = np.nan
    assert job.goes_on(600) == 0


# -- looks -----------------------------------------------------------------------------------------------------------


class Site:
    """Runs of which each has stood still for an hour, and what looks at them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 1) -> None:
        self.now, self.events, self.kept, self.looks = 1000.0, [], [], []
        self.charge: Callable[[float], None] = lambda _: None
        monkeypatch.setattr(hangs.time, "monotonic", lambda: self.now)
        self.rows, self.state = empty_rows(count), empty_state(count)
        self.rows["hang_seconds"], self.rows["level_number"], self.rows["hang_suspected"] = 3600.0, 1, 0
        self.rows["run_number"] = np.arange(count) + 7
        self.state["kernel_slot"], self.state["used"] = np.arange(count), True
        self.refuses = False
        self.reports: list[tuple[Report, bytes]] = []
        self.headings: list[str] = []
        sandbox = SimpleNamespace(write_report=self.write_report)
        self.notes: dict[str, str] = {}
        node: Any = SimpleNamespace(
            config=SimpleNamespace(hang_minutes=1.0, max_cpu=0.05, reports=True),
            handles=[SimpleNamespace(sandbox=sandbox, notes=self.notes)] * count,
            put_note=lambda run, cause, words: self.notes.update({cause: words}),
            runs=SimpleNamespace(rows=self.rows, state=self.state, living=lambda: np.arange(count)),
            guard=lambda run, step, act, *arguments: act(*arguments),
            log=lambda line: None,
            describe=str,
        )
        emitter: Any = SimpleNamespace(hang=lambda run, cause: self.events.append((run, cause)))
        self.tagged: list[tuple[int, str]] = []
        self.hangs = Hangs(node, self, emitter, self, lambda *tag: self.tagged.append(tag))  # type: ignore[arg-type]

    def take(self, run: int, uid: object, look: Any, patience: float, heading: str, least: float, charge: Any) -> None:
        assert uid is None and least == 30, "half of the threshold"
        self.headings.append(heading)
        self.charge = charge
        if self.refuses:
            raise Refused("no")
        self.looks.append((run, look))

    def write_report(self, report: Report, content: bytes) -> ReportResult:
        self.reports.append((report, content))
        return ReportResult.TAKEN

    def keep(self, run: int, kind: str, pieces: Any, **more: object) -> None:
        self.kept.append((run, kind, b"".join(pieces)))

    def look(self, cause: str = "network", suspicious: bool = True, at: str = "a", used: float = 0.0) -> int:
        """The look that is taken says this, and has used so much CPU; whose it is."""
        run, look = self.looks.pop()
        summary = {"part": "summary", "cause": cause, "suspicious": suspicious, "fingerprint": at * 32}
        for part in ({"part": "threads", "threads": [], "left_out": 0}, summary, {"part": "end"}):
            look.send(json.dumps(part, separators=(",", ":")).encode() + b"\n")
            if self.headings[-1]:
                look.send(TEXT + self.headings[-1].encode() + f"\n{part['part']}".encode())
        look.end({})
        self.charge(used)
        return int(run)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.hangs.tick()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def test_two_equal_looks_make_a_suspicion(site: Site) -> None:
    site.after(0)
    site.look()
    assert site.rows["hang_suspected"][0] == 0
    site.after(1)
    assert not site.looks
    site.after(hangs.APART)
    site.look()
    assert (site.rows["hang_suspected"][0], site.rows["hang_cause"][0]) == (1, b"network")
    assert site.events == [(0, "network")]
    (run, kind, content), *others = site.kept
    assert (run, kind, others) == (0, "hang", [])
    looks = told.parse_kept(content)
    assert len(looks) == 2
    assert all(look.is_whole for _, look in looks)


def test_one_that_computes_in_the_same_places_is_told_of_without_a_look(site: Site) -> None:
    site.rows["level_number"] = int(Level.PROFILE)
    site.state["quiet_since"] = site.now
    site.hangs.busy.heard(7, time.time(), time.time() + 100)
    site.after(100)
    assert (site.rows["hang_suspected"][0], site.rows["hang_cause"][0]) == (1, b"busy")
    assert (site.events, site.looks) == ([(0, "busy")], [])
    site.rows["hang_seconds"], site.rows["hang_suspected"] = 0, 0  # the collector
    site.after(1)
    assert site.events == [(0, "busy"), (0, "")]


def test_two_different_looks_make_none(site: Site) -> None:
    for place in "abcdef":
        site.after(hangs.APART + 1)
        site.look(at=place)
    assert (site.rows["hang_suspected"][0], site.events, site.kept) == (0, [], [])


def test_what_is_harmless_is_looked_at_more_and_more_rarely(site: Site) -> None:
    looks = 0
    for _ in range(1000):
        site.after(1)
        while site.looks:
            site.look("sleep", suspicious=False)
            looks += 1
    assert looks < 10
    assert (site.rows["hang_suspected"][0], site.events, site.kept) == (0, [], [])


def test_progress_ends_the_suspicion(site: Site) -> None:
    for _ in range(2):
        site.after(hangs.APART + 1)
        site.look()
    site.rows["hang_seconds"], site.rows["hang_suspected"] = 0, 0  # the collector
    site.after(1)
    assert site.events == [(0, "network"), (0, "")]


def test_so_does_a_later_look_that_finds_it_elsewhere(site: Site) -> None:
    for _ in range(2):
        site.after(hangs.APART + 1)
        site.look()
    site.after(60)
    site.look("sleep", suspicious=False)
    assert (site.rows["hang_suspected"][0], site.rows["hang_cause"][0]) == (0, b"")
    assert site.events == [(0, "network"), (0, "")]


def test_it_is_told_and_kept_once(site: Site) -> None:
    for _ in range(20):
        site.after(60)
        while site.looks:
            site.look()
    assert site.events == [(0, "network")]
    assert len(site.kept) == 1
    assert site.tagged == [(0, "hang")]


def test_a_job_that_somebody_sits_at_or_that_is_over_is_left_alone(site: Site) -> None:
    site.state["is_interactive"] = True
    site.after(10)
    site.state["is_interactive"], site.rows["final"] = False, True
    site.after(10)
    assert not site.looks


def test_who_can_not_look_asks_rarely(site: Site) -> None:
    site.refuses = True
    for _ in range(100):
        site.after(1)
    assert site.hangs._still[0].due > site.now


def test_of_many_the_first_is_told_of_before_the_others_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, 200)
    began = site.now
    while not site.events:
        site.after(1)
        while site.looks:
            site.now += 0.05  # what a look takes
            site.look(used=0.05)
    assert site.now - began <= 10
    for _ in range(3000):
        site.after(1)
        while site.looks:
            site.look()
    assert (site.rows["hang_suspected"] == 1).all()


def test_a_first_look_that_takes_long_does_not_put_off_the_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, 200)
    began, order, times = site.now, [], []
    while len(order) < 20:
        site.after(1)
        while site.looks:
            took = 0.1 if order else 0.4  # the first one loads what looks need
            site.now += took
            order.append(site.look(used=took))
            times += [site.now] * (len(site.events) - len(times))
    assert order[0] == order[1], "the first is told of before another one is looked at"
    assert times[0] - began <= 10


def test_a_look_that_waits_for_what_does_not_answer_needs_no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, 2)
    for _ in range(2):
        site.after(1)
        site.now += hangs.PATIENCE
        site.look(used=0.02)
    assert {run for run, one in site.hangs._still.items() if one.first is not None} == {0, 1}


def test_looks_take_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, 200)
    spent, began = 0.0, site.now
    while site.now - began < 600:
        site.after(1)
        while site.looks:
            site.now, spent = site.now + 0.1, spent + 0.1
            site.look(used=0.1)
    assert spent / (site.now - began) <= 0.06


def test_the_job_that_asks_gets_what_was_seen_as_a_text_once(site: Site) -> None:
    site.state["wants_report"] = site.state["may_report"] = True
    site.rows["job_id"] = b"12.0"
    for _ in range(6):
        site.after(61)
        site.look()
    ((report, content),) = site.reports
    assert report is Report.HANG
    first, second, *rest = content.decode().splitlines()
    assert first.startswith("written by JobLens for +JobLensReport: job 12.0 on ") and first.endswith("seems to hang,")
    assert second.startswith("as it was at ") and "and the same " in second
    assert rest == ["end"], "the last text"
    assert MARK in content[:MARK_WITHIN]
    assert [bool(heading) for heading in site.headings] == [False, True, False, False, False, False]
    assert site.notes["hang.txt"] == "no hang.txt for JobLensReport: the job has a file of that name"
    assert TEXT not in site.kept[0][2]


@pytest.mark.parametrize("column", ["wants_report", "may_report"])
def test_others_get_none(site: Site, column: str) -> None:
    site.state["wants_report"] = site.state["may_report"] = True
    site.state[column] = False
    for _ in range(2):
        site.after(hangs.APART + 1)
        site.look()
    assert len(site.kept) == 1 and (site.reports, set(site.headings)) == ([], {""})


def test_the_words_of_a_look_and_of_joblensd_are_the_same() -> None:
    assert look.TEXT == TEXT


def test_a_summary_of_another_form_is_none(site: Site) -> None:
    site.after(0)
    _, look = site.looks.pop()
    look.send(b'{"part":"summary","cause":"<b>","suspicious":true,"fingerprint":"%s"}\n' % (b"a" * 32))
    look.end({})
    site.after(hangs.APART + 1)
    assert not site.looks
