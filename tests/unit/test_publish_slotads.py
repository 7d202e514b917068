"""The startd's cron job, against a model of what a startd does with its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import classad2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.sizing import seconds_between_slot_ads
from condor_joblens.model.metrics import empty_rows
from condor_joblens.publish import slotads
from condor_joblens.publish.slotads import SlotAds
from condor_joblens.shm.reader import SILENCE
from condor_joblens.shm.writer import Writer

EXECUTE = "/var/lib/condor/execute"


class Startd:
    """Keeps each tag's ad, and merges all of them into each slot's ad, from which nothing ever goes away."""

    def __init__(self, *slots: str) -> None:
        self.slots: dict[str, dict[str, Any]] = {slot: {} for slot in slots}
        self.tags: dict[str, Any] = {}
        self.updates: list[str] = []
        self._lines: list[str] = []

    def read(self, output: str) -> list[str]:
        """Returns the tags of the blocks."""
        tags = []
        for line in output.splitlines():
            if not line.startswith("-"):
                self._lines.append(line)
                continue
            arguments = line[1:].split()
            tag = arguments.pop(0) if ":" not in arguments[0] else ""
            self.tags[tag] = classad2.parseOne("\n".join(self._lines))
            self._lines.clear()
            tags.append(tag)
            if arguments == ["update:true"]:
                self.updates.append(tag)
        for ad in self.tags.values():
            for name, slot in self.slots.items():
                if f"{name}@host".startswith(ad.get("SlotName", "")):
                    slot.update({key: ad.eval(key) for key in ad if key != "SlotName"})
        return tags

    def run(self, slot: str) -> str | None:
        usage = self.slots[slot].get("JobLensUsage", classad2.Value.Undefined)
        return None if usage is classad2.Value.Undefined else usage["Run"]


def jobs(slots: dict[str, str], started: float = 0.0, execute: str = EXECUTE) -> np.ndarray:
    """Rows of running jobs, from slot -> run."""
    rows = empty_rows(len(slots))
    rows["slot"], rows["run"] = [s.encode() for s in slots], [r.encode() for r in slots.values()]
    rows["execute"], rows["start_time"], rows["update_time"] = execute.encode(), started, started
    return rows


def test_a_job_is_counted_whose_slot_had_another_one_before() -> None:
    """The row of that one can come later in the table, and stay as long as HTCondor leaves its cgroup behind."""
    rows = np.concatenate([jobs({"slot1_1": "b#1", "slot1_2": "c#1"}), jobs({"slot1_1": "a#1"})])
    rows["final"][2] = True
    assert sorted(SlotAds(EXECUTE, 60).rows_of_mine(rows)["run"].tolist()) == [b"b#1", b"c#1"]


def test_a_period_that_becomes_shorter_counts_at_once() -> None:
    ads, rows = SlotAds(EXECUTE, 60), jobs({"slot1_1": "a#1"}, 1000)
    assert ads.round(rows, 1020.0)
    ads.period = 2
    assert not ads.round(rows, 1021.0) and ads.round(rows, 1022.0)


def test_a_jobs_first_ad_is_soon_and_sent_on() -> None:
    startd, ads = Startd("slot1_1"), SlotAds(EXECUTE, 60)
    shown_after = next(age for age in range(20) if startd.read(ads.round(jobs({"slot1_1": "a#1"}, 1000), 1000.0 + age)))
    assert shown_after <= 10 and startd.run("slot1_1") == "a#1" and startd.updates == ["slot1_1"]


def test_later_ads_come_with_the_period_and_ask_for_no_update() -> None:
    startd, ads = Startd("slot1_1"), SlotAds(EXECUTE, 60)
    printed = [second for second in range(1, 600) if startd.read(ads.round(jobs({"slot1_1": "a#1"}), float(second)))]
    assert len(printed) == 10
    assert startd.updates == ["slot1_1"]


def test_an_ended_job_is_withdrawn_at_once_and_the_collector_told_after_its_starter_has_looked() -> None:
    startd, ads = Startd("slot1_1"), SlotAds(EXECUTE, 60)
    rows = jobs({"slot1_1": "a#1"})
    startd.read(ads.round(rows, 100.0))
    startd.updates.clear()
    rows["final"] = True
    assert startd.read(ads.round(rows, 101.0)) == ["slot1_1"]
    assert startd.run("slot1_1") is None and startd.updates == []
    assert ads.round(rows, 102.0) == ""
    assert startd.read(ads.round(jobs({}), 103.0)) == startd.updates == ["slot1_1"]
    assert ads.round(jobs({}), 104.0) == ads.round(jobs({}), 105.0) == ads.withdraw() == ""


def test_the_next_job_of_a_slot_tells_the_collector_of_the_end_of_the_last() -> None:
    startd, ads = Startd("slot1_1"), SlotAds(EXECUTE, 60)
    startd.read(ads.round(jobs({"slot1_1": "a#1"}), 100.0))
    startd.read(ads.round(jobs({"slot1_1": "b#1"}), 101.0))
    assert startd.run("slot1_1") == "b#1"
    assert ads.round(jobs({"slot1_1": "b#1"}), 104.0) == ""


def test_the_slots_ad_has_the_nodes_key_as_the_jobs_has() -> None:
    """The startd copies it over the job's, and the access point commands by the key in that."""
    startd, ads = Startd("slot1_1"), SlotAds(EXECUTE, 60)
    startd.read(ads.round(jobs({"slot1_1": "a#1"}), 100.0, "ed25519:AAAA"))
    assert startd.slots["slot1_1"]["JobLensUsage"]["NodeKey"] == "ed25519:AAAA"
    startd.read(ads.round(jobs({"slot1_1": "a#1"}), 200.0))
    assert "NodeKey" not in startd.slots["slot1_1"]["JobLensUsage"]


