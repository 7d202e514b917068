"""`--via condor_tail` by HTCondor's own command, on a job of the asker's and on another's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from harness import Pool

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


def test_condor_tail_follows(job: str, brisk: Pool) -> None:
    followed = brisk.shell(
        f"timeout 300 joblens tail {job} -f --via condor_tail 2>/dev/null | head -n {LINES}", user="alice"
    )
    assert followed.endswith(LAST)


def test_condor_tail_shows_nobody_else_s_job(job: str, brisk: Pool) -> None:
    done = asked(brisk, job, "condor_tail", "tail", user="bob")
    assert done.returncode == 1 and done.stdout == "", done
    assert "condor_tail ended with" in done.stderr
