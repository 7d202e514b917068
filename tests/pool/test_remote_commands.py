"""Commands from afar: what an access point has signed is done on the job's node, once, for its user alone."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from harness import Ad, Pool

from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client, keys, sealed_client, warrants
from condor_joblens.control.sealed_answers import Opener
from condor_joblens.control.warrants import Warrant

ELSEWHERE = Ed25519PrivateKey.generate()
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


CONFIG = """
JOBLENS_REMOTE_COMMANDS = true
STARTD_JOB_ATTRS = $(STARTD_JOB_ATTRS) JobLensKey
"""
DOOR_CONFIG = "/etc/condor/config.d/60-joblens-door.conf"
ASK = """
import json, sys
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import door
verb, job, key = sys.argv[1:]
try:
    arguments = {name: value.encode() for name, value in json.load(sys.stdin).items()}
    signed = door.sign("/run/joblens-door.sock", verb, job, bytes.fromhex(key), arguments)
    print(json.dumps({name: value.hex() for name, value in signed.fields().items()}))
except JobLensError as error:
    print(json.dumps({"refused": str(error)}))
"""
PROOF = """
import sys
from condor_joblens.control import door
verb, job, key = sys.argv[1:]
nonce = door.nonce("/run/joblens-door.sock", job)
print(nonce.hex(), door.proof(nonce, verb, job, bytes.fromhex(key), {}))
"""
PROVED = ASK.replace("verb, job, key = sys.argv[1:]", "verb, job, key, nonce = sys.argv[1:]").replace(
    "arguments)\n", "arguments, bytes.fromhex(nonce))\n"
)


@dataclass
class Job:
    """A running job, and what its access point's queue says of it."""

    pool: Pool
    cluster: int
    access_point: Ed25519PrivateKey
    asker: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    @cached_property
    def ad(self) -> Ad:
        """The job's, in which the node's key is."""
        return self.pool.job(self.cluster)

    def warrant(self, verb: str, **arguments: bytes) -> Warrant:
        """As the access point would make it for the job's user."""
        ad, now = self.ad, int(time.time() * 1000)
        run, nonce = f"{ad['GlobalJobId']}#{ad['NumShadowStarts']}", warrants.new_nonce()
        where = ad["RemoteHost"]
        return Warrant(
            ad["User"], ad["User"], run, where, verb, arguments, public(self.asker), nonce, now, now + 60_000
        )

    def door(self, verb: str, user: str, nonce: str = "", **arguments: str) -> dict[str, bytes]:
        """What the access point's door says to this user. Raises JobLensError if it refuses."""
        job, key = f"{self.cluster}.0", public(self.asker).hex()
        command = ["/opt/joblens/bin/python", "-Ic", PROVED if nonce else ASK, verb, job, key]
        command += [nonce] if nonce else []
        said = json.loads(self.pool.run(*command, user=user, input=json.dumps(arguments)).stdout)
        if "refused" in said:
            raise JobLensError(said["refused"])
        return {name: bytes.fromhex(value) for name, value in said.items()}

    def ask(self, warrant: Warrant, key: Ed25519PrivateKey | None = None) -> list[bytes]:
        """What the job's node answers to a warrant that the test has signed. Raises JobLensError."""
        packet = warrants.sign(warrant, key or self.access_point)
        node_key = keys.key_in(self.ad["JobLensUsage"]["NodeKey"])
        return self.carry(packet, node_key, warrant.verb)

    def carry(self, packet: bytes, node_key: bytes, verb: str) -> list[bytes]:
        """What the job's node answers, as far as that can be believed. Raises JobLensError."""
        path = str(self.pool.root / "run/joblens/activate.sock")
        carried = client.stream(path, "warrant", {"job": f"{self.cluster}.0", "packet": packet})
        return list(sealed_client.opened(carried, Opener(packet, self.asker, node_key), verb))

    def confirmed(self, verb: str, **arguments: bytes) -> list[bytes]:
        """The same, as soon as the startd has been asked about the job."""

        def asked() -> list[bytes]:
            try:
                return self.ask(self.warrant(verb, **arguments))
            except JobLensError as error:
                assert "has not confirmed" in str(error), error
                return []

        return self.pool.until(asked, "an answer")