def test_another_startds_slots_are_left_alone() -> None:
    ads = SlotAds("/scratch/second/", 60)
    assert ads.round(jobs({"slot1_1": "a#1"}), 100.0) == ""
    assert "a#1" in ads.round(jobs({"slot1_1": "a#1"}, execute="/scratch/second"), 101.0)


def test_a_slot_name_cannot_speak_to_the_startd() -> None:
    ads = SlotAds(EXECUTE, 60)
    names = ['x"\nStart = false\n- y update:true', "slot 1", ""]
    assert ads.round(jobs({name: "a#1" for name in names}), 100.0) == ""


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 64, 200, 1000])
def test_the_tempo_leaves_the_startd_its_time(slots: int) -> None:
    startd, ads = Startd(), SlotAds(EXECUTE, 60)
    rows = jobs({f"slot1_{number}": f"{number}#1" for number in range(slots)})
    tags = [tag for second in range(10, 610) for tag in startd.read(ads.round(rows, float(second)))]
    assert len(tags) <= min(10 * slots + slots, 600 / seconds_between_slot_ads(slots) + slotads.BURST + 1)
    assert len(set(tags)) == min(slots, len(tags)), "each slot has its first turn before any has its second"


Event = st.tuples(st.sampled_from(["slot1_1", "slot1_2", "slot1_10"]), st.booleans(), st.integers(0, 12))


@given(st.lists(Event, max_size=40))
def test_no_slot_ever_shows_another_jobs_numbers(events: list[tuple[str, bool, int]]) -> None:
    startd, ads = Startd("slot1_1", "slot1_2", "slot1_10"), SlotAds(EXECUTE, 5)
    running: dict[str, tuple[str, float]] = {}
    now = 1000.0
    for number, (slot, starts, seconds) in enumerate(events):
        running.pop(slot, None)
        if starts:
            running[slot] = (f"{number}#1", now)
        now += seconds
        rows = jobs({slot: run for slot, (run, _) in running.items()})
        rows["start_time"] = [int(start) for _, start in running.values()]
        startd.read(ads.round(rows, now))
        for name in startd.slots:
            assert startd.run(name) in (None, running.get(name, ("", 0))[0])


