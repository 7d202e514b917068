"""What a site imports for the indices: saved searches, the dashboard and retention, with real servers.

OpenSearch Dashboards and the plug-in for index state management can't be had here. So each object goes into an index
with the strict mapping that Dashboards gives its own, and each query and aggregation is run. What the page tells an
administrator to send is sent to a stand-in of both.
"""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import OpenSearch
from sinks import deliver, make, runs, start
from test_opensearch import ask, cluster, event

from condor_joblens.export.records import RowEncoder
from condor_joblens.model import classes
from condor_joblens.model.servers import Scope
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.opensearch import OpenSearchSink

__all__ = ["cluster"]  # a fixture that pytest finds here

DOCS = Path(__file__).resolve().parents[2] / "docs"
OBJECTS = [json.loads(line) for line in (DOCS / "opensearch" / "joblens.ndjson").read_text().splitlines()]

NO_SPACE, KILLED = "dd exited 1: no space left on /scratch", "killed by signal 9"
ATLAS, FILER = "/cvmfs/atlas.cern.ch", "filer.example.org"


def jobs() -> list[Record]:
    """The last records of six runs; of the first there are two."""
    rows = runs(6)
    rows["owner"] = [b"alice", b"alice", b"bob", b"bob", b"alice", b"carol"]
    rows["complete"] = [True, True, True, True, False, True]
    rows["death"][:3] = [NO_SPACE.encode(), NO_SPACE.encode(), KILLED.encode()]
    rows["first_failure"][3] = b"cp exited 1"
    rows["cpu_seconds"] = [1, 2, 4, 8, 16, 32]
    rows["memory_cgroup_peak_bytes"] = [100, 300, 200, 50, 60, 70]
    cvmfs, nfs = (list(classes.SERVERS).index(name) for name in ("Cvmfs", "Nfs"))
    for run, place, name, kind, bytes in (
        (0, 0, ATLAS, cvmfs, 1000), (0, 1, FILER, nfs, 10), (1, 0, ATLAS, cvmfs, 500), (2, 0, FILER, nfs, 7),
    ):  # fmt: skip
        rows["servers"][run, place] = (name.encode(), kind, Scope.SERVER, 3, 1, bytes, 0.5, 0)
    rows["servers"][2, -1] = (b"", 0, Scope.REST, 1, 1, 20, 0.5, 0)
    again = rows[:1].copy()
    again["sequence"], again["corrects"] = 2, True
    encoder = RowEncoder("node1")
    return [*encoder.records(rows, RecordKind.JOB), *encoder.records(again, RecordKind.JOB)]


def events() -> list[Record]:
    return [
        event(1, Kind="Exit", Program="dd", Pid=5, ExitCode=1),
        event(2, Kind="Exit", Program="cat", Pid=6, ExitCode=0),
        event(3, Kind="Exit", Program="reco", Pid=7, ExitSignal=11),
        event(4, Kind="Oom", Program="reco", Pid=7, MemoryBytes=5),
        event(5, Kind="Hang", HangSuspected=True, HangCause="Lock"),
        event(6, Kind="Hang", HangSuspected=False),
        event(7, Kind="Loss", Sink="kafka", Cause="age", Count=30),
        event(8, Kind="Loss", Sink="kafka", Cause="age", Count=12),
    ]


def samples() -> list[Record]:
    rows = runs(2)
    rows["owner"] = b"alice"
    rows["cpu_recent_cores"] = [1.0, 3.0]
    return RowEncoder("node1").records(rows, RecordKind.SAMPLE)


@pytest.fixture(scope="module")
def filled(opensearch: OpenSearch, folder: Path) -> Iterator[OpenSearch]:
    """A cluster with records of each kind but health."""
    sink = make(OpenSearchSink, URL=opensearch.url, DEAD_LETTERS=str(folder / "objects"))
    start(sink)
    deliver(sink, [*jobs(), *events(), *samples()])  # again, where the node is slow to make its indices
    sink.close(1)
    ask(f"{opensearch.url}/joblens-*/_refresh", {})
    yield opensearch


def named(kind: str, title: str) -> dict[str, Any]:
    (found,) = (one for one in OBJECTS if (one["type"], one["attributes"]["title"]) == (kind, f"JobLens: {title}"))
    return dict(found)


def question(saved: dict[str, Any]) -> dict[str, Any]:
    """The query as Dashboards sends one in Lucene's language; an empty one is all."""
    query = json.loads(saved["attributes"]["kibanaSavedObjectMeta"]["searchSourceJSON"])["query"]
    assert query["language"] == "lucene"
    text = query["query"]
    return {"query_string": {"query": text, "analyze_wildcard": True}} if text else {"match_all": {}}


