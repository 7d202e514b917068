"""What people tell a job (`joblens notify`): a line in its folder, whatever the job has put there."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from condor_joblens.commands import notify
from condor_joblens.control.verbs import MOST_NOTICE, Request
from condor_joblens.owner_files import notices
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.owner_files.operations import Operations


def add(scratch: Path, line: bytes = b"line\n") -> NoticeResult:
    descriptor = os.open(scratch, os.O_RDONLY)
    try:
        return Operations().add_notice(descriptor, line)
    finally:
        os.close(descriptor)


def test_lines_follow_each_other_in_a_folder_that_is_made_for_them(tmp_path: Path) -> None:
    for line in (b"1\n", b"2\n"):
        assert add(tmp_path, line) is NoticeResult.DONE
    assert (tmp_path / ".joblens" / "notices").read_bytes() == b"1\n2\n"
    assert os.listdir(tmp_path) == [".joblens"], "HTCondor takes files of this folder for output"


def test_a_job_that_has_taken_them_away_gets_the_next_ones(tmp_path: Path) -> None:
    add(tmp_path, b"1\n")
    (tmp_path / ".joblens" / "notices").unlink()
    assert add(tmp_path, b"2\n") is NoticeResult.DONE
    assert (tmp_path / ".joblens" / "notices").read_bytes() == b"2\n"


def test_a_job_that_reads_none_of_them_keeps_so_many(tmp_path: Path) -> None:
    line = b"x" * (notices.MOST_BYTES - 1) + b"\n"
    for _ in range(notices.MOST_FILE_BYTES // notices.MOST_BYTES):
        assert add(tmp_path, line) is NoticeResult.DONE
    assert add(tmp_path) is NoticeResult.FULL
    assert (tmp_path / ".joblens" / "notices").stat().st_size == notices.MOST_FILE_BYTES


@pytest.mark.parametrize(
    "make_it",
    [
        lambda path: path.symlink_to("../other"),
        lambda path: path.symlink_to("../nowhere"),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: os.link(path.parent.parent / "other", path),
    ],
    ids=["link", "broken link", "folder", "fifo", "second name"],
)
def test_what_the_job_has_in_its_place_gets_none(tmp_path: Path, make_it: Callable[[Path], object]) -> None:
    (tmp_path / "other").write_bytes(b"the job's")
    (tmp_path / ".joblens").mkdir()
    make_it(tmp_path / ".joblens" / "notices")
    assert add(tmp_path) is NoticeResult.TAKEN
    assert (tmp_path / "other").read_bytes() == b"the job's" and not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_nor_does_what_is_in_the_folders_place(tmp_path: Path, kind: str) -> None:
    scratch, other = tmp_path / "scratch", tmp_path / "other"
    scratch.mkdir()
    other.mkdir()
    if kind == "link":
        (scratch / ".joblens").symlink_to(other)
    else:
        (scratch / ".joblens").touch()
    assert add(scratch) is NoticeResult.TAKEN
    assert os.listdir(other) == []


def test_who_reads_a_pipe_is_not_woken(tmp_path: Path) -> None:
    (tmp_path / ".joblens").mkdir()
    pipe = tmp_path / ".joblens" / "notices"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert add(tmp_path) is NoticeResult.TAKEN
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_folder_that_is_gone_costs_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    folder.rmdir()
    assert Operations().add_notice(descriptor, b"line\n") is NoticeResult.FAILED
    os.close(descriptor)


@pytest.mark.parametrize(
    "said", ["two\nlines", "\x1b[2J\u202e", "\udcff" * MOST_NOTICE, "ö" * (MOST_NOTICE // 2), "plain"]
)
def test_whatever_is_said_is_one_line_with_its_author(said: str) -> None:
    line = notify._line(Request("notify", {"job": "12.0", "text": said}, 1, 0))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ root: [^\x00-\x1f\x7f-\x9f\u202e]+\n", line.decode())
    assert len(line) <= notices.MOST_BYTES


def test_what_is_said_arrives_as_it_was_typed() -> None:
    said = "Grüße, 日本語 „x“ 👩\u200d💻 a\\b"
    line = notify._line(Request("notify", {"job": "12.0", "text": said}, 1, 0))
    assert line.endswith(f": {said}\n".encode())
