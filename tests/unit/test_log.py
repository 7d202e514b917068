"""The daemons' log: HTCondor's form, rotation, and faults that must not reach the daemon."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from condor_joblens.common.log import LONGEST, open_log


def test_a_message_is_one_line_in_htcondors_form(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "Log"))
    log("started\nCpu = 99 \x1b[31m")
    assert re.fullmatch(
        r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d started\\nCpu = 99 \\x1b\[31m\n", (tmp_path / "Log").read_text()
    )
    log("x" * 10000)
    assert len((tmp_path / "Log").read_text().splitlines()[1]) <= LONGEST + 18


def test_rotates_by_size_and_goes_on(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "Log"), greatest=1000)
    for number in range(100):
        log(f"message {number}")
    kept = (tmp_path / "Log.old").read_text() + (tmp_path / "Log").read_text()
    numbers = [int(line.split()[-1]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 100)) and numbers[0] > 0
    assert (tmp_path / "Log.old").stat().st_size < 1100


def test_rotates_in_a_folder_that_it_may_not_write(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "Log"), greatest=100)
    tmp_path.chmod(0o555)
    for number in range(10):
        log(f"message {number}")
    tmp_path.chmod(0o755)
    assert "message" in (tmp_path / "Log.old").read_text()
    assert (tmp_path / "Log").stat().st_size <= 200


def test_a_path_that_cannot_be_opened_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = open_log(str(tmp_path / "no" / "Log"))
    log("on we go")
    said = capfd.readouterr().err
    assert "no/Log can't be opened as a log: No such file or directory" in said
    assert "on we go" in said


@pytest.mark.parametrize("make", ["symlink_to", "hardlink_to"])
def test_links_are_refused(tmp_path: Path, make: str, capfd: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    os.symlink(precious, tmp_path / "Log") if make == "symlink_to" else os.link(precious, tmp_path / "Log")
    open_log(str(tmp_path / "Log"))("message")
    assert precious.read_text() == "precious"
    assert "message" in capfd.readouterr().err


def test_reopen_takes_the_new_file_or_keeps_the_old(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "Log"))
    os.rename(tmp_path / "Log", tmp_path / "moved")  # as logrotate does
    log.reopen(str(tmp_path / "Log"))
    log("new")
    log.reopen(str(tmp_path / "no" / "Log"))
    log("still")
    assert "new" in (tmp_path / "Log").read_text() and "still" in (tmp_path / "Log").read_text()


def test_a_full_disk_costs_the_message_alone(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "Log"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._file)
    log("lost")
