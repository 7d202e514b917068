"""A job hears what it is told, and says how far it is, by files of its folder: in a container too.

Neither file comes home with its output.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import NEWEST, Pool
from test_job_kinds import CONTAINER, MAKE_IMAGE

HEARS = "until test -s $_CONDOR_SCRATCH_DIR/.joblens/notices; do /bin/sleep 1; done"
KEEPS = "while read line; do echo $line; done <$_CONDOR_SCRATCH_DIR/.joblens/notices >heard"
FOLDER = "$_CONDOR_SCRATCH_DIR/.joblens"
SAYS = f"/bin/mkdir -p {FOLDER}; echo 30% step 3 of 10 >{FOLDER}/progress"
IMAGE = MAKE_IMAGE.replace("/bin/sh /bin/sleep", "/bin/sh /bin/sleep /bin/mkdir")
JOB = f"""
executable = /bin/sh
arguments = "-c '{SAYS}; {HEARS}; {KEEPS}'"
should_transfer_files = yes
when_to_transfer_output = on_exit
"""
HOME = "/home/alice/notified"


@pytest.fixture(scope="module")
def pool_of_images(brisk: Pool) -> Iterator[Pool]:
    with brisk.config("SINGULARITY_RUN_TEST_BEFORE_JOB = false"):
        brisk.shell(IMAGE)
        yield brisk


@pytest.mark.parametrize("kind", ["plain", "container"])
def test_it_says_how_far_it_is_and_hears_what_it_is_told(pool_of_images: Pool, kind: str) -> None:
    pool, home = pool_of_images, f"{HOME}-{kind}"
    if kind == "container" and pool.run("which", "apptainer", check=False).returncode != 0:
        assert pool.suite != NEWEST
        pytest.skip("this suite of Debian has no apptainer: the newest one's pool shows it")
    pool.shell(f"rm -rf {home}; mkdir {home}", user="alice")
    container = CONTAINER if kind == "container" else ""
    cluster = pool.submit(f"{container}{JOB}initialdir = {home}\nqueue\n")
    job = f"{cluster}.0"

    def told(user: str, *words: str) -> str:
        done = pool.run("joblens", "notify", job, *words, user=user, check=False)
        return done.stdout + done.stderr

    progress = pool.until(lambda: pool.usage(cluster).get("Progress"), "what it says of itself")
    assert progress == "30 %: step 3 of 10"
    assert "may do this" in told("bob", "nothing")
    said = f"job {job} has it in .joblens/notices of its scratch folder\n"
    assert told("alice", "stop", "at the next $(event)") == said
    pool.wait_ended(cluster)
    came = pool.shell(f"ls -A {home}").split()
    assert sorted(came) == sorted(["heard", f"out.{job}", f"err.{job}"])
    heard = pool.shell(f"cat {home}/heard").splitlines()
    assert [line.partition("Z ")[2] for line in heard] == ["alice: stop at the next $(event)"]
    lines = [line for line in pool.log("JobLensdLog").splitlines() if job in line and "notify" in line]
    assert any("alice asked for notify" in line for line in lines)
    assert any(" asked for notify, and was refused" in line for line in lines)
    assert not any("event" in line for line in lines)
