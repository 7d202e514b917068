"""Who of the job's own has called what waits: by the frames of the thread that tells the cause."""

from __future__ import annotations

import dataclasses

import pytest

from condor_joblens.profiles import caller
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.thread import INTERPRETER_LOCK, Frame, Thread

C = "/usr/lib/x86_64-linux-gnu/libc.so.6"
CXX = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"
RECO, TREE = "/home/alice/reco", "/cvmfs/x.org/lib/libTree.so.6"
PYTHON = "/usr/bin/python3.11"
START = [Frame("", C, 7), Frame("__libc_start_main", C), Frame("_start", RECO)]
WAITS = "void std::condition_variable::wait<take(std::mutex&)::{lambda()#1}>(std::unique_lock<std::mutex>&)"


def of(*frames: Frame, call: str = "read") -> str:
    found = caller.of(Thread(10, 10, 1, "reco", "S", 5.0, call, (), frames=frames))
    return caller.words(found) if found is not None else ""


@pytest.mark.parametrize(
    ("frames", "called"),
    [
        ([Frame("read", C), Frame("Tree::fill(int)", RECO), Frame("main", RECO), *START], "Tree::fill(int)"),
        ([Frame("recv", C), Frame("TFile::Open(char const*)", TREE)], "TFile::Open(char const*) in libTree.so.6"),
        ([Frame("recv", C), Frame("", TREE, 0x1234), Frame("main", RECO)], "libTree.so.6+0x1234"),
        ([Frame("recv", C), Frame("", RECO, 0x1234), Frame("main", RECO)], ""),
        ([Frame("__lll_lock_wait", C), Frame("", CXX, 9), Frame(WAITS, RECO), Frame("take(std::mutex&)", RECO)],
         "take(std::mutex&)"),
        ([Frame("pthread_cond_wait", C), Frame("std::string work::next<int>(int)", RECO)],
         "std::string work::next<int>(int)"),
        ([Frame("", "/lib64/ld-2.31.so", 3), Frame("", "[vdso]", 4), Frame("(anonymous namespace)::f(int)", RECO)],
         "(anonymous namespace)::f(int)"),
        (START, ""),
        ([], ""),
        # code without a table: whether this one has called is not known
        ([Frame("read", C), Frame("", "", 0x7F00), Frame("main", RECO, is_guessed=True)], ""),
        ([Frame("read", C), Frame("fill", RECO, is_guessed=True)], ""),
    ],
)  # fmt: skip
def test_the_innermost_function_that_is_no_languages_library(frames: list[Frame], called: str) -> None:
    assert of(*frames) == called


@pytest.mark.parametrize(
    ("call", "frames", "called"),
    [
        ("recvfrom", [Frame("recv", RECO), Frame("load(int)", RECO)], "load(int)"),
        ("read", [Frame("__libc_read", RECO), Frame("read", RECO), Frame("load", RECO)], "load"),
        ("futex", [Frame("runtime.futex.abi0", RECO), Frame("runtime.park_m", RECO), Frame("main.load", RECO)],
         "main.load"),
    ],
)  # fmt: skip
def test_in_a_program_that_has_its_libraries_in_itself(call: str, frames: list[Frame], called: str) -> None:
    assert of(*frames, call=call) == called


def test_a_function_of_the_jobs_own_may_be_called_as_one_of_the_c_librarys() -> None:
    assert of(Frame("__read", C), Frame("read", RECO), call="read") == "read"


def test_functions_of_python_come_first_and_of_them_the_jobs_own() -> None:
    own = Frame("load", "/home/alice/fit.py", line=7, is_python=True)
    installed = Frame("urlopen", "/usr/lib/python3.11/urllib/request.py", line=216, is_python=True)
    frames = [Frame("recv", C), Frame("sock_recv", PYTHON), installed, Frame("work", TREE)]
    assert of(*frames, own) == "fit.py:7 load()"
    assert of(*frames) == "request.py:216 urlopen()"
    assert of(Frame("recv", C), Frame("sock_recv", PYTHON)) == "", "one whose frames can't be read"


