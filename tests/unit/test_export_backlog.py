"""What waits on the disk: how old it is said to be, and what a disk's faults do to it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from test_export_channel import Bench, sink_of, until
from test_export_spool import PLENTY, drain, ids, records

from condor_joblens.export import spool as spools
from condor_joblens.export.spool import Spool
from condor_joblens.sinks import not_now


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