def begin_anew(pool: Pool) -> None:
    """joblensd hands over to another one, which has read the configuration."""

    def joblensd() -> str:
        return pool.run("pgrep", "-of", "condor_joblens.agent( |$)", check=False).stdout.strip()

    def begun() -> int:
        return pool.log("JobLensdLog").count(" watches jobs below ")

    before, begun_before = pool.until(joblensd, "joblensd"), begun()
    pool.run("kill", "-USR1", before)
    pool.until(lambda: joblensd() not in ("", before), "the next joblensd")
    # the rows of the one before are there meanwhile, and nobody hears a job that begins
    pool.until(lambda: begun() > begun_before, "its first round")


@pytest.fixture(scope="module")
def job(brisk: Pool) -> Iterator[Job]:
    brisk.shell(f"$(condor_config_val LIBEXEC)/joblens-door --config >{DOOR_CONFIG}")
    access_point = keys.key_at(str(brisk.root / "etc/joblens/door.key"))
    with brisk.config("MASTER_JOBLENSD_BACKOFF_CONSTANT = 1"):
        with brisk.config(CONFIG):
            begin_anew(brisk)
            from_then_on = time.time() + warrants.EARLY_SECONDS
            brisk.until(lambda: "vouches for users of" in brisk.log("JobLensDoorLog"), "joblens-door")
            job = Job(brisk, brisk.submit(JOB), access_point)
            brisk.wait_running(job.cluster)
            brisk.until(lambda: "NodeKey" in brisk.usage(job.cluster), "the node's key")
            brisk.until(lambda: time.time() > from_then_on, "the time from which on warrants are taken")
            yield job
            brisk.run("condor_rm", str(job.cluster), check=False)
            brisk.run("rm", DOOR_CONFIG)
        begin_anew(brisk)


def test_the_door_vouches_for_the_jobs_user_and_the_node_does_it(job: Job) -> None:
    job.confirmed("ps")
    signed = job.door("tail", "alice", file="stdout", lines="5")
    assert b"=began\n" in job.carry(signed["Packet"], signed["NodeKey"], "tail")
    warrant = warrants.verify(signed["Packet"], keys.public_half(job.access_point))
    name = warrants.name_of(warrant)
    assert f"may tail in {warrant.node}: {name}" in job.pool.log("JobLensDoorLog")
    assert f"asks for tail by {name}" in job.pool.log("JobLensdLog")


def test_the_door_vouches_for_nobody_else(job: Job) -> None:
    with pytest.raises(JobLensError, match="only its user and queue super users may do this, and you are bob@"):
        job.door("ps", "bob")
    assert "asked for ps, refused: only its user" in job.pool.log("JobLensDoorLog")


def test_the_door_vouches_for_a_queue_super_user_as_the_schedd_has_it(job: Job) -> None:
    job.confirmed("ps")
    signed = job.door("ps", "root")  # QUEUE_SUPER_USERS is HTCondor's default here
    answer = job.carry(signed["Packet"], signed["NodeKey"], "ps")
    assert any(SLEEPS.encode() in each for each in answer)
    assert re.search(r"root@\S+ for alice@\S+ may ps in slot", job.pool.log("JobLensDoorLog"))
    assert re.search(r"root@\S+ \(from afar, for alice@\S+\) asks for ps by", job.pool.log("JobLensdLog"))


def test_who_may_edit_the_job_by_htcondor_s_word_proves_himself(job: Job) -> None:
    job.confirmed("ps")
    pool, name = job.pool, f"{job.cluster}.0"
    command = ["/opt/joblens/bin/python", "-Ic", PROOF, "ps", name, public(job.asker).hex()]
    nonce, proof = pool.run(*command, user="bob").stdout.split()
    edit = ["condor_qedit", name, "JobLensProof", f'"{proof}"']
    assert pool.run(*edit, user="bob", check=False).returncode != 0  # HTCondor lets him not
    with pytest.raises(JobLensError, match="JobLensProof is not of this request"):
        job.door("ps", "bob", nonce)
    nonce, proof = pool.run(*command, user="bob").stdout.split()
    pool.run("condor_qedit", name, "JobLensProof", f'"{proof}"', user="alice")  # as who is alice elsewhere
    with pytest.raises(JobLensError, match="was not given for this"):
        job.door("ps", "alice", nonce)
    signed = job.door("ps", "bob", nonce)
    assert any(SLEEPS.encode() in each for each in job.carry(signed["Packet"], signed["NodeKey"], "ps"))
    log = pool.log("JobLensDoorLog")
    assert re.search(r"bob@\S+ by condor_qedit for alice@\S+ may ps in slot", log)


