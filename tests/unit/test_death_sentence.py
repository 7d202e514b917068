"""Why a job died: the sentence, from what was kept of its processes' ends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.jobs import death_sentence
from condor_joblens.jobs.death_sentence import DEATH, EXIT, KEPT, Raised, RunEnding, program_of

GIB = 1 << 30
NOW = 1_700_000_000.0
PLAIN = RunEnding(
    code=0, time=NOW, command="payload", checkpoint_code=-1, signal=0, signal_age=0.0, by_htcondor=False, sender="",
    limit_bytes=-1,
)  # fmt: skip


def end(program: str, code: int, pid: int = 10, parent: int = 1, before: float = 0.0) -> np.ndarray:
    found: np.ndarray = np.zeros(1, EXIT)
    found["program"], found["code"], found["pid"], found["parent"] = program.encode(), code, pid, parent
    found["time"], found["lived"] = NOW - before, 3.0
    return found


def kept(*ends: np.ndarray, main: np.ndarray | None = None) -> np.ndarray:
    death: np.ndarray = np.zeros(1, DEATH)
    for one in ends:
        death_sentence.keep(death, one)
    if main is not None:
        death["main"] = main
        if main["code"][0]:
            death_sentence.keep(death, main)
    return death


def why(death: np.ndarray, code: int, **known: object) -> str:
    return death_sentence.sentence(death[0], dataclasses.replace(PLAIN, code=code, **known))  # type: ignore[arg-type]


def test_a_job_that_ended_well_did_not_die() -> None:
    assert why(kept(end("xrdcp", 54 << 8), main=end("job", 0, 1, 0)), 0) == ""


def test_a_checkpoint_is_no_death_and_another_code_is() -> None:
    main = end("job", 85 << 8, 1, 0)
    assert why(kept(main=main), 85 << 8, checkpoint_code=85) == ""
    assert why(kept(main=main), 85 << 8, checkpoint_code=86) == "job exited 85"


def test_the_first_failure_is_told_with_its_time() -> None:
    death = kept(end("xrdcp", 54 << 8, 11, 10, before=12), end("payload.py", 1 << 8, 10, 1), main=end("sh", 256, 1, 0))
    assert why(death, 256) == "payload.py exited 1; first failure: xrdcp exited 54, 12 s before"


def test_a_first_failure_that_is_the_death_itself_is_not_said_twice() -> None:
    # what lay between the two was not seen
    death = kept(end("reco", 3 << 8, 12, 11, before=0.1), end("reco", 3 << 8, 10, 1), main=end("sh", 3 << 8, 1, 0))
    assert why(death, 3 << 8) == "reco exited 3"
    again = kept(end("reco", 3 << 8, 12, 11, before=30), end("reco", 3 << 8, 10, 1), main=end("sh", 3 << 8, 1, 0))
    assert why(again, 3 << 8) == "reco exited 3; first failure: reco exited 3, 30 s before"


def test_a_job_that_ended_well_tells_what_failed_in_it_first() -> None:
    ends = (end("grep", 1 << 8, 9, before=20), end("xrdcp", 54 << 8, 11, before=12), end("reco", 3 << 8, 12))
    death = kept(*ends, main=end("job", 0, 1, 0))
    assert death_sentence.first_failure(death[0], PLAIN) == "xrdcp exited 54, 12 s before the end"
    assert death_sentence.first_failure(death[0], dataclasses.replace(PLAIN, code=256)) == ""
    assert death_sentence.first_failure(kept(ends[0])[0], PLAIN) == ""


def test_a_job_whose_program_is_not_there_did_not_die_of_its_wrapper() -> None:
    missing = "payload did not start: it, or the interpreter in its first line, is not on the node (exit code 127)"
    assert why(kept(main=end("joblens_wrapper", 127 << 8, 1, 0)), 127 << 8) == missing
    main = end("joblens_wrapper", 126 << 8, 1, 0)
    assert why(kept(main=main), 126 << 8) == "payload did not start: it can't be executed (exit code 126)"
    assert why(kept(main=main), 126 << 8, command="") == "the job did not start: it can't be executed (exit code 126)"
    inner = end("make", 127 << 8, 9, 1)
    assert why(kept(inner, main=end("joblens_wrapper", 127 << 8, 1, 0)), 127 << 8) == "make exited 127"


def test_the_last_process_that_a_signal_ended() -> None:
    assert death_sentence.last_killed(kept()[0], NOW) == ""
    ends = end("worker.py", 9, 12, before=360.0), end("head", 13, 13), end("xrdcp", 54 << 8, 14)
    assert death_sentence.last_killed(kept(*ends)[0], NOW) == "SIGKILL in worker.py (process 12), 6 min ago"


def test_a_signal_with_a_core() -> None:
    assert why(kept(main=end("reco", 11 | 0x80, 1, 0)), 11 | 0x80) == "SIGSEGV in reco (core dumped)"


def test_a_shell_passes_a_signal_on_as_128_and_its_number() -> None:
    death = kept(end("reco", 11 | 0x80, 10, 1), main=end("sh", 139 << 8, 1, 0))
    assert why(death, 139 << 8) == "SIGSEGV in reco (core dumped)"


def test_wrappers_that_pass_a_code_on_are_followed_inwards() -> None:
    wrapped = (end("a", 3 << 8, 12, 11), end("b", 3 << 8, 11, 10), end("c", 3 << 8, 10, 1))
    death = kept(*wrapped, main=end("d", 3 << 8, 1, 0))
    assert why(death, 3 << 8) == "a exited 3"


def test_a_code_of_its_own_is_the_first_process_s() -> None:
    death = kept(end("a", 3 << 8, 10, 1, before=5), main=end("d", 4 << 8, 1, 0))
    assert why(death, 4 << 8) == "d exited 4; first failure: a exited 3, 5.0 s before"


def test_a_code_that_a_child_had_before_others_failed_is_not_passed_on() -> None:
    curl, copy, main = end("curl", 7 << 8, 10, before=17), end("cp", 1 << 8, 11, before=2), end("job.sh", 7 << 8, 1, 0)
    assert why(kept(curl, copy, main=main), 7 << 8) == "job.sh exited 7; first failure: curl exited 7, 17 s before"
    assert why(kept(curl, main=main), 7 << 8) == "curl exited 7", "what ended well after it may have been a cleanup"
    tidy = end("grep", 1 << 8, 12, before=2)
    assert why(kept(curl, tidy, main=main), 7 << 8) == "curl exited 7", "no is an answer"
    other = end("cp", 1 << 8, 11, parent=10, before=18)
    assert why(kept(other, curl, main=main), 7 << 8) == "curl exited 7; first failure: cp exited 1, 1.0 s before"
    killed = end("worker", 15, 13, before=2)
    assert why(kept(curl, killed, main=main), 7 << 8) == "curl exited 7", "its parent has ended the others"
    at_once = end("curl", 7 << 8, 10, before=0.5), end("cp", 1 << 8, 11, before=0.2)
    assert why(kept(*at_once, main=main), 7 << 8) == "curl exited 7"


def test_an_answer_and_a_broken_pipe_are_no_failures() -> None:
    ends = (end("grep", 1 << 8, 11, before=9), end("cat", 13, 12), end("xrdcp", 2 << 8, 13, 5))
    death = kept(*ends, main=end("job", 256, 1, 0))
    assert why(death, 256) == "job exited 1; first failure: xrdcp exited 2, 0.0 s before"


def test_out_of_memory_says_who_held_how_much_of_what() -> None:
    death = kept(main=end("root.exe", 9, 1, 0))
    death["victim"], death["victim_bytes"] = end("root.exe", 9, 1, 0), int(3.98 * GIB)
    assert why(death, 9, limit_bytes=4 * GIB) == "out of memory: root.exe held 3.98 GiB of 4 GiB"
    assert why(death, 9) == "out of memory: root.exe held 3.98 GiB"


def test_htcondor_s_kill_after_the_oom_killer_s_is_out_of_memory() -> None:
    death = kept(end("worker", 9, 10, 1, before=3), main=end("sh", 9, 1, 0))
    death["victim"], death["victim_bytes"] = end("worker", 9, 10, 1, before=3), GIB
    told = {"signal": 9, "signal_age": 0.1, "by_htcondor": True, "sender": "condor_starter"}
    assert why(death, 9, limit_bytes=GIB, **told) == "out of memory: worker held 1 GiB of 1 GiB"


def test_an_old_victim_is_not_why() -> None:
    death = kept(end("worker", 9, 10, 1, before=5000), main=end("sh", 256, 1, 0))
    death["victim"] = end("worker", 9, 10, 1, before=5000)
    assert why(death, 256).startswith("sh exited 1; first failure: SIGKILL in worker, 83 min before")


@pytest.mark.parametrize("code", [15, 0, 143 << 8])
def test_who_was_told_to_end_by_htcondor_did_so(code: int) -> None:
    told = {"signal": 15, "signal_age": 4.0, "by_htcondor": True, "sender": "condor_starter"}
    assert why(kept(main=end("job", code, 1, 0)), code, **told) == "ended by HTCondor (SIGTERM)"


def test_a_signal_of_hours_ago_is_not_why() -> None:
    told = {"signal": 12, "signal_age": 7200.0, "by_htcondor": True, "sender": "condor_starter"}
    assert why(kept(main=end("job", 256, 1, 0)), 256, **told) == "job exited 1"


def test_a_stranger_s_signal_names_the_stranger() -> None:
    told = {"signal": 9, "signal_age": 0.0, "sender": "ki\nll"}
    assert why(kept(main=end("job", 9, 1, 0)), 9, **told) == "SIGKILL in job, sent by ki\\x0all"


def test_where_no_process_was_seen_the_code_alone_is_told() -> None:
    assert why(kept(), 7 << 8) == "payload exited 7"
    assert why(kept(), 7 << 8, command="") == "the job exited 7"


def test_a_program_called_as_what_htcondor_does_is_a_program() -> None:
    """These words decide what the schedd says of the job, and whether there is an event."""
    assert why(kept(main=end("ended by HTCondor", 256, 1, 0)), 256) == "program ended by HTCondor exited 1"


def test_a_transferred_executable_has_its_own_name() -> None:
    assert why(kept(main=end("condor_exec.exe", 256, 1, 0)), 256) == "payload exited 1"


@pytest.mark.parametrize(
    ("name", "arguments", "program"),
    [
        ("python3", "python3 payload.py --x", "payload.py"),
        ("python3.11", "/usr/bin/python3.11 -u -W ignore /a/payload.py", "payload.py"),
        ("python3", "python3 -m http.server", "http.server"),
        ("python3", "python3 -c pass", "python3"),
        ("bash", "/bin/bash -e run.sh", "run.sh"),
        ("sh", "sh -c exit", "sh"),
        ("perl", "perl -we die", "perl"),
        ("sh", "sh -ec exit", "sh"),
        ("java", "java -Xmx1g -cp lib.jar -jar /opt/app.jar", "app.jar"),
        ("a_very_long_nam", "/opt/a_very_long_name_indeed -x", "a_very_long_name_indeed"),
        ("exe", "/proc/self/exe -x", "exe"),
        ("payload.py", "", "payload.py"),
    ],
)
def test_a_program_is_called_by_its_script(name: str, arguments: str, program: str) -> None:
    assert program_of(name.encode(), arguments.replace(" ", "\0").encode()) == program


@given(st.binary(max_size=15), st.binary(max_size=128))
def test_any_name_fits_and_is_one_line(name: bytes, command: bytes) -> None:
    program = program_of(name, command)
    assert len(program.encode()) <= death_sentence.PROGRAM_BYTES
    assert program.isprintable() or not any(ord(character) < 32 for character in program)


@given(st.lists(st.integers(1, 255), min_size=1, max_size=60))
def test_the_last_ends_and_the_first_failure_are_kept(codes: list[int]) -> None:
    death = kept(*(end(f"p{n}", code << 8, n + 1) for n, code in enumerate(codes)))
    assert [int(one["code"]) >> 8 for one in death_sentence.last_exits(death[0])] == codes[-KEPT:]
    assert int(death["first"]["code"][0]) >> 8 == codes[0]
    words = death_sentence.exits_in_words(death[0], 320)
    assert len(words) <= 320
    assert words.split(b"; ")[-1].startswith(f"p{len(codes) - 1} exited {codes[-1]} after".encode())


@given(st.integers(0, 1 << 50))
def test_sizes_read_well(size: int) -> None:
    number, unit = death_sentence.in_gib(size).split()
    scale = {"KiB": 1024, "MiB": 1 << 20, "GiB": GIB, "TiB": 1 << 40}[unit]
    assert float(number) * scale == pytest.approx(size, rel=0.01, abs=512)


def raised(death: np.ndarray, code: int, *known: Raised) -> str:
    return death_sentence.sentence(death[0], dataclasses.replace(PLAIN, code=code), raised=known)


def test_an_exception_of_its_python_is_why_a_process_exited() -> None:
    main = end("fit.py", 1 << 8, 10, 1)
    main["cause"] = b"open of x failed"
    known = Raised(10, 0.0, "KeyError: 7 (fit.py:3)")
    assert raised(kept(main=main), 256, known) == "fit.py exited 1: KeyError: 7 (fit.py:3)"
    assert raised(kept(main=main), 256, known, Raised(10, 0.0, "E")) == "fit.py exited 1: E"
    assert raised(kept(main=main), 256, Raised(11, 0.0, "E")) == "fit.py exited 1: open of x failed"
    assert raised(kept(main=end("fit.py", 3 << 8, 10, 1)), 3 << 8, known) == "fit.py exited 3"
    assert raised(kept(main=end("fit.py", 9, 10, 1)), 9, known) == "SIGKILL in fit.py"
    assert raised(kept(main=end("fit.py", 0, 10, 1)), 0, known) == ""


def test_the_exception_is_that_of_the_innermost_process() -> None:
    death = kept(end("fit.py", 256, 11, 10), main=end("job.sh", 256, 10, 1))
    assert raised(death, 256, Raised(11, 0.0, "E"), Raised(12, 0.0, "F")) == "fit.py exited 1: E"


def test_without_process_ids_of_the_kernel_the_beginning_tells_processes_apart() -> None:
    """Ends are told 3 s after they began."""
    death = kept(main=end("fit.py", 256, 10, 1))
    began = NOW - 3.0
    near, far = Raised(0, began + 0.01, "near"), Raised(0, began - 0.4, "far")
    assert raised(death, 256, near, far) == raised(death, 256, far, near) == "fit.py exited 1: near"
    assert raised(death, 256, Raised(0, began - 60, "another")) == "fit.py exited 1"
    assert raised(death, 256, Raised(0, 0.0, "gone")) == "fit.py exited 1"
