"""Commands from afar: what an access point has signed is done on the job's node, once, for its user alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness import Pool

from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client, keys, sealed_client, warrants
from condor_joblens.control.sealed_answers import Opener
from condor_joblens.control.warrants import Warrant

ACCESS_POINT, ELSEWHERE = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
SLEEPS = "sleep 100001"
JOB = f"""
executable = /bin/sh
arguments = "-c 'echo began; {SLEEPS}; echo over'"
+JobLensKey = "mine"
queue
"""


def public(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return found


CONFIG = f"""
JOBLENS_REMOTE_COMMANDS = true
STARTD_JOB_ATTRS = $(STARTD_JOB_ATTRS) JobLensKey
JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) JobLensKey
JOB_TRANSFORM_JobLensKey @=end
    SET JobLensKey "{keys.text_of(public(ACCESS_POINT))}"
@end
IMMUTABLE_JOB_ATTRS = $(IMMUTABLE_JOB_ATTRS) JobLensKey
"""


@dataclass
class Job:
    """A running job, and what its access point's queue says of it."""

    pool: Pool
    cluster: int
    asker: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    def warrant(self, verb: str, **arguments: bytes) -> Warrant:
        """As the access point would make it for the job's user."""
        ad, now = self.pool.job(self.cluster), int(time.time() * 1000)
        run, nonce = f"{ad['GlobalJobId']}#{ad['NumShadowStarts']}", warrants.new_nonce()
        where = ad["RemoteHost"]
        return Warrant(ad["User"], run, where, verb, arguments, public(self.asker), nonce, now, now + 60_000)

    def ask(self, warrant: Warrant, key: Ed25519PrivateKey = ACCESS_POINT) -> list[bytes]:
        """What the job's node answers, as far as that can be believed. Raises JobLensError."""
        packet = warrants.sign(warrant, key)
        node_key = keys.key_in(self.pool.job(self.cluster)["JobLensUsage"]["NodeKey"])
        path = str(self.pool.root / "run/joblens/activate.sock")
        carried = client.stream(path, "warrant", {"job": f"{self.cluster}.0", "packet": packet})
        return list(sealed_client.opened(carried, Opener(packet, self.asker, node_key), warrant.verb))

    def confirmed(self, warrant: Warrant) -> list[bytes]:
        """The same, as soon as the startd has been asked about the job."""

        def asked() -> list[bytes]:
            try:
                return self.ask(replace(warrant, nonce=warrants.new_nonce()))
            except JobLensError as error:
                assert "has not confirmed" in str(error), error
                return []

        return self.pool.until(asked, "an answer")


def begin_anew(pool: Pool) -> None:
    """joblensd hands over to another one, which has read the configuration."""

    def joblensd() -> str:
        return pool.run("pgrep", "-of", "condor_joblens.agent( |$)", check=False).stdout.strip()

    before = pool.until(joblensd, "joblensd")
    pool.run("kill", "-USR1", before)
    pool.until(lambda: joblensd() not in ("", before), "the next joblensd")
    pool.until(lambda: pool.run("joblens", "status", check=False).returncode == 0, "its rows")


@pytest.fixture(scope="module")
def job(brisk: Pool) -> Iterator[Job]:
    with brisk.config("MASTER_JOBLENSD_BACKOFF_CONSTANT = 1"):
        with brisk.config(CONFIG):
            begin_anew(brisk)
            job = Job(brisk, brisk.submit(JOB))
            brisk.wait_running(job.cluster)
            brisk.until(lambda: "NodeKey" in brisk.usage(job.cluster), "the node's key")
            yield job
            brisk.run("condor_rm", str(job.cluster), check=False)
        begin_anew(brisk)


def test_the_processes_of_a_job_are_told_who_has_asked(job: Job) -> None:
    answers = job.confirmed(job.warrant("ps"))
    commands = [json.loads(each[1:])["Command"] for each in answers if each[:1] == b"="]
    assert SLEEPS in commands
    log = job.pool.log("JobLensdLog")
    assert "alice@" in log and "(from afar) asks for ps by warrant " in log


def test_its_output_and_a_level(job: Job) -> None:
    assert b"=began\n" in job.confirmed(job.warrant("tail", file=b"stdout", lines=b"5"))
    job.ask(job.warrant("level", level=b"io"))
    assert "level io by hand, by alice@" in job.pool.log("JobLensdLog")


def test_a_warrant_counts_once_for_its_user_and_its_run_by_its_access_point(job: Job) -> None:
    job.confirmed(job.warrant("ps"))
    good = job.warrant("ps")
    bad = {
        "another user": replace(good, user=good.user.replace("alice", "bob")),
        "another run": replace(good, run=good.run + "1"),
        "another node": replace(good, node=f"slot1_9@{good.node}"),
        "too old": replace(good, begins=1000, ends=2000),
    }
    for why, warrant in bad.items():
        with pytest.raises(JobLensError, match=why):
            job.ask(warrant)
    with pytest.raises(JobLensError, match="has not signed this"):
        job.ask(good, ELSEWHERE)
    job.ask(good)
    with pytest.raises(JobLensError, match="taken before"):
        job.ask(good)


def test_the_jobs_user_can_name_no_other_access_point(job: Job) -> None:
    assert job.pool.job(job.cluster)["JobLensKey"] == keys.text_of(public(ACCESS_POINT))
    done = job.pool.run("condor_qedit", str(job.cluster), "JobLensKey", '"mine"', user="alice", check=False)
    assert done.returncode != 0


def test_at_last_the_job_gets_a_signal(job: Job) -> None:
    assert any(b"SIGTERM" in each for each in job.confirmed(job.warrant("kill", signal=b"15")))
    job.pool.wait_ended(job.cluster)
