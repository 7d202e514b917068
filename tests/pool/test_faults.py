"""Killed, stopped, replaced, without room or right: no job is harmed, and no number of a living job is lost."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from harness import Ad, Pool
from truth import WORKER, check, worked

AGENT, EXPORTER = "condor_joblens.agent", r"condor_joblens\.export [0-9]+$"
PUBLISHER, POLICY = "condor_joblens.publish.slotads", "m condor_joblens[.]policy[.]child$"
JOBLENSD = "/usr/libexec/condor/joblensd"


def process(pool: Pool, program: str) -> int:
    """The process id of our program, inside the pool; 0 where it does not run."""
    found = pool.run("pgrep", "-f", program, check=False).stdout.split()
    return int(found[0]) if found else 0


def send(pool: Pool, program: str, number: signal.Signals) -> int:
    pid = pool.until(lambda: process(pool, program), program)  # to 0 it would be sent to these tests as well
    pool.run("kill", f"-{int(number)}", str(pid))
    return pid


def wait_for_another(pool: Pool, program: str, than: int) -> int:
    return pool.until(lambda: (pid := process(pool, program)) != than and pid, f"a new {program}")


def wait_for_rows(pool: Pool) -> None:
    """joblensd runs and publishes."""
    pool.until(lambda: pool.run("joblens", "status", check=False).returncode == 0, "joblensd's rows")


def worker(pool: Pool, name: str) -> int:
    """Submits a worker that ends when `let_end` says so."""
    pool.shell(f"rm -f /home/alice/end-{name}")
    return pool.submit(f"{WORKER}/home/alice/end-{name}\nqueue")


def wait_for_work(pool: Pool, cluster: int, run: str = "#1") -> Ad:
    """The usage of a worker's run that has done its work. Never another job's: that fails at once."""

    def own() -> Ad:
        job = pool.job(cluster)
        usage: Ad = job.get("JobLensUsage") or {}
        assert not usage or usage["Run"].startswith(f"{job['GlobalJobId']}#"), usage["Run"]
        return worked(usage) if usage and usage["Run"].endswith(run) else {}

    return pool.until(own, f"the work of run {run} of job {cluster}")


def wait_for_later(pool: Pool, cluster: int, before: Ad) -> Ad:
    """The usage that another joblensd measured; in between the queue may have none."""

    def later() -> Ad:
        usage = pool.usage(cluster)
        return usage if usage and usage["UpdateTime"] > before["UpdateTime"] and "Note" in usage else {}

    return pool.until(later, "numbers of the next joblensd")


def let_end(pool: Pool, name: str) -> None:
    pool.shell(f"touch /home/alice/end-{name}")


@pytest.fixture(autouse=True)
def watched_again(brisk: Pool) -> Iterator[None]:
    """After each test joblensd runs as before, and no job is left."""
    yield
    brisk.clean()
    brisk.until(lambda: process(brisk, AGENT), "joblensd")
    wait_for_rows(brisk)


def test_kernel_counts_on_while_joblensd_is_killed(brisk: Pool) -> None:
    """One job runs all the time, one ends and one begins in the meantime: all three have exact numbers."""
    through, ending = worker(brisk, "through"), worker(brisk, "ending")
    for cluster in (through, ending):
        wait_for_work(brisk, cluster)
    with brisk.without_joblensd(signal.SIGKILL) as killed:
        let_end(brisk, "ending")
        brisk.wait_ended(ending)
        beginning = worker(brisk, "beginning")
        brisk.until(lambda: process(brisk, "^/usr/bin/python3 .*end-beginning"), "the job itself to run")
    wait_for_another(brisk, AGENT, killed)
    wait_for_work(brisk, beginning)
    let_end(brisk, "through")
    let_end(brisk, "beginning")
    check(brisk.last_usage(through), brisk.output(through))
    check(brisk.last_usage(beginning), brisk.output(beginning), with_wrapper=True)
    check(brisk.last_usage(ending), brisk.output(ending))


@pytest.mark.soak
def test_orderly_stop_unpins_and_the_next_one_says_what_is_missing(brisk: Pool) -> None:
    cluster = worker(brisk, "stopped")
    before = wait_for_work(brisk, cluster)
    with brisk.without_joblensd(signal.SIGTERM) as stopped:
        left = "find /sys/fs/bpf/joblens -mindepth 1; find /run/joblens -name activate.sock -o -name rows"
        assert brisk.shell(left) == ""
    wait_for_another(brisk, AGENT, stopped)
    after = wait_for_later(brisk, cluster, before)
    assert (after["Run"], after["Complete"]) == (before["Run"], False)
    assert after["Note"].startswith("joblensd was started anew while this job ran")
    let_end(brisk, "stopped")
    (ad,) = brisk.wait_ended(cluster)
    final = brisk.last_usage(cluster)
    assert (ad["ExitCode"], final["Final"], final["Run"]) == (0, True, before["Run"])
    for name in ("Forked", "Executed", "Failed", "Signalled"):
        assert final["Process"][name] == before["Process"][name], name
    assert final["Cpu"]["Seconds"] >= before["Cpu"]["Seconds"]


@pytest.mark.soak
def test_programs_of_another_version_are_replaced(brisk: Pool) -> None:
    """An upgrade that changes what is counted: the pins' folder has another name."""
    cluster = worker(brisk, "upgraded")
    before = wait_for_work(brisk, cluster)
    log = len(brisk.log("JobLensdLog"))
    with brisk.without_joblensd(signal.SIGKILL):
        brisk.shell("cd /sys/fs/bpf/joblens && mv * 0123456789abcdef")
    replaced = "the programs of another version were in the kernel and have been replaced"
    brisk.until(lambda: replaced in brisk.log("JobLensdLog")[log:], "a joblensd that replaces them")
    assert brisk.shell("ls /sys/fs/bpf/joblens").split() != ["0123456789abcdef"]
    after = wait_for_later(brisk, cluster, before)
    assert (after["Complete"], after["Process"]["Executed"]) == (False, before["Process"]["Executed"])
    assert after["Note"].startswith("joblensd was started anew while this job ran")


