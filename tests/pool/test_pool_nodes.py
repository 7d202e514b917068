"""joblens pool: a node tells the collector of itself, with and without jobs, and when joblensd is gone."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from harness import Ad, Pool

from condor_joblens import __version__

AGENT = "condor_joblens.agent"


@pytest.fixture(scope="module")
def brisk(brisk: Pool) -> Iterator[Pool]:
    """What is no news reaches the collector with the startd's own updates."""
    with brisk.config("UPDATE_INTERVAL = 5"):
        yield brisk


def nodes(pool: Pool) -> list[Ad]:
    found: list[Ad] = json.loads(pool.run("joblens", "pool", "--json", check=False).stdout or "[]")
    return found


def node(pool: Pool) -> Ad:
    """The one node of the pool; empty while the collector does not know its startd."""
    found = nodes(pool)
    assert len(found) <= 1, found
    return found[0] if found else {}


@pytest.mark.every_suite
def test_an_idle_node_tells_its_version_and_its_state(brisk: Pool) -> None:
    def looked_at() -> Ad:
        told = node(brisk)
        is_idle = not any(told.get("Levels", {"": 1}).values())
        return told if is_idle and told["State"] in ("ok", "warn") else {}

    told = brisk.until(looked_at, "doctor's look at an idle node", 240)
    assert (told["Version"], told["Source"], told["Lost"]) == (__version__, "bpf", 0)
    said = brisk.run("joblens", "pool").stdout.splitlines()
    assert said[0].startswith("1 node: 1 ") and said[2].split()[1] == told["State"]
    for slot in brisk.slots():
        assert ("JobLensNode" in slot) == slot["Name"].startswith("slot1@"), slot["Name"]


def test_jobs_are_counted_by_level(brisk: Pool) -> None:
    jobs = [
        brisk.submit(f"executable = /bin/sleep\narguments = 600\n{more}queue") for more in ("", '+JobLensLevel="io"\n')
    ]
    for job in jobs:
        brisk.wait_running(job)
    brisk.until(lambda: (levels := node(brisk).get("Levels", {})).get("basic") == 1 == levels.get("io"), "both jobs")
    brisk.clean()
    brisk.until(lambda: not any(node(brisk).get("Levels", {"": 1}).values()), "no job")


@pytest.mark.soak
def test_a_knob_that_is_wrong_is_told_the_pool_after_condor_reconfig(brisk: Pool) -> None:
    with brisk.config("JOBLENS_LINGER = soon"):
        told = brisk.until(lambda: one if "JOBLENS_LINGER" in (one := node(brisk)).get("Says", "") else {}, "the knob")
        assert told["State"] == "warn"
    brisk.until(lambda: "JOBLENS_LINGER" not in node(brisk).get("Says", "JOBLENS_LINGER"), "the knob to be well")


BARE = """MyType = "Machine"
Name = "slot1@bare.example.org"
Machine = "bare.example.org"
SlotID = 1
State = "Unclaimed"
Activity = "Idle"
MyAddress = "<192.0.2.1:9618>"
StartdIpAddr = "<192.0.2.1:9618>"
"""
"""What a startd without JobLens tells the collector of its first slot, as far as it matters here."""


@pytest.mark.every_suite
def test_a_startd_that_has_no_joblens_is_listed(brisk: Pool) -> None:
    def told() -> dict[str, str]:
        return {each["Node"]: each["State"] for each in nodes(brisk)}

    def advertise(verb: str, ad: str) -> None:
        (brisk.root / "tmp/bare.ad").write_text(ad)
        brisk.run("condor_advertise", verb, "/tmp/bare.ad")

    advertise("UPDATE_STARTD_AD", BARE)
    try:
        brisk.until(lambda: told().get("bare.example.org") == "without", "the startd without JobLens")
    finally:
        gone = 'MyType = "Query"\nTargetType = "Machine"\nRequirements = Name == "slot1@bare.example.org"\n'
        advertise("INVALIDATE_STARTD_ADS", gone)
        brisk.until(lambda: (now := told()) and "bare.example.org" not in now, "the collector to forget it")


def test_a_node_whose_joblensd_is_gone_fails_and_is_well_again(brisk: Pool) -> None:
    brisk.until(lambda: brisk.run("pgrep", "-fo", AGENT, check=False).stdout, "joblensd")
    with brisk.without_joblensd(signal.SIGKILL):
        told = brisk.until(lambda: one if (one := node(brisk)).get("State") == "FAIL" else {}, "the failure")
        assert "joblensd" in told["Says"] and "Levels" not in told
        assert brisk.run("joblens", "pool", check=False).returncode == 1
    brisk.until(lambda: node(brisk).get("State") in ("ok", "warn"), "the next joblensd", 240)
