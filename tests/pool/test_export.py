"""From a job to records outside the node, in a real pool: samples, events, ends; and an exporter that is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from harness import Pool

from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.schema import schemas

RECORDS, SPOOL = "/var/lib/joblens/records/records.jsonl", "/var/lib/joblens/spool"

SINKS = """
JOBLENS_SINKS = prometheus, file, prmon
JOBLENS_SINK_FILE_KINDS = sample, event, job, health
JOBLENS_SINK_PRMON_INTERVAL = 2
"""

JOB = """
executable = /bin/sh
arguments = "-c 'for i in 1 2 3 4 5 6; do /bin/sleep 1; done; exit 3'"
queue
"""


@pytest.fixture(scope="module")
def exporting(shared_pool: Pool) -> Iterator[Pool]:
    with shared_pool.config(SINKS):
        yield shared_pool
        shared_pool.clean()


def records(pool: Pool) -> list[dict[str, Any]]:
    """All that is in the file; each fits its schema."""
    path = pool.root / RECORDS.lstrip("/")
    text = path.read_text() if path.exists() else ""
    found = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]  # the last may be half written
    validators = {kind.value: jsonschema.Draft202012Validator(schema) for kind, schema in schemas().items()}
    for record in found:
        validators[record["Type"]].validate(record)
    return found


def of_job(pool: Pool, cluster: int) -> dict[str, list[dict[str, Any]]]:
    """The job's records by type."""
    mine = [record for record in records(pool) if f"#{cluster}.0#" in record.get("Run", "")]
    return {kind.value: [record for record in mine if record["Type"] == kind.value] for kind in RecordKind}


def ended(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]] | None:
    """A job's records, if its end is in them: either may come first."""
    is_over = found["job"] and any(record["Kind"] == "RunEnd" for record in found["event"])
    return found if is_over else None


def test_a_job_is_in_samples_events_and_its_last_record_with_the_values_of_its_node(exporting: Pool) -> None:
    pool = exporting
    cluster = pool.submit(JOB)
    usage = pool.last_usage(cluster)
    found = pool.until(lambda: ended(of_job(pool, cluster)), "the job's last record, and the event of its end")
    assert len(found["sample"]) >= 2  # six on a machine that never stands still
    sequences = [record["Sequence"] for record in found["sample"]]
    assert sequences == sorted(set(sequences)), "once each, in order"
    [job] = found["job"]
    assert job["Final"] and job["Run"] == usage["Run"] and job["Owner"] == "alice" and job["JobId"] == f"{cluster}.0"
    assert job["Process"]["Executed"] == usage["Process"]["Executed"]
    assert job["Cpu"]["Seconds"] == pytest.approx(usage["Cpu"]["Seconds"], abs=0.05)
    kinds = [record["Kind"] for record in found["event"]]
    assert kinds.count("RunStart") == kinds.count("RunEnd") == 1 and "Level" in kinds
    end = next(record for record in found["event"] if record["Kind"] == "RunEnd")
    assert end["ExitCode"] == 3
    ids = [record["Id"] for record in records(pool)]
    assert len(ids) == len(set(ids))


def test_prmons_files_of_the_job_are_there(exporting: Pool) -> None:
    folder = exporting.root / "var/lib/joblens/prmon"
    cluster = exporting.submit(JOB)
    exporting.wait_ended(cluster)
    summary = exporting.until(lambda: next(folder.glob(f"*#{cluster}.0#*.prmon.json"), None), "prmon's summary")
    found = json.loads(summary.read_text())
    assert found["Max"]["wtime"] >= 5 and found["Max"]["nprocs"] >= 1 and found["Max"]["rss"] > 100