def test_helpers_that_are_killed_come_back(brisk: Pool) -> None:
    """Policy child, publisher and exporter, all at once, while a job runs."""
    through = worker(brisk, "helpers")
    wait_for_work(brisk, through)
    killed = {program: send(brisk, program, signal.SIGKILL) for program in (PUBLISHER, EXPORTER, POLICY)}
    decided = brisk.submit('executable = /bin/sleep\narguments = 600\n+JobLensLevel = "io"\nqueue')
    usage = brisk.until(lambda: (told := brisk.usage(decided)).get("Level") == "io" and told, "a decision")
    assert usage["Requested"] == '"io"'
    for program in (PUBLISHER, EXPORTER):
        wait_for_another(brisk, program, killed[program])
    brisk.until(
        lambda: {slot["JobLensUsage"]["Run"] for slot in brisk.slots() if slot.get("JobLensUsage")} >= {usage["Run"]},
        "the new publisher's slot ads",
    )
    page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9753/metrics').read().decode())"
    brisk.until(lambda: usage["Run"] in brisk.run("python3", "-c", page, check=False).stdout, "the new exporter's page")
    let_end(brisk, "helpers")
    check(brisk.last_usage(through), brisk.output(through))


@pytest.mark.soak
def test_startd_that_is_killed_leaves_no_numbers_behind(brisk: Pool) -> None:
    brisk.shell("rm -f /home/alice/end-startd")
    cluster = brisk.submit(f"{WORKER}/home/alice/end-startd\njob_lease_duration = 5\nqueue")
    first = wait_for_work(brisk, cluster)
    with brisk.config("MASTER_STARTD_BACKOFF_CONSTANT = 2"):
        send(brisk, "^condor_startd", signal.SIGKILL)
        second = wait_for_work(brisk, cluster, "#2")
    assert (second["Run"], second["Complete"]) == (first["Run"][:-1] + "2", True)
    let_end(brisk, "startd")
    check(brisk.last_usage(cluster), brisk.output(cluster))


