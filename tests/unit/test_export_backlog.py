"""What waits on the disk: how old it is said to be, and what a disk's faults do to it."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_export_channel import Bench, events, sink_of, until
from test_export_process import Machine
from test_export_spool import PLENTY, drain, ids, records

from condor_joblens.export import spool as spools
from condor_joblens.export.spool import Spool
from condor_joblens.sinks import Record, not_now


def test_the_lag_is_the_age_of_what_waits_longest_whoever_spooled_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    uptime, wall = spools._uptime, time.time
    for behind in (500.0, 400.0):
        channel = bench.channel()
        sink_of(channel).behave = lambda batch: not_now(batch, "gone")
        monkeypatch.setattr(spools, "_uptime", lambda behind=behind: uptime() - behind)
        monkeypatch.setattr(time, "time", lambda behind=behind: wall() + 3600 * behind)  # which says nothing
        channel.start()
        bench.offer(channel, 30)
        until(lambda channel=channel: channel.health()["SpooledRecords"] == bench.offered)
        channel.stop(0)
    monkeypatch.setattr(spools, "_uptime", uptime)
    channel = bench.channel()
    sink_of(channel).behave = lambda batch: not_now(batch, "gone")
    channel.start()
    until(lambda: channel.health()["LagSeconds"] >= 500)
    sink_of(channel).behave = sink_of(channel).take
    until(lambda: channel.health()["SpooledRecords"] == 0)
    until(lambda: channel.health()["LagSeconds"] == 0)
    channel.stop(0)


@pytest.mark.parametrize("fault", [errno.EIO, errno.EROFS, errno.EMFILE])
def test_a_fault_that_more_room_would_not_mend_drops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    spool = Spool(str(tmp_path), PLENTY)
    for first in range(0, 30, 10):
        spool.append(records(first, 10))
        spool.close()

    def fail(*arguments: object) -> int:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as faulty:
        faulty.setattr(os, "write", fail)
        with pytest.raises(OSError, match=os.strerror(fault)):
            spool.append(records(30, 10))
    spool.append(records(30, 10))
    assert drain(spool) == ids(0, 40) and not spool.dropped


def test_a_disk_that_comes_late_gets_its_spool(tmp_path: Path) -> None:
    in_the_way = tmp_path / "fake"
    in_the_way.write_text("")
    bench = Bench(tmp_path)
    channel = bench.channel()
    sink_of(channel).behave = lambda batch: not_now(batch, "gone")
    channel.start()
    bench.offer(channel, 60)
    channel.missed_events(77, 61, 71)
    bench.offered = 70
    bench.offer(channel, 60)
    channel.seek_disk()
    assert channel.lacks_disk and channel.health()["SpooledRecords"] == 0
    in_the_way.unlink()
    channel.seek_disk()
    assert not channel.lacks_disk
    until(lambda: channel.health()["SpooledRecords"] >= 120)
    channel.stop(0)
    again = bench.channel()
    again.events(*late_events(41, 90))
    again.start()
    until(lambda: again.cursor.event == (77, 130) and again.health()["SpooledRecords"] == 0)
    assert sink_of(again).ids() == [str(number) for number in (*range(1, 61), *range(71, 131))]
    told = [record.fields() for record in sink_of(again).got if "Loss" in str(record.json)]
    assert sum(loss["Count"] for loss in told) == 10
    again.stop(0)


def late_events(first: int, count: int) -> tuple[list[Record], range, tuple[int, int]]:
    """Events as a process finds them in the ring that begins anew."""
    return events(first, count), range(first, first + count), (77, first + count - 1)


def test_what_a_spool_has_from_before_is_not_forgotten_for_a_disk_that_comes_late(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.channel()
    sink_of(before).behave = lambda batch: not_now(batch, "gone")
    before.start()
    bench.offer(before, 30)
    until(lambda: before.health()["SpooledRecords"] == 30)
    before.stop(0)
    (tmp_path / "fake").rename(tmp_path / "elsewhere")
    (tmp_path / "fake").write_text("")
    channel = bench.channel()
    channel.start()
    bench.offer(channel, 30)
    until(lambda: channel.health()["Delivered"] == 30)
    (tmp_path / "fake").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "fake")
    channel.seek_disk()
    until(lambda: channel.health()["Delivered"] == 60)
    assert sorted(sink_of(channel).ids(), key=int) == bench.expected() and channel.cursor.event == (77, 60)
    channel.stop(0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Machine]:
    node = Machine(tmp_path)
    yield node
    if node.process:
        node.signal(signal.SIGKILL)


@pytest.mark.slow
def test_joblens_export_looks_for_its_disk_by_itself(node: Machine) -> None:
    in_the_way = node.folder / "spool"
    in_the_way.write_text("")
    node.mood("gone")
    node.start()
    node.publish()
    node.until(lambda: node.log_has("the sink fake has no spool"))
    in_the_way.unlink()
    node.until(lambda: list(node.folder.glob("spool/fake/*.spool")), publishing=True)
    node.signal(signal.SIGKILL)
    node.mood("")
    node.start()
    node.until(node.has_everything)
