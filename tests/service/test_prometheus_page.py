"""The Prometheus page with a real Prometheus that scrapes it: values, rules, the dashboard's queries, TLS, crowds."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import Prometheus, certificate, free_port
from sinks import make, runs, until

from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.model.servers import NUMBERS, Scope
from condor_joblens.sinks.prometheus import PrometheusSink

DOCS = Path(__file__).resolve().parents[2] / "docs"
RULES = DOCS / "prometheus" / "joblens.rules.yml"
DASHBOARD = json.loads((DOCS / "grafana" / "joblens.json").read_text())
OWNERS = ("alice", "bob")
GROUPS = ("group_cms.prod", "group_atlas", "")


class Node:
    """Rows as joblensd would publish them: counters grow with time; and a sink that does not do well."""

    def __init__(self, count: int = 6) -> None:
        self.begun = time.time()
        self.base = runs(count)
        self.base["owner"] = [OWNERS[number % 2].encode() for number in range(count)]
        self.base["accounting_group"] = [GROUPS[number % 3].encode() for number in range(count)]
        self.base["slot"] = [f"slot1_{number}".encode() for number in range(count)]
        self.base["servers"]["name"][:, 0] = b"/cvmfs/example.org"
        self.base["servers"]["scope"][:, 0] = Scope.SERVER
        self.ended: set[int] = set()

    def rows(self) -> tuple[np.ndarray, float]:
        now = time.time()
        rows = self.base.copy()
        for metric in METRICS:
            if metric.kind is MetricKind.COUNTER:
                rows[metric.column] += int((now - self.begun) * 100)
        for name in NUMBERS:
            rows["servers"][name][:, 0] = int((now - self.begun) * 100)
        rows["final"][sorted(self.ended)] = True
        return rows, now

    def unattributed(self) -> dict[str, Any]:
        asked = int((time.time() - self.begun) * 10)
        numbers = dict.fromkeys(("Requests", "SentBytes", "ReceivedBytes", "Seconds", "Errors"), asked)
        return {"Unattributed": [{"Name": "filer.example.org", "Class": "Nfs", **numbers}, numbers]}

    def health(self) -> list[dict[str, Any]]:
        lost = int((time.time() - self.begun) * 10)
        names = ("QueuedRecords", "QueuedBytes", "SpooledRecords", "SpooledBytes", "Delivered", "Retried", "Failures")
        return [
            {"Sink": "kafka", "Working": False, "LagSeconds": 1.5, **dict.fromkeys(names, 7), "Refused": lost,
             "Dropped": {"overflow": lost}}
        ]  # fmt: skip


@pytest.fixture(scope="module")
def node() -> Node:
    return Node()


@pytest.fixture(scope="module")
def page(node: Node) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    sink = make(PrometheusSink, rows=node.rows, health=node.health, unattributed=node.unattributed, ADDRESS=address)
    sink.start()
    yield address
    sink.close(2)


@pytest.fixture(scope="module")
def prometheus(folder: Path, server: Any, page: str) -> Iterator[Prometheus]:
    with server(Prometheus, folder / "prometheus", page, rules=(RULES,)) as started:
        yield started


def ask(prometheus: Prometheus, query: str) -> list[Any]:
    url = f"{prometheus.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=20) as answer:
        said = json.loads(answer.read())
    assert said["status"] == "success", said
    found: list[Any] = said["data"]["result"]
    return found


def test_every_family_is_there_for_every_job_with_its_value(prometheus: Prometheus, node: Node) -> None:
    until(lambda: len(ask(prometheus, "joblens_job_info")) == len(node.base), "the first scrape")
    for metric in METRICS:
        name = metric.family + ("_total" if metric.kind is MetricKind.COUNTER else "")
        own = f'{{{metric.label[0]}="{metric.label[1]}"}}' if metric.label else ""

        def of_each_job(query: str = name + own) -> dict[str, float] | None:
            found = {one["metric"]["job_id"]: float(one["value"][1]) for one in ask(prometheus, query)}
            return found if len(found) == len(node.base) else None  # after a scrape that came too late there is nothing

        found = until(of_each_job, f"{name} of each job")
        for row in node.base:
            value = found[row["job_id"].decode()]
            least = float(row[metric.column]) * metric.family_scale
            assert value == pytest.approx(least) if metric.kind is not MetricKind.COUNTER else value >= least


def queries() -> list[str]:
    found = []
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "10s")
            found.append(text.replace("$owner", ".*").replace("$instance", ".*"))
    return found


@pytest.mark.parametrize("query", queries())
def test_each_query_of_the_dashboard_has_an_answer(prometheus: Prometheus, query: str) -> None:
    found = until(lambda: ask(prometheus, query), f"an answer to {query}")
    assert all(np.isfinite(float(one["value"][1])) for one in found)


def test_the_first_panel_has_each_owner_and_nobody_at_each_server(prometheus: Prometheus) -> None:
    panel = DASHBOARD["panels"][0]
    query = panel["targets"][0]["expr"].replace("$__rate_interval", "10s").replace("$owner", ".*")

    def found() -> set[tuple[str, str]]:
        return {(one["metric"]["owner"], one["metric"]["server"]) for one in ask(prometheus, query)}

    expected = {(owner, "/cvmfs/example.org") for owner in OWNERS}
    expected |= {("(no job)", "filer.example.org"), ("(no job)", "other")}
    until(lambda: found() == expected, "rates of all")


def test_each_rule_is_evaluated(prometheus: Prometheus) -> None:
    def rules() -> dict[str, Any]:
        with urllib.request.urlopen(f"{prometheus.url}/api/v1/rules", timeout=20) as answer:
            groups = json.loads(answer.read())["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    until(lambda: all(rule["health"] == "ok" for rule in rules().values()), "all rules")
    for name, rule in rules().items():
        if rule["type"] == "recording":
            # a rate needs two scrapes before the rule is evaluated
            until(lambda name=name: ask(prometheus, name), name)


def test_sums_by_group_are_those_of_its_jobs(prometheus: Prometheus, node: Node) -> None:
    of_each = {group: cores_of(node, group) for group in GROUPS}

    def sums() -> dict[str, float]:
        found = ask(prometheus, "joblens:group_cores:sum")
        return {one["metric"].get("accounting_group", ""): float(one["value"][1]) for one in found}

    def jobs() -> float:
        return sum(float(one["value"][1]) for one in ask(prometheus, "joblens:group_jobs:count"))

    # after a scrape that came too late there is nothing for a moment
    until(lambda: sums() == pytest.approx(of_each), f"the sums {of_each}")
    until(lambda: jobs() == len(node.base), "the number of jobs")


def cores_of(node: Node, group: str) -> float:
    members = node.base["accounting_group"] == group.encode()
    return float(node.base["cpu_recent_cores"][members].sum())


def test_ended_jobs_vanish(prometheus: Prometheus, node: Node) -> None:
    until(lambda: len(ask(prometheus, "joblens_job_cpu_seconds_total")) == len(node.base), "all jobs")
    node.ended = {0, 3}
    until(lambda: len(ask(prometheus, "joblens_job_cpu_seconds_total")) == len(node.base) - 2, "two of them to vanish")
    node.ended = set()


def fetch(address: str, seconds: float = 60) -> str:
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept-Encoding": "identity"})
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return str(answer.read().decode())


def test_ten_scrapers_at_once_beside_slow_ones_all_get_a_whole_page(page: str, prometheus: Prometheus) -> None:
    host, _, port = page.rpartition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(6)]
    for number, connection in enumerate(slow):
        connection.sendall(b"GET /metrics HTTP/1.0\r\n" + (b"\r\n" if number % 2 else b""))  # half of them never ends
    pages: list[str] = []
    threads = [threading.Thread(target=lambda: pages.append(fetch(page))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    for connection in slow:
        connection.close()
    assert len(pages) == 10
    assert all(text.count("joblens_job_cpu_seconds_total{") == 6 for text in pages)
    assert until(lambda: ask(prometheus, "up == 1"), "Prometheus to go on")


def test_over_tls_with_client_certificates(node: Node, folder: Path, server: Any) -> None:
    ours, our_key = certificate(folder / "tls", "localhost")
    theirs, their_key = certificate(folder / "tls", "prometheus")
    address = f"127.0.0.1:{free_port()}"
    sink = make(
        PrometheusSink, rows=node.rows, ADDRESS=address, CERTIFICATE=str(ours), KEY=str(our_key),
        CLIENT_AUTHORITY=str(theirs),
    )  # fmt: skip
    sink.start()
    scrape = {
        "scheme": "https",
        "tls_config": f"{{ca_file: {ours}, cert_file: {theirs}, key_file: {their_key}, server_name: localhost}}",
    }
    try:
        with server(Prometheus, folder / "tls" / "prometheus", address, **scrape) as started:
            until(lambda: len(ask(started, "joblens_job_info")) == len(node.base), "a scrape over TLS")
        nobody = ssl.create_default_context(cafile=str(ours))
        with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"https://{address}/metrics", timeout=10, context=nobody).read()
        with pytest.raises((OSError, urllib.error.URLError)):
            fetch(address, 10)
    finally:
        sink.close(2)


def test_a_certificate_that_is_none_is_named(folder: Path) -> None:
    wrong = folder / "wrong.pem"
    wrong.write_text("no certificate\n")
    for settings, cause in (
        ({"CERTIFICATE": str(wrong)}, f"CERTIFICATE = {wrong} has no certificate in PEM"),
        ({"CERTIFICATE": str(folder / "none")}, "can't be read"),
        ({"CLIENT_AUTHORITY": str(wrong)}, "set JOBLENS_SINK_PROMETHEUS_CERTIFICATE too"),
    ):
        with pytest.raises(Exception, match=cause):
            make(PrometheusSink, **settings).start()
        (found,) = make(PrometheusSink, **settings).check()
        assert not found.ok and cause in f"{found.text}: {found.remedy}"
