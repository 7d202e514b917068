"""Which failure of a process its end is blamed on: what it complained of, or what is rare and happened just before."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.jobs.death_sentence import CAUSE_BYTES
from condor_joblens.jobs.failure_causes import COMMON, RARE, by_code, cause
from condor_joblens.model.failures import Failure, Failures, Subject, all_failures

END = 100.0
EXITED = 1 << 8
FOUR = bytes(10) + b"\xff\xff" + bytes([192, 0, 2, 7])


def missing(path: bytes, before: float = 0.1, error: int = errno.ENOENT) -> Failure:
    return Failure(error, Subject.PATH, END - before, path=path)


def full(before: float = 0.1, error: int = errno.ENOSPC) -> Failure:
    return Failure(error, Subject.FILE, END - before, path=b"/scratch/out/data", mount=b"/scratch")


def why(*failed: Failure, said: bytes = b"", code: int = EXITED) -> str:
    return cause(Failures(failed, said), code, END)


def test_a_missing_file_that_the_program_complains_of() -> None:
    said = b"bash: line 1: /cvmfs/a/setup.sh: No such file or directory\n"
    assert why(missing(b"/cvmfs/a/setup.sh"), said=said) == "no such file: /cvmfs/a/setup.sh"


def test_a_missing_file_of_which_it_says_nothing_is_not_blamed() -> None:
    assert why(missing(b"/etc/ld.so.preload")) == ""
    assert why(missing(b"/etc/ld.so.preload"), said=b"wrong: No such file or directory: /x/y\n") == ""


@pytest.mark.parametrize(
    "said", [b"make: *** [Makefile:2: data] Error 3\n", b"data is bad\n", b"no such file: data2\n"]
)
def test_a_name_alone_or_a_part_of_one_is_no_complaint(said: bytes) -> None:
    assert why(missing(b"/work/data"), said=said) == ""


def test_a_program_s_own_name_before_its_words_is_no_complaint() -> None:
    said = b"/bin/bash: line 1: /x/setup.sh: No such file or directory\n"
    assert why(missing(b"/x/setup.sh"), missing(b"/usr/local/bin/bash"), said=said) == "no such file: /x/setup.sh"


def test_a_search_that_found_nothing_is_named_by_the_name() -> None:
    tried = [missing(folder + b"/reco") for folder in (b"/usr/local/bin", b"/usr/bin", b"/bin")]
    assert why(*tried, said=b"bash: line 1: reco: command not found\n") == "no such file: reco"


def test_the_last_one_that_fits_is_blamed() -> None:
    said = b"cat: /a/one: No such file or directory\ncat: /a/two: No such file or directory\n"
    assert why(missing(b"/a/one"), missing(b"/a/two"), missing(b"/lib/x"), said=said) == "no such file: /a/two"


def test_no_space_names_the_file_system_and_the_file() -> None:
    assert why(full()) == "no space left on /scratch: /scratch/out/data"
    assert why(full(error=errno.EDQUOT)) == "the quota is used up on /scratch: /scratch/out/data"
    device = Failure(errno.ENOSPC, Subject.DEVICE, END, path=b"/dev/full", mount=b"/dev")
    assert why(device) == "no space left on /dev/full"
    assert why(missing(b"/scratch/new", error=errno.ENOSPC)) == "no space left on /scratch/new"


def test_a_rare_error_long_before_the_end_needs_words() -> None:
    assert why(full(before=60)) == ""
    assert why(full(before=60), said=b"write: No space left on device\n").startswith("no space left on /scratch")


def memory(held: int, asked: int, limit: int) -> Failure:
    return Failure(
        errno.ENOMEM, Subject.MEMORY, END - 0.1, asked_bytes=asked << 30, held_bytes=held << 30,
        limit=limit << 30 if limit > 0 else -1,
    )  # fmt: skip


def test_memory_needs_words_or_a_crash_and_names_the_limit_that_was_met() -> None:
    assert why(memory(1, 2, 2)) == ""
    limited = "not allowed to allocate more memory: limit 2 GiB"
    assert why(memory(1, 2, 2), said=b"MemoryError\n") == limited
    assert why(memory(1, 2, 2), code=signal.SIGSEGV | 0x80) == limited
    assert why(memory(1, 3, -1), said=b"std::bad_alloc") == "not allowed to allocate more memory: 3 GiB more"


def test_servers_are_named_by_address_and_port() -> None:
    refused = Failure(errno.ECONNREFUSED, Subject.SERVER, END - 1, address=FOUR, port=1094)
    assert why(refused) == "connection refused by 192.0.2.7:1094"
    six = Failure(errno.ENETUNREACH, Subject.SERVER, END - 1, address=b"\x20\x01" + bytes(13) + b"\1", port=443)
    assert why(six) == "no way to [2001::1]:443"


def test_who_was_told_to_end_did_not_end_of_a_failure() -> None:
    assert why(full(), code=signal.SIGTERM) == why(full(), code=signal.SIGKILL) == ""
    assert why(full(), code=0) == ""


def test_what_failed_after_the_end_is_another_s() -> None:
    assert why(full(before=-5)) == ""


def test_paths_are_escaped_without_secrets_and_without_their_middle() -> None:
    path = b"/x/\x1b[31m\n"
    assert why(missing(path), said=b"cat: " + path + b": No such file") == "no such file: /x/\\x1b[31m\\x0a"
    long = b"/cvmfs" + b"/folder" * 50 + b"/setup.sh"
    shown = why(missing(long), said=b"cat: " + long + b": no such file")
    assert shown.startswith("no such file: /cvmfs/folder/") and shown.endswith("/folder/setup.sh") and "..." in shown


def test_every_error_has_words_that_its_own_text_meets() -> None:
    texts = {error: os.strerror(error).lower().encode() for error in (*COMMON, *RARE)}
    for error in COMMON:
        assert why(missing(b"/a/name", error=error), said=texts[error] + b": name\n"), os.strerror(error)
    for error in RARE:
        failure = Failure(error, Subject.DESCRIPTORS, END - 60)
        assert why(failure, said=texts[error]), os.strerror(error)


FAILURES = st.builds(
    Failure,
    error=st.sampled_from([*COMMON, *RARE, 9999]),
    subject=st.sampled_from(Subject),
    time=st.floats(0, 2 * END),
    path=st.binary(max_size=400),
    mount=st.binary(max_size=400),
    asked_bytes=st.integers(0, 2**64),
    held_bytes=st.integers(0, 2**64),
    limit=st.integers(-1, 2**64),
    address=st.binary(min_size=16, max_size=16),
    port=st.integers(0, 65535),
)


@given(st.lists(FAILURES, max_size=16), st.binary(max_size=768), st.integers(0, 0xFFFF))
def test_whatever_the_kernel_has_kept_makes_a_line_that_fits(failed: list[Failure], said: bytes, code: int) -> None:
    words = why(*failed, said=said, code=code)
    assert words.isprintable()
    assert len(words.encode()) <= CAUSE_BYTES


def test_what_several_sources_know_of_a_process_is_in_its_order() -> None:
    late = Failure(errno.ECONNREFUSED, Subject.SERVER, END - 0.1, address=FOUR, port=1094)
    early = Failure(errno.ENOSPC, Subject.DEVICE, END - 0.5, path=b"/dev/full")
    known = all_failures([Failures((late,)), Failures((early,), b"no way")])
    assert known == Failures((early, late), b"no way")
    assert all_failures([]) == Failures()


# -- what a process was asked to do, at level basic where nobody hears what it says ---------------------------------


def asked(failure: Failure, *arguments: bytes, code: int = EXITED) -> str:
    return cause(Failures((failure,), arguments=arguments), code, END)


def unexecuted(path: bytes, before: float = 0.1, error: int = errno.ENOENT) -> Failure:
    return Failure(error, Subject.PROGRAM, END - before, path=path)


def test_a_file_that_an_argument_names_is_blamed_without_a_word() -> None:
    assert asked(missing(b"/data/in.root"), b"cat", b"/data/in.root") == "no such file: /data/in.root"
    assert asked(missing(b"/data/in.root"), b"dd", b"if=/data/in.root") == "no such file: /data/in.root"
    assert asked(missing(b"/work/fit.py"), b"python3", b"fit.py") == "no such file: /work/fit.py"
    assert asked(missing(b"/x/a=b"), b"cat", b"/x/a=b", b"") == "no such file: /x/a=b"


@pytest.mark.parametrize(
    "arguments",
    [(), (b"",), (b"/",), (b"cat",), (b"/other/in.root",), (b"in.root2",), (b". /data/in.root; echo",), (b"root",)],
)
def test_a_file_that_no_argument_names_is_not(arguments: tuple[bytes, ...]) -> None:
    assert asked(missing(b"/data/in.root"), *arguments) == ""


def test_a_file_that_an_argument_names_is_not_blamed_long_after_nor_for_a_signal() -> None:
    assert asked(missing(b"/data/in.root", before=3.0), b"/data/in.root") == ""
    assert asked(missing(b"/data/in.root"), b"/data/in.root", code=signal.SIGSEGV) == ""


def test_a_program_that_could_not_be_executed_is_blamed_by_the_code_that_says_so() -> None:
    assert asked(unexecuted(b"/opt/reco"), code=127 << 8) == "no such file: /opt/reco"
    assert asked(unexecuted(b"/opt/reco", error=errno.EACCES), code=126 << 8) == "permission denied: /opt/reco"
    assert asked(unexecuted(b"/opt/reco")) == ""
    assert asked(unexecuted(b"/opt/reco", before=3.0), code=127 << 8) == ""


def test_arguments_are_kept_of_whoever_knows_them() -> None:
    parts = [Failures(said=b"a"), Failures(arguments=(b"cat",)), Failures()]
    assert all_failures(parts) == Failures((), b"a", (b"cat",))


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (b"job.sh: line 3: reco: command not found\n", 127 << 8, "no such command: reco"),
        (b"first\nsh: 1: ./my tool: not found\n", 127 << 8, "no such command: ./my tool"),
        (b"zsh: command not found: reco\n", 127 << 8, ""),
        (b"job.sh: line 3: reco: command not found\n", 5 << 8, ""),
        (b"a: b: not found\nand more\n", 127 << 8, ""),
        (b"x: \x1b[2J: command not found\n", 127 << 8, "no such command: \\x1b[2J"),
        (b"x: " + 300 * b"y" + b": not found\n", 127 << 8, f"no such command: {20 * 'y'}...{30 * 'y'}"),
    ],
)
def test_a_command_that_a_shell_says_it_did_not_find(said: bytes, code: int, words: str) -> None:
    assert why(said=said, code=code) == words


def test_what_an_exit_code_says_by_itself() -> None:
    assert by_code(127 << 8) == "as shells do if a command is not found"
    assert by_code(126 << 8) == "as shells do if a command can't be executed"
    assert by_code(127) == by_code(1 << 8) == by_code(0) == ""
