"""Scripts run the same with and without what tells of exceptions that end them, and what it tells is right."""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hooked_python import IN_A_SYSTEM, SCRIPTS, SECONDS, VARIABLES, Hearer, Script, are_right, build, compiled, run


@pytest.fixture(scope="module")
def short() -> Iterator[Path]:
    """Short, unlike pytest's own: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="joblens-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def hook(short: Path) -> str:
    return str(build(short / "hook", f"{short}/s"))


@pytest.fixture
def hearer(short: Path) -> Iterator[Hearer]:
    (short / "s").unlink(missing_ok=True)
    with Hearer(short) as hearer:
        yield hearer


@pytest.mark.parametrize("script", [*SCRIPTS, *IN_A_SYSTEM], ids=lambda script: script.name)
def test_a_script_does_the_same_and_its_end_is_told(script: Script, short: Path, hook: str, hearer: Hearer) -> None:
    bare = run([sys.executable], script, short / "job", "")
    assert hearer.told == []
    hooked = run([sys.executable], script, short / "job", hook)
    assert hooked == bare
    lines = [told["line"] for told in hearer.told]
    assert len(lines) == len(script.tells), lines
    for line, begin in zip(lines, script.tells):
        assert line.startswith(begin)


@pytest.fixture(scope="module")
def hasty(short: Path) -> str:
    """One that waits for a third of a second."""
    return str(build(short / "hasty", f"{short}/s", 300))


@pytest.fixture(scope="module")
def printer(short: Path) -> Path:
    return compiled(Path(__file__).with_name("prints_exceptions.c"), short / "printer.so")


def prints(printer: Path, count: int) -> Script:
    """A program whose own thread prints so many exceptions, and that goes on."""
    return Script("prints", f"import ctypes\nctypes.CDLL({str(printer)!r}).print_exceptions({count})\nprint('well')\n")


@contextmanager
def silent(folder: Path, backlog: int = 64) -> Iterator[socket.socket]:
    """A socket where nobody answers."""
    (folder / "s").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as listening:
        listening.bind(str(folder / "s"))
        listening.listen(backlog)
        yield listening


def came(listening: socket.socket) -> int:
    """How many have connected."""
    for count in range(1000):
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return count
    return 1000


def test_a_program_that_prints_exceptions_in_a_loop_tells_two(
    short: Path, hook: str, hearer: Hearer, printer: Path
) -> None:
    script = prints(printer, 50)
    bare = run([sys.executable], script, short / "job", "")
    assert bare.errors.count(b"ValueError: printed") == 50
    assert run([sys.executable], script, short / "job", hook) == bare
    assert [told["line"] for told in hearer.told] == ["ValueError: printed"] * 2


def test_a_program_that_is_not_answered_once_asks_no_more(short: Path, hasty: str, printer: Path) -> None:
    script = prints(printer, 3000)  # each would wait for a third of a second
    bare = run([sys.executable], script, short / "job", "")
    with silent(short) as listening:
        assert run([sys.executable], script, short / "job", hasty) == bare
        assert came(listening) == 1


DIVIDES = next(script for script in SCRIPTS if script.name == "divides")


def test_where_nobody_listens_a_script_ends_as_it_would(short: Path, hook: str) -> None:
    (short / "s").unlink(missing_ok=True)
    bare = run([sys.executable], DIVIDES, short / "job", "")
    assert bare.code == 1 and run([sys.executable], DIVIDES, short / "job", hook) == bare


def test_where_nobody_answers_a_script_ends_as_it_would(short: Path, hasty: str) -> None:
    bare = run([sys.executable], DIVIDES, short / "job", "")
    with silent(short) as listening:
        assert run([sys.executable], DIVIDES, short / "job", hasty) == bare
        assert came(listening) == 1


def test_where_too_many_wait_a_script_ends_as_it_would(short: Path, hasty: str) -> None:
    bare = run([sys.executable], DIVIDES, short / "job", "")
    with silent(short, 0) as listening, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.connect(str(short / "s"))
        assert run([sys.executable], DIVIDES, short / "job", hasty) == bare
        assert came(listening) == 1


def test_a_child_that_is_forked_while_another_thread_waits_tells_its_own(short: Path, hook: str, printer: Path) -> None:
    (short / "s").unlink(missing_ok=True)
    job = short / "job"
    text = f"import ctypes\nctypes.CDLL({str(printer)!r}).fork_later()\n{DIVIDES.text}"
    answered = threading.Event()

    def first() -> None:
        if len(hearer.told) == 1:
            (job / "go").touch()
            threading.Thread(target=hearer.serve_one).start()
            answered.wait(SECONDS)
        else:
            answered.set()

    with Hearer(short, before_answer=first) as hearer:
        run([sys.executable], Script("forks", text), job, hook)
    assert [told["line"] for told in hearer.told] == [*DIVIDES.tells, "ValueError: of the child"]


def test_local_variables_follow_if_they_are_wanted_and_no_code_of_the_jobs_runs_for_them(
    short: Path, hook: str, hearer: Hearer
) -> None:
    bare = run([sys.executable], VARIABLES, short / "job", "")
    assert run([sys.executable], VARIABLES, short / "job", hook) == bare
    are_right(hearer.variables)
    hearer.wants_variables = False
    assert run([sys.executable], VARIABLES, short / "job", hook) == bare
    assert (len(hearer.told), len(hearer.variables)) == (2, 1)


def test_local_variables_are_bounded(short: Path, hook: str, hearer: Hearer) -> None:
    names = "\n    ".join(f"{'n' * 90}{number} = {'x' * 300!r}" for number in range(40))
    text = f"def deep(n):\n    {names}\n    return deep(n - 1) if n else 1 / 0\n\n\ndeep(30)\n"
    run([sys.executable], Script("many", text), short / "job", hook)
    (lines,) = hearer.variables
    assert sum(map(len, lines)) + len(lines) <= 12000 and len(lines) > 40
    assert lines[:2] == [f"@deep, {short}/job/script.py:42", "=n=0"]
    assert lines[2] == f"~{'n' * 90}0='{'x' * 120}'" and lines[25].startswith("@deep")


def test_of_a_function_with_very_many_names_the_first_are_looked_at(short: Path, hook: str, hearer: Hearer) -> None:
    """From 3.12 on Python looks for each one among all: with 20,000 names a job ended a minute later."""
    names = "\n".join(f"        v{number} = 1" for number in range(300))
    text = f"def f(first):\n    if not first:\n{names}\n    last = first\n    1 / 0\n\n\nf(7)\n"
    run([sys.executable], Script("many names", text), short / "job", hook)
    ((head, *variables, module),) = hearer.variables
    assert (head.partition(",")[0], variables, module.partition(",")[0]) == ("@f", ["=first=7"], "@<module>")
