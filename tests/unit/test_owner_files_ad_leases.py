"""Who opens a job's `.update.ad` at its end waits until the last numbers are in it, and never for long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.owner_files import ad_leases
from condor_joblens.owner_files.ad_leases import AdLeases
from condor_joblens.publish import updatead

OLD = 'Activity = "Busy"\nJobLensUsage = [Run="old#1"; Executable="with a long name"]\nCpus = 1\n'
READER = "import sys; sys.stdout.write('opening\\n'); sys.stdout.flush(); sys.stdout.write(open(sys.argv[1]).read())"


class Folder:
    """A job's folder with an ad, and what has leases on it."""

    def __init__(self, path: Path) -> None:
        self.path, self.ad = path, path / updatead.NAME
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.leases = AdLeases()
        self.ad.write_text(OLD)

    def take(self) -> None:
        self.leases.take(self.descriptor)

    def write(self, text: str = "[A=1]") -> bool:
        written = self.leases.write(self.descriptor, os.getuid(), text)
        assert written is None or written.version == updatead.version(self.descriptor)
        return written is not None

    def is_leased(self) -> bool:
        """As the kernel sees it: who does not want to wait is sent away."""
        try:
            os.close(os.open(self.ad, os.O_RDONLY | os.O_NONBLOCK))
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.leases.release(folder.descriptor)
    os.close(folder.descriptor)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that do not end by themselves, however busy the machine is."""
    monkeypatch.setattr(ad_leases, "LONGEST", 30.0)


def waits_in_open(process: subprocess.Popen[str]) -> None:
    """Returns when the process waits for a lease to end."""
    until = time.monotonic() + 20
    while "break_lease" not in Path(f"/proc/{process.pid}/wchan").read_text():
        assert process.poll() is None and time.monotonic() < until, "it does not wait"
        time.sleep(0.005)


@pytest.mark.usefixtures("long")
def test_a_reader_waits_and_finds_what_was_written_meanwhile(folder: Folder) -> None:
    folder.take()
    reader = subprocess.Popen([sys.executable, "-c", READER, folder.ad], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None and reader.stdout.readline() == "opening\n"
    waits_in_open(reader)
    assert folder.write('[Run="new#2"]')
    lines = reader.communicate()[0].splitlines()
    assert [line.rstrip() for line in lines] == ['Activity = "Busy"', "Cpus = 1", 'JobLensUsage = [Run="new#2"]']
    assert not folder.is_leased()


def test_a_reader_waits_no_longer_than_the_lease(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ad_leases, "LONGEST", 0.0)
    assert folder.leases.timeout() is None
    folder.take()
    assert folder.is_leased() and folder.leases.timeout() == 0.0
    folder.leases.expire()
    assert not folder.is_leased() and folder.leases.timeout() is None
    assert folder.ad.read_text() == OLD
    assert not folder.write(), "without a lease the file is replaced in the usual way"


@pytest.mark.usefixtures("long")
def test_a_second_lease_is_the_first_one_for_longer(folder: Folder) -> None:
    folder.take()
    before = len(os.listdir("/proc/self/fd"))
    folder.take()
    assert len(os.listdir("/proc/self/fd")) == before and folder.is_leased()
    folder.leases.expire()
    assert folder.is_leased()


@pytest.mark.usefixtures("long")
def test_a_file_in_use_is_not_leased(folder: Folder) -> None:
    with folder.ad.open("r+"):  # the startd writes no file of this name, but a job's user can
        folder.take()
        assert folder.leases.timeout() is None and not folder.write()


@pytest.mark.usefixtures("long")
def test_what_is_no_plain_file_of_the_owner_s_is_left_alone(folder: Folder, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("other\n")
    before = len(os.listdir("/proc/self/fd"))
    listener = socket.socket(socket.AF_UNIX)
    for make in (
        lambda: folder.ad.symlink_to(other),
        lambda: os.mkfifo(folder.ad),
        lambda: os.link(other, folder.ad),
        folder.ad.mkdir,
        lambda: None,
    ):
        if folder.ad.is_dir():
            folder.ad.rmdir()
        else:
            folder.ad.unlink(missing_ok=True)
        make()
        folder.take()
        assert folder.leases.timeout() is None and not folder.write()
    listener.close()
    folder.ad.unlink(missing_ok=True)
    folder.ad.write_text(OLD)
    os.truncate(folder.ad, updatead.MOST_DELETED + 1)
    folder.take()
    assert folder.leases.timeout() is None, "the last who closes it would delete it"
    assert len(os.listdir("/proc/self/fd")) == before and other.read_text() == "other\n"
    folder.ad.write_text(OLD)
    folder.take()
    os.link(folder.ad, tmp_path / "linked")
    assert not folder.write() and folder.ad.read_text() == OLD
    (tmp_path / "linked").unlink()
    folder.take()
    assert not folder.leases.write(folder.descriptor, os.getuid() + 1, "[A=1]"), "another's file, linked here"
    assert folder.ad.read_text() == OLD and not folder.is_leased()


@pytest.mark.usefixtures("long")
def test_a_file_that_the_startd_has_replaced_is_written_for_who_waits_and_said_to_be_gone(folder: Folder) -> None:
    folder.take()
    waiting = os.open(folder.path, os.O_RDONLY)
    new = folder.path / ".update.ad.tmp"
    new.write_text("Activity = 1\n")
    new.rename(folder.ad)
    assert not folder.write(), "the file of this name has to be written as well"
    assert folder.ad.read_text() == "Activity = 1\n"
    os.close(waiting)


def test_there_is_a_greatest_number_of_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ad_leases, "MOST", 2)
    monkeypatch.setattr(ad_leases, "LONGEST", 30.0)
    leases = AdLeases()
    folders = []
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / updatead.NAME).write_text(OLD)
        folders.append(os.open(tmp_path / name, os.O_RDONLY))
        leases.take(folders[-1])
    written = [leases.write(each, os.getuid(), "[A=1]") for each in folders]
    assert [each is not None for each in written] == [True, True, False]
    for each in folders:
        os.close(each)


LINES = st.lists(st.sampled_from(["A = 1", "JobLensUsage = [B=2]", "joblensusage=3", " C = 4", "", 'D = "x\\n"']))


@given(LINES, st.text("[]=;1ab", max_size=300))
def test_the_text_is_what_a_replaced_file_would_have_but_for_blanks(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], text: str
) -> None:
    folder = Folder(tmp_path_factory.mktemp("job"))
    before = "\n".join(lines)
    folder.ad.write_text(before)
    folder.take()
    while not folder.is_leased():  # another process of this test may have inherited the file for a moment
        folder.take()
    assert folder.write(text)
    after = folder.ad.read_bytes()
    expected = updatead.with_attribute(before.encode(), text)
    assert after.rstrip(b" \n") == expected.rstrip(b" \n") and len(after) == max(len(before), len(expected))
    assert after.endswith(b"\n") and after.count(b"\n") == expected.count(b"\n")
    os.close(folder.descriptor)
