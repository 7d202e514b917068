"""Each alert that is shipped, both ways: it fires when it should, and is silent when not.

promtool tells the story of hours with the rules as they are. A real Prometheus scrapes two nodes of which one falls
ill, by the same rules with seconds for minutes.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import Prometheus, fetched, free_port
from sinks import make, runs, until

from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.sinks import Sink
from condor_joblens.sinks.prometheus import PrometheusSink

RULES = Path(__file__).resolve().parents[2] / "docs" / "prometheus" / "joblens.rules.yml"
ALERTS = set(re.findall(r"alert: (\w+)", RULES.read_text()))

# alert -> the series of which it speaks, a value a minute in promtool's shorthand; minutes when it is silent; when not
N1, JOB = 'instance="n1"', 'job_id="7.0",owner="bob",instance="n1"'
KAFKA = 'sink="kafka",instance="n1"'
STORIES: dict[str, tuple[dict[str, str], list[int], list[int]]] = {
    "JobLensDown": ({f'up{{job="joblens",{N1}}}': "1x20 0x20 1x60"}, [10, 24, 47, 54, 78], [27, 40, 60]),
    "JobLensAbsent": ({f'up{{job="joblens",{N1}}}': "1x20 stale _x60"}, [10, 30], [37, 60]),
    "JobLensSinkFails": ({f"joblens_sink_working{{{KAFKA}}}": "1x10 0x20 1x20"}, [5, 18, 35], [22]),
    "JobLensRecordsLost": (
        {f'joblens_sink_dropped_records_total{{cause="age",{KAFKA}}}': "_x9 5x30 8x30"}, [5, 30, 60], [11, 42],
    ),
    "JobLensRecordsRefused": ({f"joblens_sink_refused_records_total{{{KAFKA}}}": "0x10 5x60"}, [9, 40], [15]),
    "JobLensJobIdle": (
        {
            f"joblens_job_cpu_recent_cores{{{JOB}}}": "0x90 1x20",
            f"joblens_job_start_time_seconds{{{JOB}}}": "0x110",
        },
        [20, 59, 100], [62],
    ),
    "JobLensJobHangs": ({f"joblens_job_hang_suspected{{{JOB}}}": "0x20 1x20 0x30"}, [20, 24, 45], [30]),
    "JobLensJobOutOfMemory": (
        {f"joblens_job_memory_oom_kills_total{{{JOB}}}": "_x19 1x30 2x30"}, [10, 35, 70], [21, 55],
    ),
    "JobLensJobWaitsForStorage": (
        {f"joblens_job_io_pressure_some_seconds_total{{{JOB}}}": "0+40x60 2400+6x60"}, [15, 90], [40],
    ),
}  # fmt: skip
EXTRA = {"JobLensDown": {f"joblens_up{{{N1}}}": "1x50 0x20 1x30"}}  # the page is there, and joblensd is not


def without_annotations() -> str:
    """promtool compares them too: they are not what this is about."""
    lines = RULES.read_text().splitlines()
    return "\n".join(line for line in lines if not re.match(r"\s*(annotations|summary|runbook_url):", line))


def test_there_is_a_story_of_each_alert() -> None:
    assert set(STORIES) == ALERTS


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_fires_when_it_should_and_is_silent_before_and_after(place: Path, alert: str) -> None:
    tool = fetched("prometheus") / "promtool"
    series, silent, loud = STORIES[alert]
    (place / "rules.yml").write_text(without_annotations())
    for minutes, fires in ((silent, False), (loud, True)):
        for minute in minutes:
            case = [
                f"rule_files: [{place}/rules.yml]", "evaluation_interval: 1m", "tests:", "  - interval: 1m",
                "    input_series:",
                *(f"      - {{series: '{name}', values: '{values}'}}"
                  for name, values in {**series, **EXTRA.get(alert, {})}.items()),
                "    promql_expr_test:",
                f"      - expr: count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}) > 0 or vector(0)",
                f"        eval_time: {minute}m",
                f"        exp_samples: [{{value: {int(fires)}}}]",
            ]  # fmt: skip
            (place / "case.yml").write_text("\n".join(case) + "\n")
            done = subprocess.run([tool, "test", "rules", place / "case.yml"], capture_output=True, text=True)
            assert done.returncode == 0, (minute, fires, done.stdout + done.stderr)


class Node:
    """A node with two jobs and a sink, which falls ill when it is told to."""

    def __init__(self) -> None:
        self.base = runs(2)
        for metric in METRICS:
            if metric.kind is MetricKind.COUNTER:
                self.base[metric.column] = 0
        self.base["cpu_recent_cores"], self.base["hang_suspected"] = 1, 0
        self.ill_since = 0.0
        self.address = f"127.0.0.1:{free_port()}"
        self.sink: Sink = make(PrometheusSink, rows=self.rows, health=self.health, ADDRESS=self.address)
        self.sink.start()

    def rows(self) -> tuple[np.ndarray, float]:
        rows, now = self.base.copy(), time.time()
        if self.ill_since:
            rows["cpu_recent_cores"][0], rows["memory_oom_kills"][0], rows["hang_suspected"][0] = 0, 1, 1
            rows["io_pressure_some_seconds"][0] = now - self.ill_since
        return rows, now

    def health(self) -> list[dict[str, Any]]:
        names = ("QueuedRecords", "QueuedBytes", "SpooledRecords", "SpooledBytes", "Delivered", "Retried", "Failures")
        ill = bool(self.ill_since)
        return [
            {"Sink": "kafka", "Working": not ill, "LagSeconds": 0, **dict.fromkeys(names, 7),
             "Refused": int(time.time() - self.ill_since) if ill else 0, "Dropped": {"overflow": 3} if ill else {}}
        ]  # fmt: skip


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    found = Node(), Node()
    yield found
    for node in found:
        node.sink.close(2)


def quick_rules(place: Path) -> Path:
    """Patience of seconds, where the shipped rules have minutes.

    With a node that does not answer it is longer: on a busy machine two scrapes in a row can come too late.
    """
    text = re.sub(r"\n +for: \w+", "\n        for: 2s", RULES.read_text())
    text = re.sub(r"(alert: JobLensDown\n.*\n +for:) 2s", r"\1 15s", text)
    assert text.count("for: 15s") == 1
    text = re.sub(r"\[\d+m\]", "[10s]", text)
    text = re.sub(r"offset \d+m", "offset 10s", text)
    (place / "quick.yml").write_text(text)
    return place / "quick.yml"


def firing(prometheus: Prometheus) -> dict[str, set[str]]:
    """Alert -> the instances of which it speaks."""
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/alerts", timeout=20) as answer:
        alerts = json.loads(answer.read())["data"]["alerts"]
    found: dict[str, set[str]] = {}
    for one in alerts:
        if one["state"] == "firing":
            found.setdefault(one["labels"]["alertname"], set()).add(one["labels"].get("instance", ""))
    return found


def scrapes(prometheus: Prometheus, address: str, minimum: int) -> bool:
    """Whether there were so many scrapes of a node, each followed by rules."""
    url = f"{prometheus.url}/api/v1/query?query=count_over_time(up%7Binstance=%22{address}%22%7D%5B5m%5D)"
    with urllib.request.urlopen(url, timeout=20) as answer:
        found = json.loads(answer.read())["data"]["result"]
    return bool(found) and int(found[0]["value"][1]) >= minimum


def test_a_real_prometheus_fires_for_the_node_that_is_ill_and_not_for_the_other(
    place: Path, server: Any, nodes: tuple[Node, Node]
) -> None:
    _, ill = nodes
    addresses = [node.address for node in nodes]
    with server(Prometheus, place / "prometheus", *addresses, rules=(quick_rules(place),)) as prometheus:
        until(lambda: all(scrapes(prometheus, address, 15) for address in addresses), "some scrapes")
        assert firing(prometheus) == {}
        ill.ill_since = time.time()
        of_jobs_and_sinks = ALERTS - {"JobLensDown", "JobLensAbsent"}
        seen: dict[str, set[str]] = {}

        def all_seen() -> bool:
            for alert, instances in firing(prometheus).items():
                seen.setdefault(alert, set()).update(instances)
            return set(seen) >= of_jobs_and_sinks

        until(all_seen, f"all of {of_jobs_and_sinks}, so far {seen}")
        assert seen == {alert: {ill.address} for alert in of_jobs_and_sinks}
        ill.sink.close(2)
        until(lambda: "JobLensDown" in firing(prometheus), "the exporter's end to be noticed")
        assert firing(prometheus)["JobLensDown"] == {ill.address}
        assert "JobLensAbsent" not in firing(prometheus)


def test_a_scrape_job_of_another_name_is_noticed(place: Path, server: Any, nodes: tuple[Node, Node]) -> None:
    rules = (quick_rules(place),)
    with server(Prometheus, place / "prometheus", nodes[0].address, rules=rules, job="other") as prometheus:
        until(lambda: set(firing(prometheus)) == {"JobLensAbsent"}, "the name to be missed")
