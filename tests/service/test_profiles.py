"""Profiles of jobs in a file, in Kafka and in OpenSearch: joblens-export reads what joblensd has kept."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from exporter import Exporter, Node
from servers import Kafka, OpenSearch
from sinks import until
from test_kafka import read
from test_opensearch import ask, documents

from condor_joblens.profiles import pprof
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.schema import schemas

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from profile_samples import hostile, profile, random_profile, waits


def about(owner: str, kind: str = "profile") -> Artifact:
    now = time.time()
    run = f"ap.example.org#1.0#1700000000#{owner}"
    return Artifact(
        kind, pprof.CONTENT_TYPE, 1, now - 60, now, run=run, owner=owner, slot="slot1_1", node="node1.example.org"
    )


@pytest.fixture(scope="module")
def told(folder: Path, kafka: Kafka, opensearch: OpenSearch) -> Iterator[dict[str, dict[str, Any]]]:
    """What the file has of them, by id; one of them is gone before anybody could read it."""
    node = Node(folder / "node", jobs=1)
    file = folder / "records.jsonl"
    macros = {
        "JOBLENS_SINKS": "file, kafka, opensearch",
        "JOBLENS_SINK_FILE_PATH": str(file),
        "JOBLENS_SINK_FILE_KINDS": "event, profile",
        "JOBLENS_SINK_KAFKA_SERVERS": kafka.plain,
        "JOBLENS_SINK_KAFKA_TOPIC_PROFILES": "joblens.profiles",
        "JOBLENS_SINK_OPENSEARCH_URL": opensearch.url,
        "JOBLENS_SINK_OPENSEARCH_PROFILES": "true",
        "JOBLENS_SINK_OPENSEARCH_DEAD_LETTERS": str(folder / "refused"),
    }
    node.publish()
    for owner, made in (("alice", profile()), ("alice", random_profile(1, 5000)), ("mallory", hostile())):
        node.keep_profile(about(owner), pprof.encode(made))
    node.keep_profile(about("bob", "off_cpu"), pprof.encode(waits()))
    gone = node.keep_profile(about("bob"), b"no profile")
    (node.folder / "artifacts" / gone).unlink()
    with Exporter(folder / "exporter", node, **macros) as exporter:

        def records() -> list[dict[str, Any]]:
            lines = file.read_text().rpartition("\n")[0] if file.exists() else ""  # the last line may be half there
            return [json.loads(line) for line in lines.splitlines()]

        def whole() -> bool:
            found = records()
            profiles = sum(record["Type"] == "profile" for record in found)
            return profiles == 4 and any(record.get("Kind") == "Loss" for record in found)

        until(whole, "four profiles and a loss", 120)
        losses = [record for record in records() if record.get("Kind") == "Loss"]
        assert [(record["Cause"], record["Count"]) for record in losses] == [("unseen", 1)], exporter.said()
        yield {record["Id"]: record for record in records() if record["Type"] == "profile"}
        exporter.stop()
    assert not (folder / "refused").exists()


def test_they_fit_the_published_schema(told: dict[str, dict[str, Any]]) -> None:
    check = jsonschema.Draft202012Validator(schemas()[RecordKind.PROFILE])
    for record in told.values():
        check.validate(record)
        assert len(json.dumps(record)) <= 64 << 10
        assert sum(path["Value"] for path in record["Paths"]) + record["OtherPaths"] == record["Total"]
    assert sorted(record["Owner"] for record in told.values()) == ["alice", "alice", "bob", "mallory"]


def test_kafka_has_them(told: dict[str, dict[str, Any]], kafka: Kafka) -> None:
    def found() -> dict[str, Any]:
        return {value["Id"]: value for value in (json.loads(one.value) for one in read(kafka, "joblens.profiles"))}

    assert until(lambda: len(got := found()) == len(told) and got, "all profiles in Kafka") == told


def test_opensearch_has_them_and_adds_up_a_functions_samples(
    told: dict[str, dict[str, Any]], opensearch: OpenSearch
) -> None:
    def found() -> dict[str, Any]:
        with contextlib.suppress(urllib.error.HTTPError):  # 503: a shard of an index that has just been made
            return documents(opensearch, "joblens-profiles-*")
        return {}

    assert until(lambda: len(got := found()) == len(told) and got, "all profiles in OpenSearch") == told
    named = {"term": {"Functions.Function": "Tree::Fill(int)"}}
    inner = {"filter": named, "aggs": {"own": {"sum": {"field": "Functions.Self"}}}}
    asked = {"size": 0, "aggs": {"functions": {"nested": {"path": "Functions"}, "aggs": {"fill": inner}}}}
    answer = ask(f"{opensearch.url}/joblens-profiles-*/_search", asked)
    expected = sum(
        function["Self"]
        for record in told.values()
        for function in record["Functions"]
        if function["Function"] == "Tree::Fill(int)"
    )
    assert answer["aggregations"]["functions"]["fill"]["own"]["value"] == expected > 0
