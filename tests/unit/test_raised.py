"""An exception that ends a Python of a job: in the sentence of its death, and kept whole."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from agent_node import Made, make

from condor_joblens.agent.lifecycle import raised
from condor_joblens.agent.lifecycle.crash_words import MOST_OF_RUN
from condor_joblens.agent.output.run_artifacts import RunArtifacts, limits
from condor_joblens.cli import crash as command
from condor_joblens.cli.terminal import Style
from condor_joblens.control.verbs import Refused
from condor_joblens.model.levels import Level
from condor_joblens.shm.artifact_header import HEADER_BYTES
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter

TRACEBACK = 'Traceback (most recent call last):\n  File "/a/fit.py", line 3, in load\nKeyError: 7\n'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch, max_level=Level.TRACE)
    folder = str(tmp_path / "artifacts")
    os.mkdir(folder)
    store = ArtifactWriter(folder, limits(made.node.config, folder))
    events: Any = made.agent.output.events
    made.agent.output.artifacts = RunArtifacts(made.node, events, store)
    return made


def kept(made: Made) -> list[str]:
    """The texts that are kept, the oldest first."""
    store = made.agent.output.artifacts.store
    texts = []
    for each in store.stored():
        with ArtifactReader(store.folder).open(each.name) as (_, descriptor):
            texts.append(os.pread(descriptor, 1 << 20, HEADER_BYTES).decode())
    return texts


def test_it_is_in_the_death_and_kept_whole(made: Made) -> None:
    run = made.begin(level=Level.TRACE)
    raised.hear(made.agent, run, os.getpid(), "KeyError: 7", "/a/fit.py:3", TRACEBACK)
    (known,) = made.agent.crashes.raised(int(made.node.runs.rows["run_number"][run]))
    assert known.words == "KeyError: 7 (fit.py:3)" and known.pid in (0, os.getpid())
    assert 0 < known.started <= time.time() + 1
    assert kept(made) == [f"Process {os.getpid()}\n{TRACEBACK}"]


@pytest.mark.parametrize("level", [Level.BASIC, Level.PROFILE])
def test_nothing_is_heard_of_a_job_that_is_not_at_level_trace(made: Made, level: Level) -> None:
    run = made.begin(level=level)
    with pytest.raises(Refused, match=f"at level {level.word}"):
        raised.hear(made.agent, run, os.getpid(), "KeyError: 7", "", TRACEBACK)
    assert kept(made) == [] and made.agent.crashes.raised(int(made.node.runs.rows["run_number"][run])) == ()


def test_a_site_that_does_not_allow_it_hears_nothing_before_it_has_decided_either(made: Made) -> None:
    run = made.begin()
    made.node.runs.state["named"][run] = False
    raised.hear(made.agent, run, os.getpid(), "KeyError: 7", "", TRACEBACK)
    made.node.config = made.node.config.__class__(run_dir=made.node.config.run_dir, max_level=Level.PROFILE)
    with pytest.raises(Refused):
        raised.hear(made.agent, run, os.getpid(), "KeyError: 7", "", TRACEBACK)
    assert len(kept(made)) == 1


def test_of_many_the_first_and_the_last_are_kept(made: Made) -> None:
    run = made.begin(level=Level.TRACE)
    for number in range(MOST_OF_RUN + 5):
        raised.hear(made.agent, run, os.getpid(), f"KeyError: {number}", "", f"KeyError: {number}")
    texts = [text.rpartition(" ")[2] for text in kept(made)]
    assert texts == ["0", *(str(number) for number in range(6, MOST_OF_RUN + 5))]
    assert len(made.agent.crashes.raised(int(made.node.runs.rows["run_number"][run]))) == MOST_OF_RUN


def test_what_a_job_says_is_cut_escaped_and_without_secrets() -> None:
    words = raised.in_words("E: \x1b[2J --token hunter2 " + "ä " * 400, "/a/\nfit.py:3")
    assert "hunter2" not in words and "\x1b" not in words and "\n" not in words and len(words) < 700
    assert raised.in_words("E", "") == raised.in_words("E", "fit.py") == raised.in_words("E", "fit.py:x") == "E"


def test_lines_of_a_traceback_are_fit_for_a_terminal(made: Made) -> None:
    run = made.begin(level=Level.TRACE)
    raised.hear(made.agent, run, os.getpid(), "E", "", "one\x1b[2J\ntwo\udcff\r\n")
    assert kept(made) == [f"Process {os.getpid()}\none\\x1b[2J\ntwo\\udcff\\x0d\n"]


def test_a_page_for_a_person_has_it_as_python_has_it() -> None:
    head, *lines = command.page(f"Process 7\n{TRACEBACK}".rstrip(), Style(80), 0.0)
    assert head == "An exception ended a Python: process 7, 1970-01-01 00:00:00"
    assert lines == TRACEBACK.splitlines()