def index(saved: dict[str, Any]) -> str:
    (to,) = saved["references"]
    (pattern,) = (one for one in OBJECTS if (one["type"], one["id"]) == (to["type"], to["id"]))
    return str(pattern["attributes"]["title"])


def answer(server: OpenSearch, saved: dict[str, Any], **more: Any) -> Any:
    found = ask(f"{server.url}/{index(saved)}/_search", {"query": question(saved), "size": 100, **more})
    assert found["_shards"]["failed"] == 0 and found["_shards"]["total"] > 0
    return found


@pytest.mark.parametrize(
    "title, key, expected",
    [
        ("Runs that failed", "JobId", ["0.0", "1.0", "2.0"]),
        ("Runs that ended well although a program failed", "JobId", ["3.0"]),
        ("Runs that asked a file server", "JobId", ["0.0", "1.0", "2.0"]),
        ("Runs whose numbers are not complete", "JobId", ["4.0"]),
        ("Programs that failed", "Program", ["dd", "reco"]),
        ("Processes that were killed for their memory", "Program", ["reco"]),
        ("Jobs that seem to hang", "HangCause", ["Lock"]),
        ("What was lost", "Count", [12, 30]),
    ],
)
def test_a_saved_search_finds_what_its_title_says(
    filled: OpenSearch, title: str, key: str, expected: list[Any]
) -> None:
    saved = named("search", title)
    hits = answer(filled, saved, sort=[dict([saved["attributes"]["sort"][0]])])["hits"]["hits"]
    assert sorted(hit["_source"][key] for hit in hits) == expected


def test_every_search_and_panel_is_tried_here() -> None:
    searches = {one["attributes"]["title"] for one in OBJECTS if one["type"] == "search"}
    panels = {one["attributes"]["title"] for one in OBJECTS if one["type"] == "visualization"}
    assert len(searches) == 8 and panels == {f"JobLens: {title}" for title in [*TABLES, "Bytes from file servers"]}


def aggregations(state: dict[str, Any]) -> dict[str, Any]:
    """What Dashboards asks for a visualization: its buckets, each within the one before, and all of its numbers."""
    numbers = {
        one["id"]: {one["type"]: {"field": one["params"]["field"]}}
        for one in state["aggs"]
        if one["schema"] == "metric"
    }
    asked: dict[str, Any] = dict(numbers)
    for one in reversed([one for one in state["aggs"] if one["schema"] != "metric"]):
        options = one["params"]
        if one["type"] == "terms":
            order = {options["orderBy"]: options["order"]}
            bucket = {"terms": {"field": options["field"], "size": options["size"], "order": order}}
        else:
            bucket = {"date_histogram": {"field": options["field"], "calendar_interval": "1d"}}
        asked = {**numbers, one["id"]: {**bucket, "aggs": asked}}
    return asked


def rows(state: dict[str, Any], found: Any) -> dict[tuple[Any, ...], list[float]]:
    """Keys of the buckets, from the outermost -> the numbers."""
    numbers = [one["id"] for one in state["aggs"] if one["schema"] == "metric"]
    buckets = [one["id"] for one in state["aggs"] if one["schema"] != "metric"]

    def walk(level: Any, left: list[str]) -> Iterator[tuple[tuple[Any, ...], list[float]]]:
        if not left:
            yield (), [level[number]["value"] for number in numbers]
            return
        for bucket in level[left[0]]["buckets"]:
            for keys, values in walk(bucket, left[1:]):
                yield (bucket.get("key_as_string", bucket["key"]), *keys), values

    return dict(walk(found, buckets))


