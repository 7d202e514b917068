"""joblens restart and joblens upgrade on a node with jobs, and what doctor says of a node that needs them."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from harness import SITE_CONFIG, Pool
from truth import WORKER, check, worked

AGENT, SUPERVISOR, PUBLISHER = "condor_joblens.agent", "condor_joblens.export.supervisor", "publish.slotads"
SOURCE = "/usr/src/condor_joblens"


def processes(pool: Pool, program: str) -> set[str]:
    return set(pool.run("pgrep", "-f", program, check=False).stdout.split())


def findings(pool: Pool, *checks: str) -> dict[str, tuple[str, str]]:
    """State and text of what doctor found, by check."""
    told = json.loads(pool.run("joblens", "doctor", "--json", check=False).stdout)
    return {each["Check"]: (each["State"], each["Finding"]) for each in told if each["Check"] in checks}


def worker(pool: Pool, name: str) -> int:
    """A worker that has done its work, and ends when its file is there."""
    pool.shell(f"rm -f /home/alice/end-{name}")
    cluster = pool.submit(f"{WORKER}/home/alice/end-{name}\nqueue")
    pool.until(lambda: worked(usage) if (usage := pool.usage(cluster)) else {}, f"the work of job {cluster}")
    return cluster


def ends_exact(pool: Pool, cluster: int, name: str) -> None:
    pool.shell(f"touch /home/alice/end-{name}")
    check(pool.last_usage(cluster), pool.output(cluster))


@pytest.mark.soak
def test_all_three_begin_anew_and_a_running_job_loses_no_number(brisk: Pool) -> None:
    cluster = worker(brisk, "restart")
    before = {program: processes(brisk, program) for program in (AGENT, SUPERVISOR, PUBLISHER)}
    said = brisk.run("joblens", "restart").stdout
    assert re.match(r"joblensd [\w.]+, joblens-export, joblens_publish: restarted, .*; 1 job goes on\n", said), said
    for program, old in before.items():
        assert old and not old & processes(brisk, program), program
    assert findings(brisk, "versions", "reconfigured") == {
        "versions": ("ok", findings(brisk, "versions")["versions"][1]),
        "reconfigured": ("ok", "joblensd works with the knobs as they are now"),
    }
    state, finding = findings(brisk, "pins")["pins"]
    assert state == "ok", finding
    ends_exact(brisk, cluster, "restart")


def test_an_upgrade_installs_and_a_running_job_loses_no_number(brisk: Pool) -> None:
    cluster = worker(brisk, "upgrade")
    before = processes(brisk, AGENT)
    said = brisk.run("joblens", "upgrade", SOURCE, "--json").stdout
    told = json.loads(said.splitlines()[-1])
    assert (told["Jobs"], told["Lost"]) == (1, []) and str(told["Before"]) in before
    assert not before & processes(brisk, AGENT)
    ends_exact(brisk, cluster, "upgrade")


def test_an_upgrade_that_cannot_be_installed_changes_nothing(brisk: Pool) -> None:
    before = processes(brisk, AGENT)
    brisk.shell("mkdir -p /tmp/broken && printf 'install:\\n\\tfalse\\n' >/tmp/broken/Makefile")
    for folder, why in (("/tmp/broken", "make install failed"), ("/tmp", "has no Makefile")):
        done = brisk.run("joblens", "upgrade", folder, check=False)
        assert done.returncode == 1 and why in done.stderr
    done = brisk.run("joblens", "restart", user="alice", check=False)
    assert done.returncode == 1 and "only root" in done.stderr
    assert processes(brisk, AGENT) & before


def reconfigured(pool: Pool) -> list[str]:
    """The knobs that doctor names, by finding."""
    told = json.loads(pool.run("joblens", "doctor", "--json", check=False).stdout)
    return [each["Finding"].rpartition(": ")[2] for each in told if each["Check"] == "reconfigured"]


def test_doctor_knows_what_joblensd_has_not_read_yet(brisk: Pool) -> None:
    with brisk.config("JOBLENS_PERIOD = soon"):
        text = brisk.site_config()
        lingers = itertools.count(1)

        def is_unread() -> bool:
            # joblensd may still be about to read for a condor_reconfig of before: then it has read this, too
            brisk.write_site_config(f"{text}JOBLENS_LINGER = 0.{next(lingers):03}\nJOBLENS_MAX_JOBS = 77\n")
            return reconfigured(brisk) == ["JOBLENS_LINGER", "JOBLENS_MAX_JOBS"]

        brisk.until(is_unread, "doctor to find what has not been read")
        line = text.splitlines().index("JOBLENS_PERIOD = soon") + 1
        state, knob = findings(brisk, "knobs")["knobs"]
        assert state == "warn" and f"({SITE_CONFIG}, line {line})" in knob
        brisk.run("condor_reconfig")
        brisk.until(lambda: reconfigured(brisk) == ["JOBLENS_MAX_JOBS"], "joblensd to read its knobs again")


def test_a_bundle_of_a_real_node_can_be_looked_at_and_names_no_job(brisk: Pool) -> None:
    cluster = brisk.submit("executable = /bin/sleep\narguments = 600\nqueue")
    brisk.wait_running(cluster)
    brisk.run("joblens", "doctor", "--bundle", "/tmp/report.tar.gz", check=False)
    brisk.shell("rm -rf /tmp/joblens-report; tar -C /tmp -xzf /tmp/report.tar.gz")
    told = json.loads(brisk.run("joblens", "doctor", "--json", "--root", "/tmp/joblens-report", check=False).stdout)
    states = {each["Check"]: each["State"] for each in told}
    assert states["HTCondor"] == "ok" and states["versions"] == "ok" and states["kernel"] == "ok"
    assert brisk.run("grep", "-rl", "--exclude-dir=logs", "alice", "/tmp/joblens-report", check=False).stdout == ""