def test_the_ring_and_the_spool_are_for_joblens_alone(exporting: Pool) -> None:
    pool = exporting
    assert pool.shell("stat -c '%U %G %a' /run/joblens/events").split() == ["joblens-agent", "joblens-agent", "640"]
    assert pool.shell(f"stat -c '%U %a' {SPOOL}").split() == ["joblens", "700"]
    for user, may in (("joblens", True), ("alice", False), ("condor", False)):
        done = pool.run("su", "-s", "/bin/sh", user, "-c", "head -c1 /run/joblens/events", check=False)
        assert (done.returncode == 0) is may, user


def test_a_killed_exporter_goes_on_where_it_was(exporting: Pool) -> None:
    pool = exporting
    cluster = pool.submit(JOB.replace("1 2 3 4 5 6", "1 2 3 4 5 6 7 8 9 10 11 12"))
    pool.until(lambda: len(of_job(pool, cluster)["sample"]) > 2, "some samples")
    pool.run("pkill", "-KILL", "-f", r"condor_joblens\.export [0-9]+$")
    pool.wait_ended(cluster)
    found = pool.until(lambda: ended(of_job(pool, cluster)), "the job's last record, and the event of its end")
    kinds = [record["Kind"] for record in found["event"]]
    assert kinds.count("RunEnd") >= 1 and kinds.count("RunStart") >= 1
    sequences = {record["Sequence"] for record in found["sample"]}
    lost = sum(record["Count"] for record in records(pool) if record.get("Cause") == "unseen")
    assert max(sequences) - min(sequences) + 1 - len(sequences) <= lost, "what is missing is declared"


def test_doctor_tries_each_sink(exporting: Pool) -> None:
    said = json.loads(exporting.run("joblens", "doctor", "--json", check=False).stdout)
    sinks = [finding for finding in said if finding["Check"] == "sinks"]
    assert {finding["State"] for finding in sinks} == {"ok"}, sinks
    assert any("records.jsonl" in finding["Finding"] for finding in sinks)


@pytest.mark.soak
def test_the_page_at_a_privileged_port(exporting: Pool) -> None:
    """The supervisor keeps the right to it only if it starts with such a port."""
    pool = exporting
    with pool.config("JOBLENS_SINK_PROMETHEUS_ADDRESS = 127.0.0.1:953"):
        refused = "JOBLENS_SINK_PROMETHEUS_ADDRESS = 127.0.0.1:953 can't be listened at: Permission denied"
        pool.until(lambda: refused in pool.log("JobLensExportLog"), "the log to name the port")
        assert "A port below 1024 takes a restart" in pool.log("JobLensExportLog")
        assert "can't be opened as a log" not in pool.log("JobLensExportLog")
        supervisor = ("pkill", "-TERM", "-f", r"condor_joblens\.export\.supervisor$")
        pool.run(*supervisor)
        page = ("curl", "-fsS", "http://127.0.0.1:953/metrics")
        pool.until(lambda: "joblens_up" in pool.run(*page, check=False).stdout, "the page at the privileged port")
    page = ("curl", "-fsS", "http://127.0.0.1:9753/metrics")
    pool.until(lambda: pool.run(*page, check=False).stdout, "the page")
    # the next one has no right to such ports: other tests of this pool ask for that
    before = pool.run("pgrep", "-f", supervisor[-1]).stdout
    pool.run(*supervisor)
    pool.until(lambda: pool.run("pgrep", "-f", supervisor[-1], check=False).stdout not in ("", before), "another one")
    pool.until(lambda: pool.run(*page, check=False).stdout, "its page")


def test_the_exporter_tells_how_the_node_does(exporting: Pool) -> None:
    def told() -> Any:
        found = [record["Machine"] for record in records(exporting) if record["Type"] == "health"]
        return found and found[-1]

    found = exporting.until(told, "the exporter's word of itself")
    disk = exporting.shell("stat -f -c '%b %S' $(condor_config_val EXECUTE)").split()
    assert found["ExecuteBytes"] == int(disk[0]) * int(disk[1]) >= found["ExecuteFreeBytes"] > 0
    assert found["Cpus"] == os.cpu_count() and 0 < found["MemoryAvailableBytes"] < found["MemoryBytes"]