def test_what_a_killed_predecessor_left_is_withdrawn() -> None:
    startd = Startd("slot1_1", "slot1_2", "slot1_3")
    first = SlotAds(EXECUTE, 60)
    rows = jobs({"slot1_1": "a#1", "slot1_2": "b#1"}, 900)
    startd.read(first.round(rows, 1000.0))
    ended = jobs({"slot1_1": "a#1", "slot1_3": "old#1"}, 990)
    ended["update_time"] = [1001, 100]
    assert startd.read(SlotAds(EXECUTE, 60).forget(ended, 1005.0)) == ["slot1_1"]
    assert (startd.run("slot1_1"), startd.run("slot1_2")) == (None, "b#1")


# The process: signals, pipes, and a joblensd that comes and goes.


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A condor_config_val that says where the shared memory is."""
    program = tmp_path / "bin" / "condor_config_val"
    program.parent.mkdir()
    (tmp_path / "macros").write_text(f"JOBLENS_RUN_DIR = {tmp_path}\n")
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/macros\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    yield tmp_path


class Process:
    def __init__(self, **kwargs: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "condor_joblens.publish.slotads", EXECUTE],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )

    def until(self, expected: str) -> str:
        """Standard output up to a line with `expected`; the test's own time limit ends it otherwise."""
        assert self.process.stdout
        seen = ""
        while expected not in seen:
            line = self.process.stdout.readline()
            assert line, f"ended without {expected}: {seen}"
            seen += line
        return seen

    def end(self, number: int = signal.SIGTERM) -> str:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        return errors


def publish(writer: Writer, slots: dict[str, str]) -> None:
    now = time.time()
    writer.publish(jobs(slots, int(now) - 60), now)


def begin(run_dir: Path, slots: dict[str, str]) -> None:
    """A joblensd that has just started. Rows that nobody has published yet would be taken for those of a silent one."""
    publish(Writer(f"{run_dir}/made", 8, os.getgid()), slots)
    os.rename(run_dir / "made", run_dir / "rows")


def test_lives_through_joblensds_absence_and_return(run_dir: Path) -> None:
    process = Process()
    assert "does not run" in process.until("- update:true")
    begin(run_dir, {"slot1_1": "a#1"})
    assert 'Run="a#1"' in process.until("- slot1_1 update:true")
    begin(run_dir, {"slot1_2": "b#1"})
    shown = process.until("- slot1_2 update:true")
    assert "JobLensUsage = undefined\n- slot1_1" in shown and 'Run="b#1"' in shown
    errors = process.end().splitlines()
    assert len(errors) == 2, "one line a change of state"


def test_a_joblensd_that_is_killed_and_not_reaped_is_gone(run_dir: Path) -> None:
    """Else another job would have the numbers of the one before in its slot, for as long as condor_master is busy."""
    published, told = os.pipe()
    writer = os.fork()
    if writer == 0:
        now = time.time()
        # by the age of its rows alone nobody would ever know
        Writer(f"{run_dir}/rows", 8, os.getgid()).publish(jobs({"slot1_1": "a#1"}, int(now) - 60), now + 3600)
        os.write(told, b"x")
        signal.pause()
    assert os.read(published, 1)
    process = Process()
    process.until("- slot1_1 update:true")
    os.kill(writer, signal.SIGKILL)
    assert "JobLensUsage = undefined\n- slot1_1" in process.until("- slot1_1 ")
    assert "writes no new numbers" in process.end()
    os.waitpid(writer, 0)


