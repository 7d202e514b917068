"""The event log is followed over rotations, truncations and restarts by real files, and what it says is told once more
at most, under the same Ids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.errors import JobLensError
from condor_joblens.eventlog import cursor as cursors
from condor_joblens.eventlog.job_events import KINDS, MOST_EVENT, framed, record
from condor_joblens.eventlog.reader import Reader
from condor_joblens.sinks import DELIVERED, DeliveryResult, Record, not_now

NODE = "ap1.example.org"


def event(trigger: int, job: str = "7.0", time: str = "2026-11-27T02:05:28.752Z", **more: Any) -> dict[str, Any]:
    """As HTCondor 25 writes a JobAdInformationEvent."""
    cluster, _, process = job.partition(".")
    return {
        "Cmd": "/home/alice/fit.py", "Proc": int(process), "User": "alice@example.org", "Owner": "alice",
        "MyType": "JobAdInformationEvent", "Cluster": int(cluster), "Subproc": 0, "EventTime": time,
        "GlobalJobId": f"{NODE}#{job}#1795745128", "EventTypeNumber": 28, "TriggerEventTypeNumber": trigger, **more,
    }  # fmt: skip


HEADER = {"Info": "Global JobLog: ctime=1795745147 id= sequence=0 size=4266", "MyType": "GenericEvent",
          "EventTime": "2026-11-27T02:05:47.179Z", "EventTypeNumber": 8}  # fmt: skip
SUBMIT = event(0)
HOLD = event(12, HoldReason="via condor_hold (by user alice)", HoldReasonCode=1, HoldReasonSubCode=0)
PLAIN = {"Proc": 0, "MyType": "SubmitEvent", "Cluster": 7, "EventTime": "2026-11-27T02:05:28.752Z",
         "EventTypeNumber": 0}  # fmt: skip


def text(*events: dict[str, Any]) -> bytes:
    """As the log has it: braces alone in their lines, all else indented."""
    return b"".join(json.dumps(one, indent=2).encode() + b"\n" for one in events)


def made(one: dict[str, Any]) -> dict[str, Any] | None:
    return record(one, NODE, lambda moment: int(moment * 1e6))


class Hub:
    """What it has, by Id; `refuses` is how often it is not there."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.order: list[str] = []
        self.refuses = 0

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        if self.refuses:
            self.refuses -= 1
            return not_now(batch, "the hub is away")
        for one in batch:
            self.rows[one.id] = one.fields()
            self.order.append(one.id)
        return DELIVERED

    def jobs(self) -> list[str]:
        rows = sorted(self.rows.values(), key=lambda row: row["Sequence"])
        return [f"{row['JobId']} {row['Kind']}" for row in rows]


class Followed:
    """A log in a folder, and what reads it."""

    def __init__(self, folder: Path) -> None:
        self.log, self.kept, self.hub = folder / "EventLog", folder / "cursor", Hub()
        self.said: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.reader = Reader(str(self.log), str(self.kept), NODE, self.hub, self.said.append)

    def write(self, *events: dict[str, Any]) -> None:
        with open(self.log, "ab") as file:
            file.write(text(*events))

    def rotate(self, most: int = 2) -> None:
        """As HTCondor does: by names, and the header is written anew first."""
        for number in range(most, 0, -1):
            older = self.log if number == 1 else self.log.with_name(f"EventLog.{number - 1}")
            if older.exists():
                os.replace(older, self.log.with_name(f"EventLog.{number}"))
        self.write(HEADER)

    def read(self) -> None:
        """Until there is nothing new."""
        for _ in range(50):
            if self.reader.step():
                return
        raise AssertionError("it reads for ever")


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    yield Followed(tmp_path)