DAY = str(1_700_000_101 // 86400 * 86400)
TABLES: dict[str, dict[tuple[Any, ...], list[float]]] = {
    "Runs that ended": {(): [6]},
    "Runs that failed": {(): [3]},
    "Ends of runs": {(DAY, "alice"): [3], (DAY, "bob"): [2], (DAY, "carol"): [1]},
    "Failed runs by cause": {(NO_SPACE, "alice"): [2, 1], (KILLED, "bob"): [1, 1]},
    "Owners": {("alice",): [3, 19, 300], ("bob",): [2, 12, 200], ("carol",): [1, 32, 70]},
    "Runs by file server": {(ATLAS, "alice"): [2], (FILER, "alice"): [1], (FILER, "bob"): [1]},
    "Cores of a job, average of its samples": {(DAY, "alice"): [2]},
    "Records that were lost": {("age", "node1"): [42]},
}


@pytest.mark.parametrize("title", TABLES)
def test_a_panel_shows_these_numbers(filled: OpenSearch, title: str) -> None:
    saved = named("visualization", title)
    state = json.loads(saved["attributes"]["visState"])
    answered = answer(filled, saved, aggs=aggregations(state))["aggregations"]
    assert rows(state, answered) == TABLES[title]


def test_bytes_by_server_and_owner_are_exact(filled: OpenSearch) -> None:
    saved = named("visualization", "Bytes from file servers")
    specification = json.loads(json.loads(saved["attributes"]["visState"])["params"]["spec"])
    source = specification["data"]["url"]
    assert source["index"] == index(saved)
    found: Any = ask(f"{filled.url}/{source['index']}/_search", source["body"])
    for name in specification["data"]["format"]["property"].split("."):
        found = found[name]
    sums = {
        (owner["key"], server["key"]): (server["ReceivedBytes"]["value"], server["Requests"]["value"])
        for owner in found
        for server in owner["servers"]["names"]["buckets"]
    }
    assert sums == {
        ("alice", ATLAS): (1500, 6),
        ("alice", FILER): (10, 3),
        ("bob", FILER): (7, 3),
        ("bob", "(others)"): (20, 1),
    }


def test_each_field_that_an_object_names_can_be_searched_and_added_up(filled: OpenSearch) -> None:
    for saved in OBJECTS:
        if saved["type"] != "visualization":
            continue
        fields = {one["params"]["field"] for one in json.loads(saved["attributes"]["visState"])["aggs"]}
        text = json.loads(saved["attributes"]["kibanaSavedObjectMeta"]["searchSourceJSON"])["query"]["query"]
        fields |= set(re.findall(r"(\w+):", text))
        known = ask(f"{filled.url}/{index(saved)}/_field_caps?fields=*")["fields"]
        for field in fields:
            ((kind, facts),) = known[field].items()
            assert facts["searchable"] and facts["aggregatable"], (field, kind)


# As Dashboards keeps them

_UNSEARCHED = {"type": "text", "index": False}
_META = {"properties": {"searchSourceJSON": _UNSEARCHED}}
_TITLED = {"title": {"type": "text"}, "description": {"type": "text"}, "version": {"type": "integer"}}
_HIDDEN = {"type": "keyword", "index": False, "doc_values": False}
_ATTRIBUTES: dict[str, Any] = {
    "index-pattern": {"dynamic": False, "properties": {"title": {"type": "text"}, "type": {"type": "keyword"}}},
    "search": {
        "properties": {
            **_TITLED,
            "columns": _HIDDEN,
            "sort": _HIDDEN,
            "hits": {"type": "integer", "index": False},
            "kibanaSavedObjectMeta": _META,
        }
    },
    "visualization": {
        "properties": {
            **_TITLED,
            "savedSearchRefName": _HIDDEN,
            "uiStateJSON": _UNSEARCHED,
            "visState": _UNSEARCHED,
            "kibanaSavedObjectMeta": _META,
        }
    },
    "dashboard": {
        "properties": {
            **_TITLED,
            "hits": {"type": "integer", "index": False},
            "optionsJSON": _UNSEARCHED,
            "panelsJSON": _UNSEARCHED,
            "timeFrom": _HIDDEN,
            "timeTo": _HIDDEN,
            "timeRestore": {"type": "boolean"},
            "refreshInterval": {
                "properties": {
                    "display": _HIDDEN,
                    "pause": {"type": "boolean"},
                    "section": {"type": "integer"},
                    "value": {"type": "integer"},
                }
            },
            "kibanaSavedObjectMeta": _META,
        }
    },
}
"""The attributes of each type in the index of OpenSearch Dashboards 2 and 3, which refuses any other."""


def test_each_object_fits_the_strict_mapping_of_dashboards_own_index(opensearch: OpenSearch) -> None:
    properties = {
        **_ATTRIBUTES,
        "type": {"type": "keyword"},
        "migrationVersion": {"dynamic": "true", "type": "object"},
        "references": {
            "type": "nested",
            "properties": {name: {"type": "keyword"} for name in ("name", "type", "id")},
        },
    }
    put(f"{opensearch.url}/dashboards-own", {"mappings": {"dynamic": "strict", "properties": properties}})
    for saved in OBJECTS:
        document = {
            "type": saved["type"],
            saved["type"]: saved["attributes"],
            "references": saved["references"],
            "migrationVersion": saved["migrationVersion"],
        }
        assert set(saved) == {"type", "id", "attributes", "references", "migrationVersion"}
        put(f"{opensearch.url}/dashboards-own/_doc/{saved['type']}:{saved['id']}", document)


def put(url: str, body: Any) -> None:
    done = subprocess.run(
        ["curl", "-sS", "-X", "PUT", url, "-H", "Content-Type: application/json", "-d", "@-"],
        input=json.dumps(body), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "error" not in json.loads(done.stdout), done.stdout


# An index of a version that did not let servers be searched


@pytest.mark.sampled(1)
def test_an_index_whose_servers_are_not_searched_is_written_on(cluster: OpenSearch, folder: Path) -> None:
    letters = folder / f"older-{cluster.name}"
    index = "older-jobs-2023.11.14"
    put(f"{cluster.url}/{index}", {"mappings": {"properties": {"Servers": {"type": "object", "enabled": False}}}})
    sink = make(OpenSearchSink, URL=cluster.url, INDEX="older", DEAD_LETTERS=str(letters))
    start(sink)
    deliver(sink, jobs())
    sink.close(1)
    ask(f"{cluster.url}/{index}/_refresh", {})
    assert ask(f"{cluster.url}/{index}/_count")["count"] == len(jobs()) and not letters.exists()
    assert ask(f"{cluster.url}/{index}/_mapping")[index]["mappings"]["properties"]["Servers"]["enabled"] is False


# Retention


def commands(title: str) -> str:
    """The first block of commands below a title of the sink's page."""
    page = (DOCS / "sinks" / "opensearch.md").read_text()
    found = re.search(rf"^## {title}$.*?^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


class Administered(http.server.BaseHTTPRequestHandler):
    """Stands for the plug-in and for Dashboards: keeps what it is asked."""

    asked: dict[tuple[str, str], tuple[dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked[self.command, self.path] = dict(self.headers), body
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_PUT = do_POST

    def log_message(self, format: str, *arguments: Any) -> None:
        """Not a word."""


def test_the_commands_of_the_page_send_policies_and_objects(serve: Any) -> None:
    asked: dict[tuple[str, str], tuple[dict[str, str], bytes]] = {}
    url = serve(type("Here", (Administered,), {"asked": asked}))
    text = commands("Retention and a dashboard").replace("/usr/share/joblens/opensearch", str(DOCS / "opensearch"))
    text = re.sub(r"^(opensearch|dashboards)=.*$", rf"\1={url}", text, flags=re.MULTILINE).replace(" -u admin", "")
    subprocess.run(["sh", "-euc", text], check=True, timeout=60, capture_output=True)
    policies = {f"joblens-{name}": DOCS / "opensearch" / f"retention-{name}.json" for name in ("details", "jobs")}
    for name, path in policies.items():
        headers, body = asked.pop(("PUT", f"/_plugins/_ism/policies/{name}"))
        assert headers["Content-Type"] == "application/json" and json.loads(body) == json.loads(path.read_text())
        patterns = json.loads(path.read_text())["policy"]["ism_template"][0]["index_patterns"]
        headers, body = asked.pop(("POST", f"/_plugins/_ism/add/{','.join(patterns)}"))
        assert headers["Content-Type"] == "application/json" and json.loads(body) == {"policy_id": name}
    ((target, (headers, body)),) = asked.items()
    assert target == ("POST", "/api/saved_objects/_import?overwrite=true") and headers["osd-xsrf"] == "true"
    assert headers["Content-Type"].startswith("multipart/form-data;")
    assert b'name="file"; filename="joblens.ndjson"' in body
    assert (DOCS / "opensearch" / "joblens.ndjson").read_bytes() in body


@pytest.mark.sampled(1)
def test_indices_that_are_too_old_are_deleted_and_no_others(cluster: OpenSearch, folder: Path) -> None:
    now = time.time()
    ages = {"old": 60, "just": 15, "edge": 13, "today": 0}
    days = {age: time.strftime("%Y.%m.%d", time.gmtime(now - 86400 * days)) for age, days in ages.items()}
    names = [f"kept-samples-{day}" for day in days.values()]
    others = [f"kept-jobs-{days['old']}", "kept-samples-of-a-friend", f"kept-samples-x-{days['old']}"]
    for name in [*names, *others]:
        put(f"{cluster.url}/{name}", {})

    def there() -> set[str]:
        found = ask(f"{cluster.url}/_cat/indices/kept-*?h=index&format=json")
        return {one["index"] for one in found}

    assert there() == {*names, *others}
    said = subprocess.run(
        [DOCS / "opensearch" / "delete_old_indices", cluster.url, "kept-samples", "14"],
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout.splitlines()  # fmt: skip
    gone = {f"kept-samples-{days[age]}" for age in ("old", "just")}
    assert set(said) == {f"deleted {name}" for name in gone}
    assert there() == {*names, *others} - gone
