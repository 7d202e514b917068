"""An exception that ends a Python of a job: in the sentence of its death, and kept whole."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from agent_node import Made, make
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.lifecycle import first_decision, local_variables, raised, recovery, run_end, tracebacks
from condor_joblens.agent.lifecycle.crash_words import MOST_OF_RUN
from condor_joblens.agent.output.run_artifacts import RunArtifacts, limits
from condor_joblens.cli import crash as command
from condor_joblens.cli.terminal import Style
from condor_joblens.control.verbs import Refused
from condor_joblens.model.events import EventKind
from condor_joblens.model.levels import Level
from condor_joblens.policy.policy_answers import Decision
from condor_joblens.policy.trace_request import TraceRequest, of_text
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact
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


def begin(made: Made, level: Level = Level.TRACE, asks: bool = True) -> int:
    """A run whose job asks that its Pythons tell, or does not."""
    run = made.begin(level=level)
    made.levels.inputs[run].trace = TraceRequest(python_raises=asks)
    return run


def begin_unnamed(made: Made) -> int:
    """One about which nobody has decided yet: nobody knows whose it is."""
    run = begin(made, Level.BASIC)
    made.levels.inputs[run].is_decided = False
    made.node.runs.state["named"][run] = False
    made.node.runs.rows["run"][run] = made.node.runs.rows["owner"][run] = b""
    return run


def hear(made: Made, run: int, line: str = "KeyError: 7", traceback: str = TRACEBACK) -> None:
    raised.hear(made.agent, run, os.getpid(), line, "/a/fit.py:3", traceback)


def heard(made: Made, run: int) -> list[str]:
    """What of it is for the sentence of the run's death."""
    return [each.words for each in made.agent.crashes.raised(int(made.node.runs.rows["run_number"][run]))]


def decide(made: Made, run: int, level: Level) -> None:
    """The policies answer."""
    identity = {"GlobalJobId": "ap#1.0#1", "ClusterId": 1, "ProcId": 0, "Owner": "alice"}
    decision = Decision(level, level, level.word, "a rule", "", "", identity)
    policies: Any = made.policies
    policies.answers.append((made.node.key_of(run), decision))
    first_decision.apply_answers(made.agent)


def test_it_is_in_the_death_and_kept_whole(made: Made) -> None:
    run = begin(made)
    hear(made, run)
    (known,) = made.agent.crashes.raised(int(made.node.runs.rows["run_number"][run]))
    assert known.words == "KeyError: 7 (fit.py:3)" and known.pid in (0, os.getpid())
    assert 0 < known.started <= time.time() + 1
    assert kept(made) == [f"Process {os.getpid()}\n{TRACEBACK}"]


def test_it_is_an_event_once_it_is_known_whose_it_is(made: Made) -> None:
    told: list[tuple[int, int, bytes]] = []
    made.agent.output.events.append = lambda events: told.extend(  # type: ignore[method-assign]
        (int(each["run_number"]), int(each["pid"]), bytes(each["text"]))
        for each in events
        if each["kind"] == EventKind.TRACEBACK
    )
    run = begin_unnamed(made)
    hear(made, run)
    assert told == []
    decide(made, run, Level.TRACE)
    number = int(made.node.runs.rows["run_number"][run])
    assert told == [(number, os.getpid(), b"KeyError: 7 (fit.py:3)")]
    hear(made, run, "ValueError")
    assert told[1:] == [(number, os.getpid(), b"ValueError (fit.py:3)")]


@pytest.mark.parametrize("level", [Level.BASIC, Level.PROFILE])
def test_nothing_is_heard_of_a_job_that_is_not_at_level_trace(made: Made, level: Level) -> None:
    run = begin(made, level)
    with pytest.raises(Refused, match=f"at level {level.word}"):
        hear(made, run)
    assert kept(made) == heard(made, run) == []


def test_a_level_of_which_the_kernel_can_not_count_all_is_enough(made: Made) -> None:
    run = begin(made)
    made.node.runs.rows["level_number"][run] = Level.BASIC
    hear(made, run)
    assert len(kept(made)) == 1


def test_nothing_is_heard_of_a_job_that_has_not_asked_for_it(made: Made) -> None:
    run = begin(made, asks=False)
    with pytest.raises(Refused, match="the job has not asked"):
        hear(made, run)
    assert kept(made) == heard(made, run) == []