def test_jobs_start_while_joblensd_is_stopped(brisk: Pool) -> None:
    with brisk.shipped_wrappers():
        send(brisk, AGENT, signal.SIGSTOP)
        try:
            cluster = brisk.submit("executable = /bin/sh\narguments = \"-c 'exit 7'\"\nqueue 3")
            assert [ad["ExitCode"] for ad in brisk.wait_ended(cluster)] == [7, 7, 7]
        finally:
            send(brisk, AGENT, signal.SIGCONT)
    cluster = brisk.submit("executable = /bin/sleep\narguments = 600\nqueue")

    def begun() -> Ad:
        usage = brisk.usage(cluster)
        is_one = usage and usage["Process"]["Executed"] == 1  # before, it may be its wrapper and that one's helper
        return usage if is_one and usage["Complete"] else {}

    assert brisk.until(begun, "whole numbers of the next job")


# -- a joblensd that can't work: started by hand, in mounts and with pins of its own ---------------------------------

BY_HAND = """
mount -t bpf bpf /sys/fs/bpf
rm -rf /tmp/by-hand; mkdir -p /tmp/by-hand/log /tmp/by-hand/run
export _CONDOR_JOBLENSD_LOG=/tmp/by-hand/log/JobLensdLog _CONDOR_JOBLENS_RUN_DIR=/tmp/by-hand/run
export _CONDOR_JOBLENS_ARTIFACT_DIR=/tmp/by-hand/artifacts
"""
"""It stays root, and takes over what it is told is its own: not the artifacts of the joblensd that runs."""

UNTIL_SAID = """
for _ in $(seq 500); do grep -qF "$1" /tmp/by-hand/log/JobLensdLog && break; sleep 0.2; done 2>/dev/null
sleep 1; kill $! 2>/dev/null; wait
cat /tmp/by-hand/log/JobLensdLog
"""
WRONG = {
    "a second one": ("export _CONDOR_JOBLENS_RUN_DIR=/run/joblens", "", "another joblensd runs on this machine"),
    "the other's profiles": (
        "export _CONDOR_JOBLENS_ARTIFACT_DIR=/var/lib/joblens-agent/artifacts", "",
        "another joblensd keeps its profiles in /var/lib/joblens-agent/artifacts: profiles are kept in "
        "/tmp/by-hand/run, 64 MiB at most; set JOBLENS_ARTIFACT_DIR",
    ),
    "no folder": ("export _CONDOR_JOBLENS_RUN_DIR=/proc/joblens", "", "make JOBLENS_RUN_DIR writable for root"),
    "read-only": (
        "mount -t tmpfs -o ro tmpfs /tmp/by-hand/run", "", "Read-only file system",
    ),
    "full": ("mount -t tmpfs -o size=64k tmpfs /tmp/by-hand/run", "", "No space left on device"),
    "no bpffs": (
        "umount -a -t bpf; mount -t tmpfs -o ro tmpfs /sys/fs/bpf", "setpriv --bounding-set -sys_admin",
        "nothing can be pinned below /sys/fs/bpf",
    ),
    "no capability": ("", "setpriv --bounding-set -bpf,-sys_admin", "CAP_BPF"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_joblensd_that_cannot_work_says_why_in_one_line(brisk: Pool, wrong: str) -> None:
    prepare, prefix, line = WRONG[wrong]
    script = f"{BY_HAND}{prepare}\n{prefix} timeout --foreground -s TERM 120 {JOBLENSD} &\n{UNTIL_SAID}"
    said = brisk.run("unshare", "--mount", "sh", "-c", script, "sh", line).stdout.splitlines()
    # its log's folder here is root's; and jobs of the tests before may be there
    usual = r"joblensd stays root|joblensd \S+ starts, process|stopped$|mounted bpffs|watches jobs|is watched at"
    told = [text for text in said if not re.search(usual, text)]
    assert len(told) == 1, said
    assert line in told[0]
    assert os.path.exists(brisk.root / "run/joblens/activate.sock")
    assert brisk.run("joblens", "status").returncode == 0


def test_job_that_ends_before_the_policies_answer_has_its_numbers(brisk: Pool) -> None:
    stopped = send(brisk, POLICY, signal.SIGSTOP)
    try:
        cluster = brisk.submit("executable = /bin/true\nqueue")
        (ad,) = brisk.wait_ended(cluster)
    finally:
        brisk.run("kill", f"-{int(signal.SIGCONT)}", str(stopped), check=False)
    usage = brisk.last_usage(cluster)
    assert usage["Run"] == f"{ad['GlobalJobId']}#1"
    assert usage["Process"]["Executed"] == 1