def test_a_job_that_is_submitted_on_hold_is_held() -> None:
    """As HTCondor 25.14 writes it: no event of a hold follows."""
    why = "submitted on hold at user's request"
    found = made(event(0, JobStatus=5, HoldReason=why, HoldReasonCode=15))
    assert found is not None
    assert (found["Kind"], found["State"], found["Reason"], found["Code"]) == ("submit", "held", why, 15)
    for status in (1, None, "5", True):
        idle = made(event(0, JobStatus=status, HoldReason=why, HoldReasonCode=15))
        assert idle is not None and (idle["State"], idle["Reason"], "Code" in idle) == ("idle", "", False)


def test_steps_of_a_life() -> None:
    names = [(made(event(number)) or {}).get("Kind") for number in sorted(KINDS)]
    assert names == [KINDS[number][0] for number in sorted(KINDS)]
    transfers = [made(event(40, Type=number)) for number in range(1, 7)]
    assert [one and one["State"] for one in transfers] == [*["transferring"] * 5, "running"]
    hold = made(HOLD)
    assert hold and (hold["State"], hold["Code"], hold["Reason"]) == ("held", 1, "via condor_hold (by user alice)")
    end = made(event(5, TerminatedNormally=True, ReturnValue=3))
    assert end and (end["ExitCode"], end["Signal"]) == (3, None)
    assert (hold["JobId"], hold["Owner"], hold["User"], hold["Executable"]) == (
        "7.0", "alice", "alice@example.org", "fit.py",
    )  # fmt: skip
    assert hold["Time"] == pytest.approx(1795745128.752)


@pytest.mark.parametrize("one", [PLAIN, HEADER, event(6), event(40), event(40, Type="2"), {"EventTypeNumber": 28}])
def test_what_is_no_step_is_left_out(one: dict[str, Any]) -> None:
    assert made(one) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"GlobalJobId": f"{NODE}#8.0#1795745128"},  # condor_qedit can write another job's
        {"GlobalJobId": None},
        {"GlobalJobId": "ap1#7.0"},
        {"Owner": ""},
        {"Owner": ["alice"]},
        {"EventTime": "yesterday"},
        {"EventTime": "9999-99-99T00:00:00"},
    ],
)
def test_a_step_that_is_nobody_s_is_not_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        made({**SUBMIT, **wrong})


@pytest.mark.parametrize(
    "time, epoch",
    [("2026-11-27T02:05:28Z", 1795745128.0), ("2026-11-27T03:05:28.5+01:00", 1795745128.5)],
)
def test_times_with_and_without_fractions(time: str, epoch: float) -> None:
    found = made(event(0, time=time))
    assert found and found["Time"] == epoch


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.data())
def test_events_come_whole_wherever_a_piece_ends(triggers: list[int], data: st.DataObject) -> None:
    events = [event(number, job=f"7.{place}", Reason='{\n}\n"') for place, number in enumerate(triggers)]
    whole = text(*events)
    cut = data.draw(st.integers(0, len(whole)))
    first = framed(whole[:cut], is_end=False)
    second = framed(whole[first.taken :], is_end=True)
    assert [*first.events, *second.events] == events
    assert first.unread == second.unread == 0


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_make_it_fail(data: bytes, is_end: bool) -> None:
    found = framed(data, is_end)
    assert 0 <= found.taken <= len(data)
    for one in found.events:
        made(one)


_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from([*HOLD, "Type", "Reason", "ReturnValue", "SlotName"]), _VALUES))
def test_no_values_make_it_fail(other: dict[str, Any]) -> None:
    try:
        found = made({**HOLD, **other})
    except ValueError:
        return
    json.dumps(found).encode()


def test_what_a_killed_writer_left_and_what_is_too_long_cost_no_other_event() -> None:
    half = text(SUBMIT)[:100]
    found = framed(half + b"\n" + text(HOLD), is_end=False)
    assert [one["TriggerEventTypeNumber"] for one in found.events] == [12]
    huge = framed(text(event(13, Reason="x" * MOST_EVENT), HOLD), is_end=False)
    assert ([one["TriggerEventTypeNumber"] for one in huge.events], huge.unread) == ([12], 1)


