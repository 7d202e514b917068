"""Where a process was when a signal killed it: in words, as an artifact, in the death of its run, and on a terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from agent_node import Made, make
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.agent.lifecycle import crashes
from condor_joblens.agent.output import run_artifacts, run_profiles
from condor_joblens.agent.output.run_profiles import MOST_CRASHES, RunProfiles
from condor_joblens.cli import crash as command
from condor_joblens.cli.terminal import Style
from condor_joblens.jobs.death_sentence import Crashed, RunEnding
from condor_joblens.jobs.run_table import Ended
from condor_joblens.model.metrics import text
from condor_joblens.profiles import crash
from condor_joblens.profiles.crash import MOST_BYTES, MOST_WORDS, Crash, in_words
from condor_joblens.profiles.profile import Frame, Kind
from condor_joblens.shm.artifacts import ArtifactWriter

PROGRAM, LIBC, LIBSTDCXX = "/home/a/reco", "/lib/libc.so.6", "/lib/libstdc++.so.6"
OWN = tuple(Frame(name, file=PROGRAM) for name in ("inner()", "outer()", "main"))
SEGV, TERM = 11, 15


def crashed(*frames: Frame, signal: str = "SIGSEGV") -> Crash:
    return Crash(signal, 1.0, 7, "worker", frames)


def test_three_functions_of_the_top_are_named_with_their_file() -> None:
    more = Frame("__libc_start_main", file=LIBC)
    assert in_words(crashed(*OWN, more)) == "inner() < outer() < main (reco)"
    assert in_words(crashed(OWN[0])) == "inner() (reco)"
    assert in_words(crashed(Frame("reco+0x10", file=PROGRAM))) == "reco+0x10"
    assert in_words(crashed(Frame("inner(int) [clone .cold]", file=PROGRAM))) == "inner(int) (reco)"
    assert in_words(crashed()) == in_words(crashed(Frame("(unknown code)"))) == ""


def test_what_only_raises_the_signal_is_left_out() -> None:
    raising = [Frame("libc.so.6+0x8a1b0", file=LIBC), Frame("raise", file=LIBC), Frame("abort", file=LIBC)]
    assert in_words(crashed(*raising, *OWN, signal="SIGABRT")) == "inner() < outer() < main (reco)"
    ending = [Frame("libstdc++.so.6+0x9d920", file=LIBSTDCXX), Frame("std::terminate()", file=LIBSTDCXX)]
    thrown = [*raising, *ending, Frame("__cxa_throw", file=LIBSTDCXX)]
    assert in_words(crashed(*thrown, *OWN)) == "inner() < outer() < main (reco), by std::terminate"
    # a library's own fault is no raised signal
    fault = Frame("libc.so.6+0x9d920", file=LIBC)
    assert in_words(crashed(fault, *OWN)) == "libc.so.6+0x9d920 < inner() < outer()"
    assert in_words(crashed(*raising)) == "libc.so.6+0x8a1b0 < raise < abort"


TERMINATED = (Frame("abort", file=LIBC), Frame("std::terminate()", file=LIBSTDCXX), Frame("__cxa_throw"), *OWN)


def test_what_nobody_caught_is_said_and_takes_the_place_of_functions() -> None:
    def words(exception: str, text: str, name: str = "inner()") -> str:
        frames = tuple(Frame(name, file=PROGRAM) if frame.function == "inner()" else frame for frame in TERMINATED)
        return in_words(Crash("SIGABRT", 1.0, 7, "worker", frames, exception=exception, text=text))

    where = "inner() < outer() < main (reco), uncaught"
    assert words("int", "") == f"{where} int"
    assert words("std::runtime_error", "no \x1b file") == f'{where} std::runtime_error "no \\x1b file"'
    long = words("a" * 500, "b " * 500, "c" * 20)
    assert len(long) <= MOST_WORDS and long.startswith("c" * 20 + " (reco), uncaught aaa") and "b b b" in long
    assert len(words("a" * 500, "\x1b\u20ac" * 500, "\u20ac" * 500)) <= MOST_WORDS
    through = (Frame("abort", file=LIBC), Frame("__gxx_personality_v0", file=LIBSTDCXX), Frame("_Unwind_Resume"), *OWN)
    assert in_words(Crash("SIGABRT", 1.0, 7, "worker", through, exception="int")) == f"{where} int"
    # an exception that is handled by a program that then calls abort() is none that nobody caught
    assert "uncaught" not in in_words(Crash("SIGABRT", 1.0, 7, "worker", (TERMINATED[0], *OWN), exception="int"))


def test_what_looks_like_a_secret_is_in_no_ad() -> None:
    told = Crash("SIGABRT", 1.0, 7, frames=TERMINATED, exception="E", text="no access with password=hunter2 to it")
    assert "hunter2" not in in_words(told) and "no access with password=***" in in_words(told)
    assert "hunter2" in command.page(told, Style(100))[1]


def test_the_function_of_python_that_called_is_named() -> None:
    python = Frame("load", Kind.PYTHON, "/home/a/fit.py", 42)
    assert in_words(crashed(*OWN, python)) == "inner() < outer() < main (reco), called by load (fit.py:42)"
    assert in_words(crashed(OWN[0], python)) == "inner() < load (fit.py:42) (reco)"


@given(st.lists(st.text(max_size=30).map(lambda text: text * 400), min_size=1, max_size=300))
def test_names_of_any_length_and_kind_fit_and_harm_nobody(names: list[str]) -> None:
    frames = [Frame(name or "f", Kind.PYTHON, f"/{name}", 1, 0, name) for name in names]
    ending = (Frame("std::terminate()", file=LIBSTDCXX),)
    found = Crash("SIGABRT", 1.0, 7, names[0], (*ending, *frames), exception=names[0], text=names[-1])
    words, data = in_words(found), crash.encode(found)
    assert len(words) <= MOST_WORDS and words.isascii() and words.isprintable()
    assert len(data) <= MOST_BYTES and b"\x1b" not in data
    told = crash.decode(data)
    assert told.is_whole == (len(told.frames) == len(found.frames)) and len(told.frames) <= len(found.frames)
    assert all(line.isprintable() for line in command.page(told, Style(100)))


def test_a_crash_is_read_as_it_was_written() -> None:
    found = crashed(Frame("<f>", Kind.PYTHON, "/a.py", 3), *OWN)
    assert crash.decode(crash.encode(found)) == found
    thrown = Crash("SIGABRT", 1.0, 7, frames=TERMINATED, exception="work::Failure", text="it is\tlate")
    assert crash.decode(crash.encode(thrown)) == Crash(**{**vars(thrown), "text": "it is\\tlate"})
    before = crash.record(found)
    del before["Exception"], before["Text"]
    assert crash.decode(json.dumps(before).encode()) == found, "an older version wrote it"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"Frames": 1}', b'{"Frames": [{"Function": 1}]}', b"null"])
def test_what_is_no_crash_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        crash.decode(data)


def test_a_page_says_what_is_not_known() -> None:
    look = Style(100)
    (head, *frames) = command.page(crashed(*OWN), look)
    assert head.startswith("SIGSEGV, process 7, thread worker, ")
    assert frames == ["    inner()  reco", "    outer()  reco", "    main  reco"]
    assert "can't be read" in command.page(crashed(), look)[-1]
    assert "other credentials" in command.page(Crash("SIGSEGV", 1.0, 7, is_ours=False), look)[-1]
    cut = Crash("SIGSEGV", 1.0, 7, frames=OWN, is_whole=False, is_guessed=True)
    assert [line.split()[0] for line in command.page(cut, look)[-2:]] == ["(its", "(part"]


# -- the death of a run


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make(tmp_path, monkeypatch)


def ended(made: Made, signal: int = SEGV) -> tuple[int, int]:
    """A run whose first process (tgid 10) has died; its place and its number."""
    run = made.begin("12.0")
    rows, state = made.node.runs.rows, made.node.runs.state
    number = int(rows["run_number"][run])
    state["death"][run]["main"]["pid"] = 10
    state["death"][run]["main"]["program"] = b"reco"
    ending = RunEnding(signal, 0.0, "", -1, 0, 0.0, False, "", -1)
    made.agent.crashes.died(number, state["death"][run], ending)
    rows["final"][run], rows["death"][run] = True, made.agent.crashes.sentence(number).encode()
    return run, number


def death_of(made: Made, run: int) -> str:
    return text(made.node.runs.rows["death"][run])


def test_a_death_gets_its_functions_when_they_are_told(made: Made) -> None:
    run, number = ended(made)
    assert death_of(made, run) == "SIGSEGV in reco"
    crashes.told(made.agent, number, 10, SEGV, "inner() < main (reco)\x1b")
    assert death_of(made, run) == "SIGSEGV in reco at inner() < main (reco)\\x1b"


def test_another_process_or_signal_is_not_what_the_job_died_of(made: Made) -> None:
    """It may have handled that one."""
    run, number = ended(made, TERM)
    crashes.told(made.agent, number, 11, TERM, "f")
    crashes.told(made.agent, number, 10, SEGV, "f")
    crashes.told(made.agent, number + 1, 10, TERM, "f")
    assert death_of(made, run) == "SIGTERM in reco"


def test_the_last_row_of_a_run_that_is_over_is_put_right(made: Made, tmp_path: Path) -> None:
    """Readers get it once more, also after its connections have settled."""
    made.node.ended = Ended(str(tmp_path / "ended"), os.getgid())
    run, number = ended(made)
    made.node.ended.add(made.node.runs.rows[run])
    sequence = int(made.node.runs.rows["sequence"][run])
    made.node.runs.remove(run)
    crashes.told(made.agent, number, 10, SEGV, "f")
    crashes.told(made.agent, number, 10, SEGV, "f")
    (row,) = made.node.ended.rows
    assert (text(row["death"]), bool(row["corrects"])) == ("SIGSEGV in reco at f", True)
    assert int(row["sequence"]) == sequence + 1


def test_one_that_is_told_before_the_end_is_in_the_first_sentence(made: Made) -> None:
    run = made.begin("12.0")
    number = int(made.node.runs.rows["run_number"][run])
    crashes.told(made.agent, number, 10, SEGV, "f")
    assert death_of(made, run) == ""
    assert made.agent.crashes.of(number) == {10: Crashed(SEGV, "f")}
    made.agent.crashes.forget(number)
    assert made.agent.crashes.of(number) == {}


def test_of_a_run_the_first_crash_and_the_last_ones_are_kept(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = made.agent.output.artifacts
    folder = str(tmp_path / "artifacts")
    artifacts.store = ArtifactWriter(folder, run_artifacts.limits(made.node.config, folder))
    profiles = RunProfiles(artifacts)
    run = made.begin("12.0")
    number = int(made.node.runs.rows["run_number"][run])
    profiles.begin(run)
    for when in range(2 * MOST_CRASHES):
        profiles.keep_crash(number, float(when), crash.encode(crashed(*OWN)))
    kept = artifacts.store.stored(number)
    assert len(kept) == MOST_CRASHES and all(each.name.endswith(f".{run_profiles.CRASH}") for each in kept)
