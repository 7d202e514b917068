"""The spool: what goes in comes out once, in order, whatever befalls files, disk and clocks; all else is counted."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.export import spool as spools
from condor_joblens.export.cursor import Cursor, RunIndex
from condor_joblens.export.shared_spool import SharedSpool
from condor_joblens.export.spool import Spool, SpoolLimits
from condor_joblens.sinks import Record, RecordKind

PLENTY = SpoolLimits(1 << 30, 1e9, "never")


def records(first: int, count: int, size: int = 10) -> list[Record]:
    line = b'{"Type":"event","Id":"id %d","Node":"node","Time":1.0,"Text":"%s"}'
    return [
        Record(RecordKind.EVENT, f"id {number}", "node", 1.0, line % (number, os.urandom(size).hex().encode()))
        for number in range(first, first + count)
    ]


def drain(spool: Spool) -> list[str]:
    found = []
    while (frame := spool.oldest()) is not None:
        found += [record.id for record in frame.records]
        spool.delivered(frame)
    return found


def ids(first: int, end: int) -> list[str]:
    return [f"id {number}" for number in range(first, end)]


def test_what_goes_in_comes_out_in_order_and_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), PLENTY)
    for first in range(0, 300, 3):
        spool.append(records(first, 3))
    assert spool.pending == 300 and spool.size > 0
    assert drain(spool) == ids(0, 300)
    assert (spool.pending, spool.size, os.listdir(tmp_path), sum(spool.dropped.values())) == (0, 0, [], 0)


def test_a_record_comes_out_as_it_went_in(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), PLENTY)
    [record] = records(7, 1)
    spool.append([record])
    frame = spool.oldest()
    assert frame is not None and list(frame.records) == [record]


def test_another_process_goes_on_where_the_last_was(tmp_path: Path) -> None:
    first = Spool(str(tmp_path), PLENTY)
    for number in range(0, 10, 2):
        first.append(records(number, 2))
    frame = first.oldest()
    assert frame is not None
    first.delivered(frame)
    # killed: nothing was closed
    second = Spool(str(tmp_path), PLENTY, first.wanted)
    second.append(records(10, 2))
    assert drain(second) == ids(2, 12)


@settings(max_examples=examples(80))
@given(
    steps=st.lists(st.one_of(st.integers(1, 40), st.just("read"), st.just("again"), st.just("oldest")), max_size=30),
    bound=st.sampled_from([1 << 17, 1 << 18, 1 << 30]),
)
def test_whatever_happens_each_record_comes_out_or_is_counted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[object], bound: int
) -> None:
    folder = str(tmp_path_factory.mktemp("spool"))
    limits = SpoolLimits(bound, 1e9, "never")
    spool, put, got, lost = Spool(folder, limits), 0, [], 0
    for step in steps:
        if isinstance(step, int):
            spool.append(records(put, step, 2000))
            put += step
        elif step == "again":
            lost += sum(spool.dropped.values())
            spool.close()
            spool = Spool(folder, limits, spool.wanted)
        elif (frame := spool.oldest()) is not None and step == "read":
            got += [record.id for record in frame.records]
            spool.delivered(frame)
        assert spool.size <= bound + (1 << 18)
    got += drain(spool)
    lost += sum(spool.dropped.values())
    assert len(got) + lost == put
    assert got == sorted(got, key=lambda name: int(name.split()[1])) and len(set(got)) == len(got)


@settings(max_examples=examples(150))
@given(damage=st.lists(st.tuples(st.floats(0, 0.999), st.integers(1, 60), st.binary(max_size=60)), max_size=5))
def test_damage_costs_what_it_hits_and_is_counted(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[float, int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = Spool(str(folder), PLENTY)
    for first in range(0, 50, 5):
        writer.append(records(first, 5, 50))
    writer.append(records(50, 1))
    last = sorted(folder.glob("*.spool"))[-1]
    content = bytearray(last.read_bytes())
    # not the last frame: of what was torn off at the end nobody can know
    end = content.rindex(b"JLSP")
    kept, content = content[end:], content[:end]
    for share, size, instead in damage:
        at = int(share * len(content))
        content[at : at + size] = instead
    last.write_bytes(bytes(content + kept))
    reader = Spool(str(folder), PLENTY)
    got = drain(reader)
    assert len(got) + reader.dropped["corrupt"] == 51
    assert set(got) <= set(ids(0, 51)) and len(set(got)) == len(got)
    assert got == sorted(got, key=lambda name: int(name.split()[1]))


def test_a_file_that_is_gone_or_empty_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 1 << 16)
    spool = Spool(str(tmp_path), PLENTY)
    for first in range(0, 400, 10):
        spool.append(records(first, 10, 1000))
    files = sorted(tmp_path.glob("*.spool"))
    assert len(files) > 4
    files[1].unlink()
    files[2].write_bytes(b"")
    files[3].write_bytes(b"x" * 100_000)
    got = drain(Spool(str(tmp_path), PLENTY))
    spool = Spool(str(tmp_path), PLENTY)
    first = int(files[1].name[:20])
    end = int(files[4].name[:20])
    assert got == [*ids(0, first), *ids(end, 400)]


def test_the_oldest_is_dropped_where_bytes_run_out(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), SpoolLimits(1 << 18, 1e9, "always"))
    for first in range(0, 1000, 10):
        spool.append(records(first, 10, 1000))
    assert spool.size <= 1 << 18
    kept = spool.pending
    assert spool.dropped["overflow"] == 1000 - kept > 0
    assert drain(spool) == ids(1000 - kept, 1000)


def test_what_is_too_old_is_dropped_by_the_clock_that_nobody_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(str(tmp_path), SpoolLimits(1 << 30, 100.0, "never"))
    spool.append(records(0, 5))
    real = time.time
    for jump in (3600, -3600):  # of the wall clock: nothing happens
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        spool.append(records(5, 1) if jump > 0 else records(6, 1))
        spool.trim()
    assert spool.pending == 7
    uptime = spools._uptime()
    monkeypatch.setattr(spools, "_uptime", lambda: uptime + 90)
    spool.append(records(7, 2))
    monkeypatch.setattr(spools, "_uptime", lambda: uptime + 150)
    spool.trim()
    assert (spool.dropped["age"], drain(spool)) == (7, ids(7, 9))


@pytest.fixture
def small_disk(disk: Callable[[str], Path]) -> Path:
    return disk("512k")


def test_a_full_disk_costs_the_oldest_and_nothing_is_torn(small_disk: Path) -> None:
    spool = Spool(str(small_disk / "spool"), SpoolLimits(1 << 30, 1e9, "segment"))
    for first in range(0, 1000, 10):
        spool.append(records(first, 10, 1000))
    lost = spool.dropped["overflow"]
    assert 0 < lost < 1000 and spool.pending == 1000 - lost
    assert drain(spool) == ids(lost, 1000)


def test_a_disk_that_others_have_filled_says_so(small_disk: Path) -> None:
    spool = Spool(str(small_disk / "spool"), PLENTY)
    with (small_disk / "other").open("wb") as other, pytest.raises(OSError):
        while True:
            other.write(b"x" * 65536)
            other.flush()
    with pytest.raises(OSError, match="No space left"):
        spool.append(records(0, 100, 1000))
    (small_disk / "other").unlink()
    spool.append(records(0, 3))
    assert drain(spool) == ids(0, 3)


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_export_spool import PLENTY, records
from condor_joblens.export.spool import Spool
spool = Spool(sys.argv[1], PLENTY)
number = 0
while True:
    spool.append(records(number, 7, 200))
    number += 7
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 17, 160])
def test_a_killed_process_loses_nothing_that_append_returned_for(tmp_path: Path, lines: int) -> None:
    script = KILLED.format(tests=os.path.dirname(__file__))
    folder = str(tmp_path / "spool")
    with subprocess.Popen([sys.executable, "-c", script, folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(lines):
            number = int(process.stdout.readline())
        process.kill()
        rest = process.stdout.read().split()
        number = int(rest[-1]) if rest else number
    got = drain(Spool(folder, PLENTY))
    assert got[:number] == ids(0, number) and len(got) <= number + 7


def kill_where_a_file_goes(folder: Path, is_full: bool, has_gone: bool) -> None:
    """Fills a spool until it drops its oldest file, and is killed there. Never returns."""
    unlink, write = os.unlink, os.write

    def killed(path: str) -> None:
        if has_gone:
            unlink(path)
        os.kill(os.getpid(), signal.SIGKILL)

    def write_until_full(descriptor: int, content: bytes) -> int:
        if is_full and os.fstat(descriptor).st_size > 500_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content)

    os.unlink, os.write = killed, write_until_full  # type: ignore[assignment]
    cursor = Cursor(str(folder / "cursor"), RunIndex())
    limits = SpoolLimits(1 << 30 if is_full else 1 << 20, 1e9, "never")
    spool = SharedSpool("kafka", Spool(str(folder / "spool"), limits), cursor, cursor.lose, lambda line: None)
    for first in itertools.count(0, 100):
        spool.append(records(first, 100, 1000))
        (folder / "appended").write_text(str(first + 100))


@pytest.mark.parametrize("has_gone", [False, True], ids=["before it goes", "after it went"])
@pytest.mark.parametrize("is_full", [False, True], ids=["too many bytes", "a full disk"])
def test_what_a_killed_process_dropped_is_declared(tmp_path: Path, is_full: bool, has_gone: bool) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            kill_where_a_file_goes(tmp_path, is_full, has_gone)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    cursor = Cursor(str(tmp_path / "cursor"), RunIndex())
    spool = Spool(str(tmp_path / "spool"), PLENTY, cursor.spooled)
    assert spool.next >= int((tmp_path / "appended").read_text()) > 0
    lost = cursor.undeclared()["overflow"]
    assert drain(spool) == ids(lost, spool.next) and not spool.dropped


def test_files_that_somebody_removed_are_lost(tmp_path: Path) -> None:
    limits = SpoolLimits(1 << 30, 1e9, "never")
    spool = Spool(str(tmp_path), limits, 1000)
    spool.append(records(0, 50))
    spool.close()
    os.rename(tmp_path / f"{1000:020d}.spool", tmp_path / f"{1000:020d}.gone")
    spool = Spool(str(tmp_path), limits, 1050)
    spool.append(records(50, 50))
    spool.close()
    spool = Spool(str(tmp_path), limits, 1000)
    assert spool.dropped == {"corrupt": 50} and drain(spool) == ids(50, 100)