def test_reconfigures_and_names_a_wrong_knob_in_the_slots(run_dir: Path) -> None:
    writer = Writer(f"{run_dir}/rows", 8, os.getgid())
    publish(writer, {"slot1_1": "a#1"})
    process = Process()
    process.until("- slot1_1 update:true")
    with (run_dir / "macros").open("a") as macros:
        macros.write("JOBLENS_PERIOD = banana\n")
    process.process.send_signal(signal.SIGHUP)
    assert "JOBLENS_PERIOD = banana is not a number" in process.until("- update:true")
    process.end()


def test_ends_quietly_when_the_startd_is_gone(run_dir: Path) -> None:
    process = Process()
    process.until("- update:true")
    assert process.process.stdout
    process.process.stdout.close()
    assert process.process.wait(timeout=20) == 0
    assert process.process.stderr
    assert "Traceback" not in process.process.stderr.read()


def test_a_dead_joblensds_numbers_are_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotads, "read_macros", lambda _: {"JOBLENS_RUN_DIR": str(tmp_path)})
    startd, publisher = Startd("slot1_1"), slotads.Publisher(EXECUTE)
    Writer(f"{tmp_path}/rows", 8, os.getgid()).publish(jobs({"slot1_1": "a#1"}), 1000.0)
    startd.read(publisher.round(1001.0))
    assert startd.run("slot1_1") == "a#1"
    startd.read(publisher.round(1001.0 + SILENCE))
    assert startd.run("slot1_1") is None
    assert "no new numbers" in startd.slots["slot1_1"]["JobLensNote"]


def test_a_killed_joblensds_numbers_are_withdrawn_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot's next job would have them, for as long as nobody is there to tell that the last one has ended."""
    monkeypatch.setattr(slotads, "read_macros", lambda _: {"JOBLENS_RUN_DIR": str(tmp_path)})
    startd, publisher = Startd("slot1_1"), slotads.Publisher(EXECUTE)
    Writer(f"{tmp_path}/rows", 8, os.getgid()).publish(jobs({"slot1_1": "a#1"}), 1000.0)
    startd.read(publisher.round(1001.0))
    assert startd.run("slot1_1") == "a#1"
    writer = os.fork()
    if not writer:
        Writer(f"{tmp_path}/rows", 8, os.getgid()).publish(jobs({"slot1_1": "a#1"}), 1001.0)
        os._exit(0)
    os.waitpid(writer, 0)
    startd.read(publisher.round(1002.0))
    assert startd.run("slot1_1") is None


def test_a_stopped_joblensds_numbers_are_withdrawn_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slotads, "read_macros", lambda _: {"JOBLENS_RUN_DIR": str(tmp_path)})
    startd, publisher = Startd("slot1_1"), slotads.Publisher(EXECUTE)
    Writer(f"{tmp_path}/rows", 8, os.getgid()).publish(jobs({"slot1_1": "a#1"}), 1000.0)
    startd.read(publisher.round(1001.0))
    os.unlink(tmp_path / "rows")
    startd.read(publisher.round(1002.0))
    assert startd.run("slot1_1") is None


def test_a_joblensd_that_is_back_has_the_node_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the failure that a look found meanwhile would stand for an hour."""
    monkeypatch.setattr(slotads, "read_macros", lambda _: {"JOBLENS_RUN_DIR": str(tmp_path)})
    startd, publisher, asked = Startd("slot1"), slotads.Publisher(EXECUTE), []
    monkeypatch.setattr(publisher.doctor, "soon", lambda: asked.append(len(asked)))
    monkeypatch.setattr(publisher.doctor, "poll", lambda _: None)
    startd.read(publisher.round(1000.0))
    assert (startd.slots["slot1"]["JobLensNode"]["Doctor"], asked) == ("FAIL", [])
    Writer(f"{tmp_path}/rows", 8, os.getgid()).publish(jobs({}), 1001.0)
    startd.read(publisher.round(1001.0))
    assert "Doctor" not in startd.slots["slot1"]["JobLensNode"] and asked == [0]
    startd.read(publisher.round(1001.5))
    assert asked == [0]
