"""What a job says of itself in a file of its folder: read as its owner, whatever is in its place, and kept as said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_node import Made, make

from condor_joblens.agent.output.job_words import JobWords, understood
from condor_joblens.commands import say
from condor_joblens.model.metrics import text
from condor_joblens.owner_files import progress


class Site:
    """A node with one run, whose folder is a real one."""

    def __init__(self, made: Made, scratch: Path) -> None:
        self.made, self.folder = made, scratch / ".joblens"
        self.folder.mkdir(parents=True)
        self.run = made.begin()
        self.descriptor = os.open(scratch, os.O_RDONLY)
        sandbox: Any = SimpleNamespace(scratch=self.descriptor)
        made.node.handles[self.run].sandbox = sandbox
        self.words = JobWords(made.node)

    def hear(self) -> str:
        self.words.hear([self.run])
        return text(self.made.node.runs.rows["progress"][self.run])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    site = Site(make(tmp_path, monkeypatch), tmp_path / "scratch")
    yield site
    os.close(site.descriptor)


@pytest.mark.parametrize(
    ("said", "share", "words"),
    [
        (b"30% step 3 of 10\nmore\n", 0.3, "step 3 of 10"),
        (b"  12.5 %\n", 0.125, ""),
        (b"100 % done", 1.0, "done"),
        (b"1 of 10", None, "1 of 10"),
        (b"101 % of it", None, "101 % of it"),
        (b"30%s", None, "30%s"),
        (b"", None, ""),
        (b"\xff\n", None, "\ufffd"),
    ],
)
def test_a_share_has_a_percent_sign(said: bytes, share: float | None, words: str) -> None:
    assert understood(said) == (share, words)


def test_it_is_in_the_row_and_what_was_said_otherwise_since_then_stays(site: Site) -> None:
    assert site.hear() == ""
    (site.folder / "progress").write_bytes(b"30 % step 3\x1b[2J\n")
    assert site.hear() == "30 %: step 3\\x1b[2J"
    say.keep(site.made.node.runs.rows, site.run, 0.5, "by the socket")
    assert site.hear() == "50 %: by the socket"
    (site.folder / "progress").write_bytes(b"step 6\n")
    assert site.hear() == "50 %: step 6"


def test_the_next_run_at_its_place_has_not_said_it(site: Site) -> None:
    (site.folder / "progress").write_bytes(b"30 %\n")
    assert site.hear() == "30 %"
    rows = site.made.node.runs.rows
    rows["progress"][site.run], rows["run_number"][site.run] = b"", 77
    (site.folder / "progress").unlink()
    assert site.hear() == ""
    (site.folder / "progress").write_bytes(b"30 %\n")
    assert site.hear() == "30 %"


def test_a_run_that_is_over_is_not_asked(site: Site) -> None:
    (site.folder / "progress").write_bytes(b"30 %\n")
    site.made.node.runs.rows["final"][site.run] = True
    assert site.hear() == ""


def test_a_failure_is_one_line_and_costs_nothing_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folders: list[int]) -> list[bytes]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(site.made.node.files, "progress", fail)
    assert site.hear() == site.hear() == ""
    assert len([line for line in site.made.log if "can't be read" in line]) == 1


@pytest.mark.parametrize(
    "make_it",
    [
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
    ],
    ids=["link", "folder", "fifo"],
)
def test_nothing_but_a_regular_file_is_read(site: Site, make_it: Callable[[Path], object]) -> None:
    make_it(site.folder / "progress")
    assert site.hear() == ""


def test_no_link_leads_to_the_folder(site: Site, tmp_path: Path) -> None:
    site.folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "progress").write_bytes(b"30 %\n")
    site.folder.symlink_to(tmp_path / "elsewhere")
    assert site.hear() == ""


def test_of_a_giant_the_beginning_is_read(site: Site) -> None:
    (site.folder / "progress").write_bytes(b"x" * 50)
    os.truncate(site.folder / "progress", 1 << 40)
    assert len(progress.read(site.descriptor)) == progress.MOST_BYTES