@pytest.mark.parametrize("knobs", [{"max_level": Level.PROFILE}, {"trace_python": False}])
def test_a_site_that_does_not_allow_it_hears_nothing_before_it_has_decided_either(
    made: Made, knobs: dict[str, Any]
) -> None:
    run = begin_unnamed(made)
    made.node.config = dataclasses.replace(made.node.config, **knobs)
    with pytest.raises(Refused):
        hear(made, run)
    assert heard(made, run) == []
    decide(made, run, Level.TRACE)
    assert kept(made) == []


def test_what_is_heard_before_the_decision_is_kept_as_the_owners(made: Made) -> None:
    run = begin_unnamed(made)
    hear(made, run)
    assert kept(made) == [] and heard(made, run) == ["KeyError: 7 (fit.py:3)"]
    decide(made, run, Level.TRACE)
    (stored,) = made.agent.output.artifacts.store.stored()
    with ArtifactReader(made.agent.output.artifacts.store.folder).open(stored.name) as (about, _):
        assert (about.run, about.owner) == ("ap#1.0#1#0", "alice")
    assert len(kept(made)) == len(heard(made, run)) == 1


def test_what_is_heard_before_a_decision_below_level_trace_is_forgotten(made: Made) -> None:
    run = begin_unnamed(made)
    hear(made, run)
    decide(made, run, Level.PROFILE)
    made.agent.tracebacks.end(made.agent.output.artifacts, run)
    assert kept(made) == heard(made, run) == []


def test_a_job_that_is_over_before_the_decision_has_it_by_its_own_ad(made: Made) -> None:
    run = begin_unnamed(made)
    hear(made, run)
    made.levels.inputs[run].job_ad = b'GlobalJobId = "ap#1.0#1"\nClusterId = 1\nProcId = 0\nOwner = "alice"\n'
    first_decision.identify_before_end(made.agent, run)
    run_end.close_run(made.agent, run)
    (stored,) = made.agent.output.artifacts.store.stored()
    assert stored.run == "ap#1.0#1#0"


def test_a_run_that_nobody_ever_names_leaves_nothing(made: Made) -> None:
    run = begin_unnamed(made)
    hear(made, run)
    run_end.close_run(made.agent, run)
    assert kept(made) == []


def test_of_many_the_first_and_the_last_are_kept(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "EVERY", 0.0)
    run = begin(made)
    for number in range(MOST_OF_RUN + 5):
        hear(made, run, traceback=f"KeyError: {number}")
    texts = [text.rpartition(" ")[2] for text in kept(made)]
    assert texts == ["0", *(str(number) for number in range(6, MOST_OF_RUN + 5))]
    assert len(heard(made, run)) == MOST_OF_RUN


def test_a_loop_of_failing_pythons_writes_few_files_and_its_last_ones_are_kept_at_its_end(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracebacks, "EVERY", 3600.0)
    run, written = begin(made), MagicMock(wraps=made.agent.output.artifacts.store.add)
    monkeypatch.setattr(made.agent.output.artifacts.store, "add", written)
    for number in range(1000):
        hear(made, run, f"KeyError: {number}", f"KeyError: {number}")
    made.agent.tracebacks.tick(made.agent.output.artifacts)
    assert written.call_count == tracebacks.AT_ONCE
    assert heard(made, run)[-1] == "KeyError: 999 (fit.py:3)"
    run_end.close_run(made.agent, run)
    assert written.call_count == tracebacks.AT_ONCE + tracebacks.MOST_HELD
    assert kept(made)[-1].endswith("KeyError: 999")


def test_so_many_files_of_a_run_are_written_however_slowly_they_come(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracebacks, "EVERY", 0.0)
    monkeypatch.setattr(tracebacks, "MOST_WRITTEN", 3)
    run, written = begin(made), MagicMock(wraps=made.agent.output.artifacts.store.add)
    monkeypatch.setattr(made.agent.output.artifacts.store, "add", written)
    for _ in range(9):
        hear(made, run)
    assert written.call_count == 3


def test_what_waits_of_all_runs_together_is_bounded(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "MOST_HELD_BYTES", 1000)
    runs = [begin_unnamed(made) for _ in range(3)]
    for run in runs:
        hear(made, run, traceback="x" * 450)
    assert len([line for line in made.log if "too many wait" in line]) == 1
    for run in runs:
        made.agent.tracebacks.forget(run)
    hear(made, runs[2], traceback="x" * 900)
    assert len([line for line in made.log if "too many wait" in line]) == 1


