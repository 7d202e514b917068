"""`--via condor_tail` and `--via ssh` by HTCondor's own commands, on a job of the asker's and on another's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from harness import SCRIPTS, Pool

pytestmark = pytest.mark.every_suite

LINES = 30
SAYS = f"i=0; while test $i -lt {LINES}; do i=$((i+1)); echo line $i; done; echo wrong >&2; echo more >result.txt"
JOB = f"""
executable = /bin/sh
arguments = "-c '{SAYS}; exec sleep 100003'"
should_transfer_files = yes
transfer_output_files = result.txt
queue
"""
LAST = "".join(f"line {number}\n" for number in range(LINES - 1, LINES + 1))


@pytest.fixture(scope="module")
def job(brisk: Pool) -> Iterator[str]:
    cluster = brisk.submit(JOB)
    name = f"{cluster}.0"
    brisk.until(lambda: LAST in brisk.run("joblens", "tail", name, user="alice", check=False).stdout, "what it says")
    yield name
    brisk.run("condor_rm", str(cluster))


def asked(pool: Pool, job: str, way: str, *arguments: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
    return pool.run("joblens", arguments[0], job, *arguments[1:], "--via", way, user=user, check=False)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("tail", "-n", "2"), LAST),
        (("tail", "-n", "0"), ""),
        (("tail", "stderr"), "wrong\n"),
        (("tail", "result.txt"), "more\n"),
    ],
)
def test_condor_tail_tells_the_same(arguments: tuple[str, ...], said: str, job: str, brisk: Pool) -> None:
    done = asked(brisk, job, "condor_tail", *arguments)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    assert done.stderr.startswith("joblens: condor_tail: it reaches stdout, stderr and names in transfer_output_files")


def follows_whole(pool: Pool, job: str, way: str) -> None:
    """Who follows it that way has all that it said."""
    command = SCRIPTS / "run", "--pool", pool.name, "--as", "alice", "timeout", "300", "joblens", "tail", job, "-f"
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    # not by head in a pipe: condor_tail hears of its end when it writes, and the job says no more
    with subprocess.Popen((*command, "-n", str(LINES), "--via", way), stdout=pipe, stderr=nowhere, text=True) as tail:
        assert tail.stdout is not None
        lines = [tail.stdout.readline() for _ in range(LINES)]
        tail.terminate()
    assert "".join(lines).endswith(LAST)


def test_condor_tail_follows(job: str, brisk: Pool) -> None:
    follows_whole(brisk, job, "condor_tail")


def test_condor_tail_shows_nobody_else_s_job(job: str, brisk: Pool) -> None:
    done = asked(brisk, job, "condor_tail", "tail", user="bob")
    assert done.returncode == 1 and done.stdout == "", done
    assert "condor_tail ended with" in done.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("tail", "-n", "2"), LAST),
        (("tail", "stderr"), "wrong\n"),
        (("tail", "result.txt"), "more\n"),
        (("ls",), "result.txt\n"),
        (("ps",), "sleep 100003\n"),
    ],
)
def test_ssh_tells_the_same(arguments: tuple[str, ...], said: str, job: str, brisk: Pool) -> None:
    done = asked(brisk, job, "ssh", *arguments)
    assert done.returncode == 0 and said in done.stdout, done
    assert done.stderr.startswith("joblens: condor_ssh_to_job: it ends an ssh session of yours to this job")


def test_ssh_follows(job: str, brisk: Pool) -> None:
    follows_whole(brisk, job, "ssh")


def test_ssh_shows_nobody_else_s_job(job: str, brisk: Pool) -> None:
    done = asked(brisk, job, "ssh", "ps", user="bob")
    assert done.returncode == 1 and done.stdout == "", done
    assert "condor_ssh_to_job ended with" in done.stderr
