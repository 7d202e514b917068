"""Redaction against kept lists: of shapes in which secrets stand, and of harmless command lines."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from condor_joblens.agent.lifecycle.process_events import as_events
from condor_joblens.common.redact import WITHHELD, Redactor, command_line
from condor_joblens.tracer import map_layout

DATA = Path(__file__).parent / "data"
SECRET = re.compile("«([^»]*)»")

HIDDEN_AT_LEAST, TOUCHED_AT_MOST = 0.95, 0.02


def lines(name: str) -> list[str]:
    """The lines of a file of data."""
    found = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line for line in found if line and not line.startswith("#")]


def command(line: str) -> bytes:
    """What the kernel sees of it."""
    return b"\0".join(word.encode() for word in shlex.split(line)) + b"\0"


def texts(commands: list[bytes]) -> list[str]:
    """What is published of each."""
    found: np.ndarray = np.zeros(len(commands), map_layout.PROCESS_EVENT)
    found["kind"], found["command"] = map_layout.PROCESS_EXEC, commands
    found["command_bytes"] = [len(each) for each in commands]
    return [text.decode() for text in as_events(found, np.ones(len(found), "u8"), 0.0)["text"].tolist()]


def visible(line: str, shown: str) -> list[str]:
    """Secrets of the line that are seen."""
    return [secret for secret in SECRET.findall(line) if secret in shown]


def test_shapes_of_secrets_are_hidden() -> None:
    shapes = lines("secret_shapes.txt")
    assert len(shapes) > 139
    plain = [command(SECRET.sub(r"\1", line)) for line in shapes]
    seen = [line for line, each in zip(shapes, plain) if visible(line, command_line(each))]
    assert len(seen) <= (1 - HIDDEN_AT_LEAST) * len(shapes), "\n".join(seen)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_what_python_hides_c_does_not_publish(first: int) -> None:
    shapes = lines("secret_shapes.txt")[first : first + 20]
    for line in shapes:
        plain = command(SECRET.sub(r"\1", line))
        (shown,) = texts([plain])
        assert bool(visible(line, shown)) <= bool(visible(line, command_line(plain))), line


def harmless() -> list[str]:
    """The lines of the file, each with every value of its {A|B|C}."""
    found = []
    for line in lines("harmless_commands.txt"):
        parts = re.split(r"\{([^}]*\|[^}]*)\}", line)
        choices = [part.split("|") if place % 2 else [part] for place, part in enumerate(parts)]
        found += ["".join(chosen) for chosen in itertools.product(*choices)]
    return found


def test_harmless_lines_are_shown_as_they_are() -> None:
    every = harmless()
    assert len(every) >= 1000
    touched = [line for line in every if command_line(command(line)) != " ".join(shlex.split(line))]
    assert len(touched) <= TOUCHED_AT_MOST * len(every), "\n".join(touched)


HOSTILE = [
    *("a-pass", "token", "=:", "--a", "'\"", "key=", "user:", "-p ", "eyJ", "://@", "basic ", "A1b2", "0f", "\\", "%"),
    *("auth: ", "sk-", "AKIA", "-----BEGIN ", "set ", "'a' "),
]


class Steps:
    """Counts the steps of Python that a call takes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: object, event: str, argument: object) -> Steps:
        self.count += 1
        return self


def steps(text: bytes) -> int:
    """How many steps of Python it takes to redact this."""
    counter, before = Steps(), sys.gettrace()
    sys.settrace(counter)
    try:
        command_line(text)
    finally:
        sys.settrace(before)
    return counter.count


@pytest.mark.parametrize("part", HOSTILE)
@pytest.mark.parametrize("separator", ["", " ", "\0", "="])
def test_the_work_grows_as_the_text_does(part: str, separator: str) -> None:
    once = (separator.join([part] * 40)).encode()
    eightfold = (separator.join([part] * 320)).encode()
    command_line(eightfold)  # what is made once, at the first call of a process, is no growth
    assert steps(eightfold) < 10 * steps(once) + 100


def test_of_a_batch_beyond_its_time_nothing_is_shown() -> None:
    clock = itertools.count()
    redactor = Redactor(3, lambda: float(next(clock)))
    shown = [redactor.line(command("/usr/bin/job --pass hunter2")) for _ in range(5)]
    assert shown[:2] == ["/usr/bin/job --pass ***"] * 2 and shown[3:] == [WITHHELD] * 2
