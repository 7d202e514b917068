"""Functions and lines of Python in the stacks of a job, in several versions: against what the job itself has written,
and against py-spy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import CHECKOUT, Slot, until
from test_evidence import ALICE, SECONDS, Look, as_user, look, lookers, seen

from condor_joblens.cli import hang, stacks
from condor_joblens.cli.terminal import Style
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.thread import Frame, Thread

__all__ = ["look", "lookers"]

HERE = Path(__file__).parent
VERSIONS = ["3.9", "3.11", "3.13", "3.14"]
THREADS = 7
Lines = list[tuple[str, str, int]]

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")


class Job:
    """stand_still.py, of Alice, when each of its threads has written where it is."""

    def __init__(self, slot: Slot, folder: Path, command: list[str], root: str = "/") -> None:
        self.folder = folder
        (folder / "told").touch()
        folder.chmod(0o755)
        os.chown(folder / "told", ALICE, ALICE)
        shutil.copy(HERE / "stand_still.py", folder)
        inside = "/" + os.path.relpath(folder, root)

        def act() -> None:
            os.chroot(root)
            os.chdir("/")
            os.setsid()
            as_user(ALICE)
            os.execv(command[0], [*command, f"{inside}/stand_still.py", f"{inside}/told"])

        self.pid = slot.fork(act)
        until(lambda: len((folder / "told").read_text().splitlines()) == THREADS, SECONDS)

    def told(self) -> list[Lines]:
        """The frames of each thread, sorted."""
        lines = (self.folder / "told").read_text().splitlines()
        return sorted([(name, file, line) for name, file, line in json.loads(text)[1]] for text in lines)


@pytest.fixture(params=VERSIONS)
def job(request: pytest.FixtureRequest, slot: Slot) -> Iterator[Job]:
    """In a Python of each version that can be had, as in a container."""
    run = subprocess.run([CHECKOUT / "tests" / "pythons", request.param], stdout=subprocess.PIPE, text=True, check=True)
    root = run.stdout.strip()
    with tempfile.TemporaryDirectory(dir=f"{root}/tmp") as folder:
        yield Job(slot, Path(folder), [f"/usr/bin/python{request.param}"], root)


def waits(evidence: Evidence) -> bool:
    """Whether each thread is where it stays."""
    return len(evidence.threads) == THREADS and all(thread.state == "S" and thread.call for thread in evidence.threads)


def python_frames(thread: Thread) -> list[Frame]:
    return [frame for frame in thread.frames if frame.is_python]


def lines(thread: Thread) -> Lines:
    return [(frame.function, frame.file, frame.line) for frame in python_frames(thread)]


def escaped(told: list[Lines]) -> list[Lines]:
    """As the command line shows names."""
    from condor_joblens.common.errors import printable

    return sorted([(printable(name, 2000), printable(file, 2000), line) for name, file, line in each] for each in told)


def assert_true(evidence: Evidence, told: list[Lines]) -> None:
    """Each function and line is what the job wrote, in its order; none is missing, guessed, or the interpreter's."""
    assert sorted(map(lines, evidence.threads)) == escaped(told)
    for thread in evidence.threads:
        names = [frame.name for frame in thread.frames]
        assert thread.is_whole, names
        assert not any(frame.is_guessed for frame in thread.frames), names
        assert not any("_PyEval_EvalFrameDefault" in name for name in names), names


def test_every_frame_and_line_is_what_the_job_wrote(job: Job, look: Look) -> None:
    found = seen(look, waits)
    assert_true(found, job.told())
    # it is in the call of a function in C, whose caller is Python's, and whose begin is the C library's
    for thread in found.threads:
        assert not thread.frames[0].is_python
        assert not thread.frames[-1].is_python
    text = "\n".join(stacks.page(found, Style()))
    assert "    read  stand_still.py:" in text
    assert "(guessed)" not in text


def test_functions_that_c_calls_are_behind_that_function(job: Job, look: Look) -> None:
    found = seen(look, waits)
    thread = next(each for each in found.threads if any(frame.function == "run_sorted" for frame in each.frames))
    kinds = [frame.function if frame.is_python else "C" for frame in thread.frames]
    compared = next(at for at, kind in enumerate(kinds) if kind.endswith("__lt__"))
    assert kinds[compared + 1] == "C"
    assert kinds[kinds.index("run_sorted") - 1] == "C"
    assert kinds.count("read") == 61


def test_the_same_as_py_spy(job: Job, look: Look) -> None:
    found = seen(look, waits)
    command = [Path(sys.executable).with_name("py-spy"), "dump", "--nonblocking", "--json", "--pid", str(job.pid)]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    # py-spy also tells of the interpreter's own code, by which it calls __init__
    theirs = sorted(
        [
            (frame["name"].rpartition(".")[2], frame["line"])
            for frame in thread["frames"]
            if (frame["name"], frame["filename"]) != ("__init__", "__init__")
        ]
        for thread in json.loads(run.stdout)
    )
    ours = sorted([(name.rpartition(".")[2], line) for name, _, line in each] for each in map(lines, found.threads))
    assert ours == theirs


@pytest.mark.guest
def test_the_python_of_this_machine_and_who_has_called(slot: Slot, look: Look, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="joblens-python", dir="/tmp") as folder:
        job = Job(slot, Path(folder), [os.path.realpath("/usr/bin/python3")])
        found = seen(look, waits)
        assert_true(found, job.told())
        # threads that wait for different things: what each of them waits for, and in which line
        text = "\n".join(hang.page(found, Style()))
        assert "stand_still.py:" in text