def test_what_of_pythons_library_has_been_called_is_told_with_its_caller() -> None:
    library = "/usr/lib/python3.11/"
    waits = Frame("Condition.wait", f"{library}threading.py", line=320, is_python=True)
    get = Frame("Queue.get", f"{library}queue.py", line=171, is_python=True)
    own = Frame("load", "/home/alice/fit.py", line=7, is_python=True)
    main = Frame("<module>", "/home/alice/fit.py", line=15, is_python=True)
    called = "fit.py:7 load()"
    for frames, words in (
        ((Frame("futex", C), waits, get, own, main), f"{called} through queue.py:171 Queue.get()"),
        ((Frame("read", C), own, main, get), called),
        ((waits, get), "threading.py:320 Condition.wait()"),
    ):
        thread = Thread(10, 10, 1, "python3", "S", 5.0, "futex", (), frames=frames)
        assert Evidence([thread], "unknown", "it waits", 10).sentence == f"it waits; called by {words}"


def test_a_name_that_would_fill_a_page_is_cut() -> None:
    name = "f<" + "std::vector<" * 500 + "int" + "> " * 500 + ">()"
    called = of(Frame("read", C), Frame(name, RECO))
    assert len(called) == caller.LONGEST and name.startswith(called[:-2])


def test_the_sentence_ends_with_the_caller_of_the_thread_that_tells() -> None:
    fills = Thread(11, 10, 1, "reco", "S", 5.0, "read", (), frames=(Frame("read", C), Frame("Tree::fill(int)", RECO)))
    first = Thread(10, 10, 1, "reco", "S", 5.0, "futex", (), frames=(Frame("main", RECO),))
    assert Evidence([first, fills], "pipe", "it waits", 11).sentence == "it waits; called by Tree::fill(int)"
    assert Evidence([first, fills], "unknown", "they wait", 0).sentence == "they wait"


def test_where_other_threads_are_is_told_if_one_of_them_is_waited_for() -> None:
    library = "/usr/lib/python3.11/threading.py"

    def waits(tid: int, *frames: Frame, cause: str = "futex") -> Thread:
        return Thread(tid, 10, 1, "reco", "S", 5.0, "futex", (), cause=cause, frames=frames)

    first = waits(10, Frame("_shutdown", library, line=1584, is_python=True))
    installed = waits(11, Frame("wait", library, line=369, is_python=True))
    monitors = [waits(n, *installed.frames, Frame("monitor", "/a/fit.py", line=5, is_python=True)) for n in (12, 13)]
    reads = waits(14, Frame("load", RECO), cause="pipe")
    said = Evidence([first, installed, *monitors, reads], "unknown", "it waits", 10).sentence
    assert said == (
        "it waits; called by threading.py:1584 _shutdown(); "
        "other threads of the process wait in the same way, in fit.py:5 monitor() through threading.py:369 wait()"
    )
    goes_on = dataclasses.replace(monitors[0], object=INTERPRETER_LOCK)
    said = Evidence([first, goes_on], "unknown", "it waits", 10).sentence
    assert said.endswith("_shutdown()"), "with what it has got: it waits otherwise"
    assert Evidence([first, installed], "unknown", "it waits", 10).sentence.endswith("_shutdown()")
    many = [waits(20 + n, Frame(f"work_{n}()", RECO)) for n in range(4)]
    said = Evidence([first, *many], "unknown", "it waits", 10).sentence
    assert said.endswith(
        "; other threads of the process wait in the same way, in work_0(), work_1(), work_2() and elsewhere"
    )


def test_of_a_deadlock_each_threads_place_is_told() -> None:
    threads = [
        Thread(tid, 10, 1, "reco", "S", 5.0, "futex", (), frames=(Frame("futex", C), Frame(f"take_{tid}()", RECO)))
        for tid in (11, 12)
    ]
    both = Evidence(threads, "deadlock", "they wait", 11, cycle=(11, 12))
    assert both.sentence == "they wait; 11 in take_11(), 12 in take_12()"
    assert Evidence(threads, "deadlock", "it waits", 11, cycle=(11,)).sentence == "it waits; called by take_11()"
    assert (both.record()["Cycle"], both.record()["Function"]) == ([11, 12], "take_11()")