def test_a_new_joblensd_knows_what_the_job_has_asked_for(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(made)
    monkeypatch.setattr(recovery, "_slots", lambda node: {int(node.runs.state["cgroup_id"][run]): ("", 0.0)})
    monkeypatch.setattr(recovery, "_take_over_run", lambda *_: None)
    monkeypatch.setattr(recovery, "open_files", lambda *_: CgroupFiles({}))
    cgroup_id = int(made.node.runs.state["cgroup_id"][run])
    made.levels.saved_ads.keep(cgroup_id, b'JobLensTrace = "python:raises"\n', "alice")
    made.levels.inputs.clear()
    recovery.take_over(made.agent)
    hear(made, run)
    assert len(kept(made)) == 1


def test_what_a_job_says_is_cut_escaped_and_without_secrets() -> None:
    words = raised.in_words("E: \x1b[2J --token hunter2 " + "ä " * 400, "/a/\nfit.py:3")
    assert "hunter2" not in words and "\x1b" not in words and "\n" not in words and len(words) < 700
    assert raised.in_words("E", "") == raised.in_words("E", "fit.py") == raised.in_words("E", "fit.py:x") == "E"


def test_local_variables_are_kept_with_the_traceback_without_secrets(made: Made) -> None:
    run = begin(made)
    made.levels.inputs[run].trace = of_text("python:raises+locals")
    assert raised.hear(made.agent, run, os.getpid(), "KeyError: 7", "/a/fit.py:3", TRACEBACK)
    assert kept(made) == []
    lines = "@load, /a/fit.py:3\n=muons='x'\n=password='hunter2'\n=url='https://a:hunter2@b'\n~more='one tw\nnonsense\n"
    raised.hear_variables(made.agent, run, os.getpid(), f"{lines}@\x1b[2J, x\n==\n=no\n")
    told = [
        *(local_variables.TITLE, "  load, /a/fit.py:3", "    muons = 'x'", "    password = ***"),
        *("    url = 'https://***@b'", "    more = 'one ...", "  \\x1b[2J, x", "     = ", "    no = "),
    ]
    assert kept(made) == [f"Process {os.getpid()}\n{TRACEBACK}\n" + "\n".join(told)]
    about, *_ = made.agent.output.artifacts.store.stored()
    assert "hunter2" not in str(about)


def test_a_process_that_never_tells_its_variables_is_waited_for_a_moment(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(made)
    made.levels.inputs[run].trace = of_text("python:raises+locals")
    hear(made, run)
    made.agent.tracebacks.tick(made.agent.output.artifacts)
    assert kept(made) == []
    monkeypatch.setattr(tracebacks, "WAITS", 0.0)
    hear(made, run)
    run_end.close_run(made.agent, run)
    assert kept(made) == [f"Process {os.getpid()}\n{TRACEBACK}"] * 2


def test_variables_that_nobody_has_asked_for_are_not_heard(made: Made) -> None:
    run = begin(made)
    assert not raised.hear(made.agent, run, os.getpid(), "E", "", TRACEBACK)
    with pytest.raises(Refused, match="nobody has asked"):
        raised.hear_variables(made.agent, run, os.getpid(), "@f, x:1\n=a=1\n")


@given(st.text(max_size=400))
def test_whatever_variables_are_told_is_fit_to_print(lines: str) -> None:
    assert all(line.isprintable() or line == "" for line in local_variables.shown(lines))


def test_of_a_value_that_no_python_tells_so_long_the_begin_is_looked_at() -> None:
    """The time for secrets is looked at between two values: a long one took five times as much."""
    (_, line) = local_variables.shown("=x=" + "a b " * 2990)
    assert line.startswith("    x = a b a b") and line.endswith("...")
    assert len(line) < 20 + local_variables.MOST_VALUE


def test_lines_of_a_traceback_are_fit_for_a_terminal(made: Made) -> None:
    run = begin(made)
    raised.hear(made.agent, run, os.getpid(), "E", "", "one\x1b[2J\ntwo\udcff\r\n")
    assert kept(made) == [f"Process {os.getpid()}\none\\x1b[2J\ntwo\\udcff\\x0d\n"]


def test_a_page_for_a_person_has_it_as_python_has_it() -> None:
    about = Artifact("traceback", "text/plain", 7, 0.0, 0.0)
    head, *lines = command.page(f"Process 7\n{TRACEBACK}".rstrip(), Style(80), about)
    assert head == "An exception ended a Python: process 7, 1970-01-01 00:00:00"
    assert lines == TRACEBACK.splitlines()