def test_a_key_of_the_staff_is_good_for_what_its_line_says(job: Job) -> None:
    job.confirmed("ps")
    person, node_key = Ed25519PrivateKey.generate(), keys.key_in(job.ad["JobLensUsage"]["NodeKey"])
    text, start = keys.text_of(public(person)), warrants.staff_start(public(person))
    file = job.pool.root / "etc/joblens/staff.keys"

    def asked(verb: str, **arguments: bytes) -> list[bytes]:
        packet = warrants.sign(replace(job.warrant(verb, **arguments), by=text), person, start)
        return job.carry(packet, node_key, verb)

    with pytest.raises(JobLensError, match="none of the site's staff"):
        asked("ps")
    file.write_text(f"carol {text} ps user=alice@*\n")
    file.chmod(0o644)
    try:
        assert any(SLEEPS.encode() in each for each in asked("ps"))
        with pytest.raises(JobLensError, match="not for kill"):
            asked("kill", signal=b"9")
        file.chmod(0o666)
        with pytest.raises(JobLensError, match="may be written by others"):
            asked("ps")
    finally:
        file.unlink()
    log = job.pool.log("JobLensdLog")
    assert "staff carol (from afar by his key, for alice@" in log and "the key of carol is not for kill" in log


def test_the_door_has_the_key_and_nothing_else(job: Job) -> None:
    pool = job.pool
    (pid,) = pool.run("pgrep", "-f", "condor_joblens.accesspoint.door").stdout.split()
    facts = dict(line.split(":\t", 1) for line in pool.shell(f"cat /proc/{pid}/status").splitlines() if ":\t" in line)
    assert set(facts["Uid"].split()) == {pool.run("id", "-u", "joblens-door").stdout.strip()} != {"0"}
    assert {facts[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
    assert (facts["NoNewPrivs"], facts["Seccomp"], facts["Groups"].strip()) == ("1", "2", "")
    assert pool.run("stat", "-c", "%U %a", "/etc/joblens/door.key").stdout == "root 600\n"


def test_the_processes_of_a_job_are_told_who_has_asked(job: Job) -> None:
    answers = job.confirmed("ps")
    commands = [json.loads(each[1:])["Command"] for each in answers if each[:1] == b"="]
    assert SLEEPS in commands
    log = job.pool.log("JobLensdLog")
    assert "alice@" in log and "(from afar) asks for ps by warrant " in log


def test_its_output_and_a_level(job: Job) -> None:
    assert b"=began\n" in job.confirmed("tail", file=b"stdout", lines=b"5")
    job.ask(job.warrant("level", level=b"io"))
    assert "level io by hand, by alice@" in job.pool.log("JobLensdLog")


def test_a_warrant_counts_once_for_its_user_and_its_run_by_its_access_point(job: Job) -> None:
    job.confirmed("ps")
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
    assert job.pool.job(job.cluster)["JobLensKey"] == keys.text_of(keys.public_half(job.access_point))
    done = job.pool.run("condor_qedit", str(job.cluster), "JobLensKey", '"mine"', user="alice", check=False)
    assert done.returncode != 0


@contextlib.contextmanager
def without_alice(pool: Pool) -> Iterator[tuple[str, str]]:
    """The machine knows no such user in here; her ids."""
    passwd = pool.root / "etc/passwd"
    before = passwd.read_text()
    ids = pool.run("id", "-u", "alice").stdout.strip(), pool.run("id", "-g", "alice").stdout.strip()
    passwd.write_text("".join(line for line in before.splitlines(True) if not line.startswith("alice:")))
    try:
        yield ids
    finally:
        passwd.write_text(before)


def test_a_user_who_is_removed_has_the_warrants_of_the_last_minute_and_no_more(job: Job) -> None:
    job.confirmed("ps")
    pool, kept = job.pool, job.warrant("ps")
    asks = "/opt/joblens/bin/python", "-Ic", ASK, "ps", f"{job.cluster}.0", public(job.asker).hex()
    with without_alice(pool) as (uid, gid):
        assert pool.run("id", "-u", "alice", check=False).returncode != 0
        assert any(SLEEPS.encode() in each for each in job.ask(kept)), "her processes are there, and she may see them"
        as_her = "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"
        said = json.loads(pool.run(*as_her, *asks, input="{}").stdout)
        assert f"user {uid} has no name on this access point" in said["refused"]
    assert "SIGCONT" in str(job.ask(job.warrant("kill", signal=b"18")))


def test_at_last_the_job_gets_a_signal(job: Job) -> None:
    assert any(b"SIGTERM" in each for each in job.confirmed("kill", signal=b"15"))
    job.pool.wait_ended(job.cluster)