def test_it_is_told_as_it_comes_and_not_again_after_a_restart(followed: Followed) -> None:
    followed.read()  # there is no log yet
    followed.write(HEADER, PLAIN, SUBMIT)
    followed.read()
    followed.write(HOLD)
    followed.restart()
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit", "7.0 hold"]
    assert len(followed.hub.order) == 2 and followed.said == []


def test_rotation_loses_nothing_also_while_nobody_reads(followed: Followed) -> None:
    followed.write(HEADER, SUBMIT)
    followed.read()
    followed.write(HOLD)
    followed.rotate()
    followed.write(event(13))
    followed.rotate()
    followed.write(event(1))
    followed.restart()
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit", "7.0 hold", "7.0 release", "7.0 execute"]
    assert len(followed.hub.order) == 4 and followed.said == []


def test_what_was_rotated_away_unread_is_said_and_the_rest_is_told(followed: Followed) -> None:
    followed.write(HEADER, SUBMIT)
    followed.read()
    for number in range(3):
        followed.rotate()
        followed.write(event(1, job=f"8.{number}"))
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit", "8.0 execute", "8.1 execute", "8.2 execute"]
    assert len(followed.said) == 1 and "events may be missing" in followed.said[0]  # the inode may be another's now


@pytest.mark.parametrize("anew, why", [((HOLD,), "truncated"), ((SUBMIT,) * 9, "written anew")])
def test_a_log_that_is_truncated_is_read_from_its_beginning(
    anew: tuple[dict[str, Any], ...], why: str, followed: Followed
) -> None:
    followed.write(HEADER, SUBMIT, event(1))
    followed.read()
    with open(followed.log, "r+b") as file:
        file.truncate(0)
    followed.write(*[{**one, "Reason": str(place)} for place, one in enumerate(anew)])
    followed.read()
    assert len(followed.hub.rows) == 2 + len(anew)
    assert len(followed.said) == 1 and why in followed.said[0]


def test_killed_between_sending_and_the_cursor_it_sends_the_same_again(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.write(HEADER, SUBMIT, HOLD)

    def killed(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(cursors, "keep", killed)
        with pytest.raises(SystemExit):
            followed.reader.step()
    before = dict(followed.hub.rows)
    followed.restart()
    followed.read()
    assert followed.hub.rows == before and len(followed.hub.order) == 4


def test_while_the_hub_is_away_the_log_waits(followed: Followed) -> None:
    followed.hub.refuses = 3
    followed.write(HEADER, SUBMIT)
    pauses = [followed.reader.step() for _ in range(3)]
    assert pauses == sorted(pauses) and min(pauses) > 0
    assert not followed.kept.exists()
    followed.write(HOLD)
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit", "7.0 hold"]
    assert followed.said == ["the hub is away"]


def test_a_clock_that_goes_back_changes_no_order(followed: Followed) -> None:
    followed.write(HEADER, event(0), event(12, time="2026-11-27T01:00:00Z"))
    followed.read()
    followed.write(event(13, time="2026-11-27T00:30:00Z"))
    followed.restart()
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit", "7.0 hold", "7.0 release"]


def test_an_event_that_is_written_slowly_is_waited_for(followed: Followed) -> None:
    whole = text(SUBMIT)
    followed.log.write_bytes(whole[:50])
    followed.read()
    with open(followed.log, "ab") as file:
        file.write(whole[50:])
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit"] and followed.said == []


def test_a_log_that_is_a_link_to_a_device_is_not_read(followed: Followed) -> None:
    followed.log.symlink_to("/dev/zero")
    assert followed.reader.step() > 0 and not followed.hub.rows


def test_a_cursor_that_makes_no_sense_begins_anew(followed: Followed) -> None:
    followed.kept.write_text('{"inode": "x"}')
    followed.restart()
    followed.write(SUBMIT)
    followed.read()
    assert followed.hub.jobs() == ["7.0 submit"]


def test_a_cursor_that_can_t_be_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobLensError, match="can't be written"):
        cursors.keep(str(tmp_path / "missing/cursor"), cursors.Cursor())
