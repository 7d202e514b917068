"""Each page has its .json, of the same numbers, and a stream of what is new in it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.artifacts import Kept
from condor_joblens.hub.store.client import StoreTooMuch
from condor_joblens.hub.web import csv_text, filters, parquet, picked, queue
from condor_joblens.hub.web.addresses import cluster_of, job_url, jobs_url, node_url, queued_url, server_url
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.bands import band
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.firing_reads import red_firings
from condor_joblens.hub.web.health import duration, moment, size, span
from condor_joblens.hub.web.live_snapshots import Snapshot
from condor_joblens.hub.web.logins import begin_session, login_of_session, login_page
from condor_joblens.hub.web.peers import PEER
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.pool import FRESH_SECONDS
from condor_joblens.hub.web.reads import HEALTH, LIVES, ROWS, STATES, Reader
from condor_joblens.hub.web.server_texts import dressed_server
from condor_joblens.hub.web.shared import OfOneViewer
from condor_joblens.hub.web.siblings import FEWEST, MEASURES, spread
from condor_joblens.hub.web.site_reads import site
from condor_joblens.hub.web.streams import event
from condor_joblens.hub.web.timeline import timeline
from condor_joblens.hub.web.timeline_picture import picture
from condor_joblens.hub.web.who_sees import Seen

_STATIC = Path(__file__).parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
ANSWER_SECONDS = 75.0
"""For all that an answer asks of the store, with waiting for others; patience.py closes what takes 90."""

MOST_NAMED = 5
"""Siblings that stand out, of each measure."""

MOST_ARTIFACTS = 30
"""That a job's page leads to; the newest."""

ARTIFACTS = {
    "profile": "Profile: where it was on the CPU",
    "off_cpu": "Profile: where it waited off the CPU",
    "hang": "Hang report",
    "traceback": "Traceback",
    "recorder": "Its last events",
    "trace": "Calls of its functions",
    "commands": "Commands of its bash scripts",
}
"""A kind of artifacts -> what pages call it."""

MOST_ROWS = 5000
"""Of jobs as CSV."""

SNAPSHOT_TIME = "snapshot_time"
"""In JSON, if live runs are as they were a moment ago: of which, epoch seconds."""

_STATES = (*STATES, *queue.QUEUE_STATES)
"""What the page of jobs can be asked for by: states of runs, and those of jobs in the queue."""

_HEADS = (
    (HEALTH, "Health"), ("job", "Job"), ("owner", "Owner"), ("node", "Node"), ("started", "Runs for"),
    ("cores", "Cores"), ("memory", "Memory"), ("read", "Read"), ("written", "Written"),
)  # fmt: skip
_QUEUE_HEADS = (("job", "Job"), ("owner", "Owner"), ("started", "So for"))


T = TypeVar("T")


def _all_of(asked: Any) -> Any:
    return asked


@dataclass(frozen=True)
class View:
    """A page: what it asks for by an address, what it finds, and how that is shown."""

    name: str  # of its templates
    asked: Callable[..., Any]  # of the address: what tells one question from another
    find: Callable[[Reader, Any], Any]  # None: there is nothing that he may see
    dress: Callable[[Any, Any], dict[str, Any]]  # what was asked, what was found: the words of a template
    whole: Callable[[Reader, Any], Any] | None = None  # what its JSON has, if that is more
    table: Callable[[Reader, Any], list[dict[str, Any]]] | None = None  # its rows as CSV
    stamp: Callable[[Reader], Hashable] | None = None
    """A question that costs little, of nobody's: as long as its answer is the same, so is what is found."""

    of_store: Callable[[Any], Any] = _all_of
    """What of an address tells one question to the store from another: the rest chooses from what it has answered."""

    backs_off: bool = False  # over all runs: asked less often while it is left open

    is_of_live: bool = False
    """At a large site, of live runs as they were a moment ago (live_snapshots.py). As long as there is no
    newer snapshot, it is not asked anew."""

    def found(self, viewer: Person, asked: Any) -> Any:
        """Shared with all who see the same. Raises JobLensError."""
        question = (self.name, viewer.scope, self.of_store(asked))
        return self._answer(question, viewer, lambda reader: self.find(reader, asked), self._stamp(viewer))

    def _answer(self, question: Hashable, viewer: Person, find: Callable[[Reader], Any], stamp: Hashable = None) -> Any:
        return _asked(question, viewer, find, stamp, backs_off=self.backs_off, is_of_live=self.is_of_live)

    def _stamp(self, viewer: Person) -> Hashable:
        """None: what is found may be another any time. Raises JobLensError."""
        if self.is_of_live:
            return desk().snapshots.newest()
        return None if self.stamp is None else _asked(("stamp", self.name), viewer, self.stamp)

    def found_whole(self, viewer: Person, asked: Any) -> Any:
        """The same, for its JSON. Raises JobLensError."""
        whole = self.whole
        if whole is None:
            return self.found(viewer, asked)
        return self._answer(("whole", self.name, viewer.scope, asked), viewer, lambda reader: whole(reader, asked))

    def part(self, viewer: Person, asked: Any) -> str | None:
        """What is renewed of the page, as HTML. Raises JobLensError."""

        def rendered() -> str | None:
            found = self.found(viewer, asked)
            if found is None:
                return None
            whole = str(render_to_string(f"{self.name}_part.html", self.dress(asked, found)))
            if SNAPSHOT_TIME in found:
                when = span(found[SNAPSHOT_TIME], found[SNAPSHOT_TIME])
                whole += render_to_string("snapshot_part.html", {"when": when})
            return whole

        question = ("part", self.name, viewer.scope, asked)
        return desk().shared.get(question, rendered, self._stamp(viewer), backs_off=self.backs_off)

    def page(self, request: Any, **words: str) -> HttpResponse:
        """The whole page."""
        try:
            asked = self.asked(request.GET, **words)
            found, part = self.found(request.viewer, asked), self.part(request.viewer, asked)
        except JobLensError as error:
            why, status = why_not(error)
            return render(
                request, "gone.html", {"why": why, "page": "gone", "asks_again": status != 400}, status=status
            )
        if found is None or part is None:
            raise Http404
        context = {**self.dress(asked, found), "part": mark_safe(part), "page": self.name}
        return render(request, f"{self.name}.html", context)

    def as_json(self, request: Any, **words: str) -> HttpResponse:
        """The same numbers."""
        try:
            found = self.found_whole(request.viewer, self.asked(request.GET, **words))
        except JobLensError as error:
            why, status = why_not(error)
            return JsonResponse({"error": why}, status=status)
        if found is None:
            return JsonResponse({"error": "there is no such thing, or it is not yours"}, status=404)
        return JsonResponse(found)

    def as_csv(self, request: Any, **words: str) -> HttpResponse:
        """Its table, for a spreadsheet."""
        return self._as_file(request, words, lambda rows: csv_answer(rows, f"{self.name}.csv"))

    def as_parquet(self, request: Any, **words: str) -> HttpResponse:
        """The same table, with types and units."""
        return self._as_file(request, words, lambda rows: parquet_answer(rows, self.name, request.viewer))

    def _as_file(self, request: Any, words: dict[str, str], made: Callable[[Any], HttpResponse]) -> HttpResponse:
        table = self.table
        assert table is not None
        try:
            asked = self.asked(request.GET, **words)
            question = ("table", self.name, request.viewer.scope, asked)
            return made(self._answer(question, request.viewer, lambda reader: table(reader, asked)))
        except JobLensError as error:
            why, status = why_not(error)
            return HttpResponse(why, status=status, content_type="text/plain; charset=utf-8")

    def stream(self, request: Any, **words: str) -> HttpResponse:
        """The part, whenever it is another one."""
        try:
            asked = self.asked(request.GET, **words)
        except JobLensError as error:
            return HttpResponse(str(error), status=400)
        login, scope = request.login, request.viewer.scope
        key = request.session.session_key if request.login == request.session.get("login") else None

        def look() -> bytes | None:
            person = desk().people_by_login().get(login)
            try:
                is_in = key is None or login_of_session(key) == login
                if not is_in or person is None or person.scope != scope:
                    return None
                return desk().shared.get(
                    ("event", self.name, scope, asked),
                    lambda: event("part", self.part(person, asked) or ""),
                    backs_off=self.backs_off,
                )
            except JobLensError as error:
                said = render_to_string("gone_part.html", {"why": why_not(error)[0], "asks_again": True})
                return event("gone", str(said))

        place = desk().streams.take(login, look)
        if place is None:
            return HttpResponse("too many pages are open", status=429)
        return StreamingHttpResponse(place, content_type="text/event-stream")


def _asked(
    question: Hashable,
    viewer: Person,
    find: Callable[[Reader], Any],
    stamp: Hashable = None,
    *,
    backs_off: bool = False,
    is_of_live: bool = False,
) -> Any:
    """In the viewer's share of the store's time, and for all who see the same. Raises JobLensError."""

    def ask() -> Any:
        store = desk().store.until(time.monotonic() + ANSWER_SECONDS)

        def found(snapshot: Snapshot | None = None) -> Any:
            reader = Reader(store, viewer, snapshot=snapshot)
            return _with_moment(reader, find(reader))

        return desk().shares.take(viewer.name, lambda: desk().snapshots.answered(found) if is_of_live else found())

    return desk().shared.get(question, ask, stamp, backs_off=backs_off)


def _with_moment(reader: Reader, found: T) -> T:
    """With that of its snapshot, if it has one, and what is found is no list of rows."""
    if reader.is_of_snapshot and isinstance(found, dict):
        found[SNAPSHOT_TIME] = reader.now
    return found


def csv_answer(rows: list[dict[str, Any]], name: str) -> HttpResponse:
    """Rows as a file of that name; of jobs and nodes, all have the same columns, but for what is not to be seen."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    answer = HttpResponse(csv_text.text(columns, rows), content_type=csv_text.KIND)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def parquet_answer(
    rows: list[dict[str, Any]], name: str, viewer: Person, types: Mapping[str, str] | None = None
) -> HttpResponse:
    """Rows as a file of that name, which the store writes in the viewer's share of its time. Raises JobLensError.

    types: of columns, as JSON Schema has them, where they are known.
    """
    store = desk().store.until(time.monotonic() + ANSWER_SECONDS)
    made = desk().shares.take(viewer.name, lambda: parquet.written(store, rows, types))
    answer = HttpResponse(made, content_type=parquet.KIND)
    answer["Content-Disposition"] = f'attachment; filename="{name}.parquet"'
    return answer


def why_not(error: JobLensError) -> tuple[str, int]:
    """What a viewer is told, and the status of HTTP."""
    if isinstance(error, OfOneViewer):
        return str(error), 429
    if isinstance(error, WrongRequest):
        return str(error), 400
    if isinstance(error, StoreTooMuch):
        return "this is more than one question may ask for: ask for less, or of a shorter time", 400
    print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
    return "the hub's store does not answer for now", 503


def _dressed_sums(sums: dict[str, Any], mine: str, day: float) -> dict[str, Any]:
    """mine: whether the sums are of the viewer's own jobs alone, as the page of jobs asks for it."""
    links = {
        "runs": jobs_url(mine=mine),
        "cores": jobs_url(mine=mine, sort="-cores"),
        "memory": jobs_url(mine=mine, sort="-memory"),
        "owners": jobs_url(mine=mine, sort="owner"),
        "suspect": jobs_url("suspect", mine=mine),
        "hanging": jobs_url("hanging", mine=mine),
        "silent": jobs_url("silent", mine=mine, since=day),
    }
    return {
        **sums, "memory_text": size(sums["memory"]), "asked_memory_text": size(sums["asked_memory"]), "links": links,
    }  # fmt: skip


def _dress_site(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    sums = {
        part: _dressed_sums(found[part], mine, found["day"])
        for part, mine in (("site", ""), ("mine", "" if found["has_groups"] else "1"))
        if found[part]
    }
    since = found["since"]
    return {
        "found": {**found, **sums},
        "lights": _lights(found),
        "queue": _dressed_queue(found),
        "pool": _dressed_pool(found),
        "servers": [dressed_server(server) for server in found["servers"]],
        "failures": [_dressed_wave(wave, since) for wave in found["failures"]],
        "ended_url": jobs_url("ended", since=since),
        "failed_url": jobs_url("failed", since=since),
    }


def _dressed_queue(found: dict[str, Any]) -> dict[str, Any] | None:
    """The queues' card, and why jobs are held."""
    told = found["queue"]
    if told is None:
        return None
    counts = told["site"] if found["sees_others"] else told["mine"]
    more = {} if found["sees_others"] or told["site"] is None else told["site"]
    return {
        "states": [(state, counts[state], jobs_url(state), more.get(state)) for state in queue.WAITS],
        "running": counts["running"],
        "unwatched": (counts[queue.UNWATCHED], jobs_url(queue.UNWATCHED)),
        "held": [{**one, "url": jobs_url("held", cause=one["cause"])} for one in told["held"]],
        "age": duration(found["time"] - told["newest"]),
    }


def _dressed_pool(found: dict[str, Any]) -> dict[str, Any] | None:
    told = found["pool"]
    if told is None:
        return None
    age = found["time"] - told["time"]
    return {
        **told,
        "memory_text": size(told["memory"]),
        "claimed_memory_text": size(told["claimed_memory"]),
        "age": duration(age),
        "is_old": age > FRESH_SECONDS,
    }


def _dressed_wave(wave: dict[str, Any], since: float) -> dict[str, Any]:
    these = {"cause": wave["cause"], "since": since}
    return {
        **wave,
        "url": jobs_url("failed", **these),
        "clusters_url": jobs_url("failed", **these, sort="job"),
        "nodes_url": jobs_url("failed", **these, sort="node"),
        "blamed_url": jobs_url("failed", **these, **wave["blamed"]),
        "example_url": job_url(wave["example_run"]),
    }


def _lights(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the site, the worst first: how bad, in a word, why, and where more of it stands."""
    since = found["since"]
    lights = [
        _light("bad", "The site?", wave["sentence"], [("these jobs", _dressed_wave(wave, since)["blamed_url"])])
        for wave in found["failures"]
        if wave["verdict"] == "site"
    ]
    bad = found["failing_nodes"]
    if bad:
        counts = "One node fails" if len(bad) == 1 else f"{len(bad)} nodes fail"
        named = [(f"{one['node']}: {one['why']}", node_url(one["node"])) for one in bad[:MOST_NAMED]]
        lights.append(_light("bad", f"{counts} what others don't.", "", named))
    red = found["red"]
    if red:
        named = [(one["sentence"] or one["title"], "/rules") for one in red[:MOST_NAMED]]
        lights.append(_light("bad", "Rules are red." if len(red) > 1 else "A rule is red.", "", named))
    silent = found["silent_nodes"] or []
    if silent:
        named = [
            (f"{one['node']} ({duration(found['time'] - one['time'])})", node_url(one["node"])) for one in silent[:10]
        ]
        more = f", and {len(silent) - 10} more" if len(silent) > 10 else ""
        lights.append(_light("bad", "Nodes without data", f"for more than five minutes{more}:", named))
    if found["lost_records"]:
        said = f"{found['lost_records']} records were lost in the last hour, as nodes declare."
        lights.append(_light("warn", "Numbers are missing.", said, [("which nodes", "/nodes?only=lost")]))
    other = found["other_schemas"]
    if other:
        said = f"{other['records']} records of the last day have another schema, {other['newest']} at the most."
        lights.append(_light("warn", "Hub and nodes differ.", f"{said} They are kept, and not on pages.", []))
    contradicted = found["contradicted"]
    if contradicted:
        said = f"{contradicted['records']} records of the last day name nodes where the queue does not have these jobs."
        lights.append(_light("warn", "Kafka is contradicted.", f"{said} They are kept apart.", []))
    own = [] if found["sees_others"] else _not_well(found)
    if own:
        whose = "your jobs and your groups'" if found["has_groups"] else "your jobs"
        lights.append(_light("warn", f"Of {whose}:", "", own))
    return lights or [_light("good", "Well,", "as far as nodes tell.", [])]


def _not_well(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Of the jobs of who sees no others: how many are not well in which way, and where they are."""
    mine, last_hour, queue_told = found["mine"], found["last_hour"], found["queue"]
    links = _dressed_sums(mine, "" if found["has_groups"] else "1", found["day"])["links"]
    failed = f"{last_hour['failed']} of the {last_hour['ended']} that ended in the last hour failed"
    counts = (
        (last_hour["failed"], failed, jobs_url("failed", since=found["since"])),
        (mine["suspect"], f"{mine['suspect']} suspect", links["suspect"]),
        (mine["silent"], f"{mine['silent']} fell silent", links["silent"]),
        (queue_told["mine"]["held"], f"{queue_told['mine']['held']} held", jobs_url("held"))
        if queue_told
        else (0, "", ""),
    )
    return [(words, url) for count, words, url in counts if count]


def _light(kind: str, word: str, why: str, links: list[tuple[str, str]]) -> dict[str, Any]:
    return {"kind": kind, "word": word, "why": why, "links": links}


MINE = "mine"
"""A parameter of the page of jobs: his own alone, whatever he may see."""


@dataclass(frozen=True)
class Jobs:
    """Which jobs, and in which order."""

    words: str
    sort: str
    state: str
    page: int
    exact: tuple[tuple[str, Any], ...] = ()  # parameters of `filters`, and `mine`
    columns: tuple[str, ...] = ()  # paths of metrics

    def address(self, **other: Any) -> str:
        """The query of the same, with something else."""
        there = replace(self, **other)
        plain = {"q": there.words, "state": there.state, "sort": there.sort, "page": there.page}
        return urlencode([*plain.items(), *there.hidden()])

    def hidden(self) -> list[tuple[str, Any]]:
        """What a form keeps of an address beside words, state and order."""
        exact = [(name, f"{value:.3f}" if isinstance(value, float) else value) for name, value in self.exact]
        return [*exact, *(("column", path) for path in self.columns)]

    def find(self, reader: Reader, most: int) -> dict[str, Any]:
        """most: jobs of a page of them. Raises JobLensError."""
        if self.state in queue.QUEUE_STATES:
            return queue.jobs(reader, self.words, self.sort, self.state, self.page, most, dict(self.exact))
        return reader.jobs(self.words, self.sort, self.state, self.page, most, self.columns, **dict(self.exact))


def page_number(text: str) -> int:
    """Of an address; whatever is no number is the first page."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0


def asked_jobs(asked: Any) -> Jobs:
    """Raises WrongRequest."""
    page = page_number(asked.get("page", "0"))
    state = asked.get("state", "running")
    if state not in _STATES:
        raise WrongRequest(f"a state is one of {', '.join(_STATES)}")
    exact = tuple((name, filters.exact(name, asked[name])) for name in (*filters.NAMES, MINE) if asked.get(name))
    columns = picked.metrics(asked.getlist("column"))
    sort = asked.get("sort") or (f"-{HEALTH}" if state in LIVES else "-updated")
    return Jobs(asked.get("q", "")[:200], sort[:60], state, page, exact, columns)


def chips(asked: Jobs) -> list[tuple[str, str]]:
    """Each exact parameter in words, and the address of the same without it."""
    found = []
    for name, value in asked.exact:
        words = f"{name} {value}"
        if name in filters.TIMES:
            words = f"{name} {moment(value)}"
        elif name == MINE:
            words = "your jobs"
        left = tuple(one for one in asked.exact if one[0] != name)
        found.append((words, asked.address(exact=left, page=0)))
    return found


def _dress_jobs(asked: Jobs, found: dict[str, Any]) -> dict[str, Any]:
    heads = []
    for name, title in _QUEUE_HEADS if asked.state in queue.QUEUE_STATES else _HEADS:
        turned = name if asked.sort == f"-{name}" else f"-{name}"
        kind = "" if name in (HEALTH, "job", "owner", "node") else "number"
        heads.append((title, asked.address(sort=turned, page=0), _way(name, asked.sort), kind))
    columns = [] if asked.state in queue.QUEUE_STATES else [_dressed_column(asked, path) for path in asked.columns]
    rows = [_dressed_row(row, found["time"]) for row in found["jobs"]]
    for row in rows:
        row["picked"] = [picked.text(column["path"], row.get(column["path"])) for column in columns]
    return {
        "jobs": rows,
        "columns": columns,
        "picker": picked.picker(asked.columns) if len(asked.columns) < picked.MOST_COLUMNS else [],
        "scatter": asked.address(page=0),
        "count": found["count"],
        "asked": asked,
        "states": _STATES,
        "is_queue": asked.state in queue.QUEUE_STATES,
        "chips": chips(asked),
        "hidden": asked.hidden(),
        "heads": heads,
        "first": asked.page * ROWS + 1,
        "last": asked.page * ROWS + len(found["jobs"]),
        "before": asked.address(page=asked.page - 1) if asked.page else "",
        "after": asked.address(page=asked.page + 1) if (asked.page + 1) * ROWS < found["count"] else "",
        "here": asked.address(),
        "csv": asked.address(page=0),
        "csv_rows": MOST_ROWS,
    }


def _dressed_column(asked: Jobs, path: str) -> dict[str, Any]:
    """A column that was picked: its head, how it is sorted by, and the address of the same without it."""
    metric = picked.BY_PATH[path]
    turned = path if asked.sort == f"-{path}" else f"-{path}"
    sort = "-updated" if asked.sort.lstrip("-") == path else asked.sort
    left = tuple(one for one in asked.columns if one != path)
    return {
        **{"path": path, "help": metric.help, "way": _way(path, asked.sort)},
        **{"link": asked.address(sort=turned, page=0), "without": asked.address(columns=left, sort=sort)},
    }


def _dressed_row(row: dict[str, Any], now: float) -> dict[str, Any]:
    """A job of the queue, or a run, as the page of jobs shows it."""
    if "State" not in row:
        return dressed_job(row, now)
    return {
        **row,
        "word": "not watched" if row["State"] == "running" else row["State"],
        "url": queued_url(row["GlobalJobId"]),
        "owner_url": jobs_url(row["State"] if row["State"] in queue.WAITS else queue.UNWATCHED, owner=row.get("Owner")),
        "since": duration(now - row["Time"]),
    }


def title_of(kind: str) -> str:
    """What pages call an artifact of a kind."""
    return ARTIFACTS.get(kind, f"Artifact: {kind}")


@dataclass(frozen=True)
class _Job:
    """A run, and which metrics its charts have beside the usual ones."""

    run: str
    metrics: tuple[str, ...]


MOST_CHARTS = 4
"""That are picked for one job."""


def _asked_job(asked: Any, run: str) -> _Job:
    """Raises WrongRequest."""
    return _Job(run, picked.metrics(asked.getlist("metric"), MOST_CHARTS))


def _find_job(reader: Reader, asked: _Job) -> dict[str, Any] | None:
    found = _job_in_cluster(reader, asked)
    return found[0] if found else None


def _job_in_cluster(reader: Reader, asked: _Job) -> tuple[dict[str, Any], int] | None:
    """What is found of a job; and how many runs of its cluster he may see."""
    found = reader.job(asked.run)
    if found is None:
        return None
    kept = [{name: getattr(one, name) for name in _OF_ARTIFACT} for one in artifacts_of(reader, found)]
    cluster = reader.siblings(found)
    siblings = _beside(found, [row for row in cluster if row["IsAlike"]])
    life = queue.life(reader, found["GlobalJobId"])
    whole = {
        **{"job": found, "siblings": siblings, "artifacts": kept, "life": life},
        **{"timeline": timeline(reader, found, has_steps=bool(life)), "time": reader.now},
    }
    return whole, len(cluster)


_OF_ARTIFACT = ("id", "node", "kind", "begun", "ended", "length")


def artifacts_of(reader: Reader, job: dict[str, Any]) -> list[Kept]:
    """Those of a job that he may see, as the nodes sent them that tell of it. Raises JobLensError."""
    artifacts = desk().artifacts
    if artifacts is None or Seen.EVIDENCE not in reader.seen(job):
        return []
    return artifacts.of_run(job["Run"], [job["Node"], *job["OtherNodes"]])


def _beside(run: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each measure: how the cluster's jobs are spread, and those that stand out, the farthest first."""
    found = []
    for measure in MEASURES if "Cores" in run else ():
        whole = spread(measure, [row[measure.column] for row in rows])
        if whole is None:
            continue
        far = sorted(
            (row for row in rows if whole.stands_out(row[measure.column])), key=lambda row: -row[measure.column]
        )
        own = next((row[measure.column] for row in rows if row["Run"] == run["Run"]), None)
        named = [{"Run": row["Run"], "JobId": row["JobId"], "value": row[measure.column]} for row in far[:MOST_NAMED]]
        found.append(
            {
                **{name: getattr(whole, name) for name in ("count", "low", "median", "high", "limit")},
                **{"name": measure.name, "unit": measure.unit, "own": own, "stands_out": whole.stands_out(own)},
                **{"outliers": len(far), "named": named},
            }
        )
    return found


def _whole_job(reader: Reader, asked: _Job) -> dict[str, Any] | None:
    in_cluster = _job_in_cluster(reader, asked)
    if in_cluster is None:
        return None
    found, runs = in_cluster
    if Seen.NUMBERS not in reader.seen(found["job"]):
        return found
    series = reader.series(found["job"], asked.metrics)
    # of too few there is none: their samples need not be looked for
    others = band(reader, found["job"], series["time"], asked.metrics) if runs >= FEWEST else None
    return {**found, "series": series, "band": others}


_SORT_OF = {"Memory, greatest": "-memory", "Time": "started", "Read": "-read", "Written": "-written"}
"""A measure of siblings -> the order in which the page of jobs has those first that stand out."""


def _dress_job(asked: _Job, found: dict[str, Any]) -> dict[str, Any]:
    row = dressed_job(found["job"], found["time"])
    servers = [
        {"numbers": numbers, "url": server_url(str(dict(numbers).get("Name", "")))}
        for numbers in _servers(row.get("Servers") or "")
    ]
    siblings = []
    for one in found["siblings"]:
        text = size if one["unit"] == "bytes" else duration
        numbers = {name: "–" if one[name] is None else text(one[name]) for name in ("own", "low", "median", "high")}
        others = jobs_url("ended" if row["is_over"] else "running", cluster=cluster_of(row["GlobalJobId"]))
        one = {**one, "url": f"{others}&sort={_SORT_OF.get(one['name'], '-cores')}"}
        named = [{**each, "url": job_url(each["Run"]), "value": text(each["value"])} for each in one["named"]]
        siblings.append({**one, **numbers, "named": named})
    artifacts = [
        {
            **one,
            "title": title_of(one["kind"]),
            "url": f"{row['url']}/artifact/{one['id']}",
            "when": span(one["begun"], one["ended"]),
            "is_elsewhere": one["node"] != row["Node"],
        }
        for one in reversed(found["artifacts"][-MOST_ARTIFACTS:])
    ]
    more = len(found["artifacts"]) - len(artifacts)
    return {
        **{"siblings": siblings, "job": row, "servers": servers, "values": _values(row), "url": row["url"]},
        **{"artifacts": artifacts, "more_artifacts": more, "line": picture(found["timeline"], asked.run)},
        **_dressed_charts(asked, row["url"]),
        "life": dressed_life(found["life"]),
    }


def _dressed_charts(asked: _Job, url: str) -> dict[str, Any]:
    """What is picked for the charts, each with the address of the same page without it; and what can be."""
    query = urlencode([("metric", path) for path in asked.metrics])
    without = [
        (path, f"{url}?{urlencode([('metric', one) for one in asked.metrics if one != path])}")
        for path in asked.metrics
    ]
    charts = [{"path": path, "unit": picked.BY_PATH[path].unit} for path in asked.metrics]
    return {
        **{"chosen": asked.metrics, "without": without, "charts": json.dumps(charts), "chart_query": query},
        "picker": picked.picker(asked.metrics) if len(asked.metrics) < MOST_CHARTS else [],
    }


def _find_site(reader: Reader) -> dict[str, Any]:
    def shared(name: str, ask: Callable[[], T], stamp: Hashable = None) -> T:
        """A page of that name has the same: the question is asked once for both."""
        question = (name, reader.viewer_scope, None)
        return desk().shared.get(question, lambda: _with_moment(reader, ask()), stamp, backs_off=True)

    return {**site(reader, shared), "red": red_firings(reader), "queue": queue.sums(reader)}


def dressed_life(life: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps of a job in the queue, with text for their times."""
    return [{**step, "when": span(step["time"], step["time"])} for step in life]


SITE = View(
    "site", lambda asked: None, lambda reader, asked: _find_site(reader), _dress_site, backs_off=True, is_of_live=True
)
JOBS = View(
    "jobs",
    asked_jobs,
    lambda reader, asked: asked.find(reader, ROWS),
    _dress_jobs,
    table=lambda reader, asked: asked.find(reader, MOST_ROWS)["jobs"],
    backs_off=True,
    is_of_live=True,
)
JOB = View("job", _asked_job, _find_job, _dress_job, _whole_job)


def alive(request: Any) -> HttpResponse:
    """That the hub is there, and who asks is logged in still: it asks the store nothing."""
    return HttpResponse(status=204)


def not_found(request: Any, exception: Exception) -> HttpResponse:
    """A page as all others, with the way to them."""
    return render(request, "missing.html", {}, status=404)


def login(request: Any) -> HttpResponse:
    """By a socket: a code for a browser. In a browser: the code becomes a session."""
    access = desk().access
    if request.META.get("REMOTE_ADDR", "").startswith(f"{PEER}:"):
        if request.viewer is None or access is None:
            return JsonResponse({"error": "nobody here has this login"}, status=401)
        try:
            path = f"/login?code={access.new_code(request.login)}"
            return JsonResponse({"path": path, "address": desk().address})
        except JobLensError as error:
            print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
            return JsonResponse({"error": "the hub can't keep a code for now"}, status=503)
    if request.method == "POST":
        try:
            found = desk().redeem(request.POST.get("code", ""))
        except JobLensError as error:
            print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
            return login_page(request, "the hub can't look at its codes for now", 503)
        if found:
            return begin_session(request, found) or HttpResponseRedirect("/")
        return login_page(request, "this code is over, or was used: ask for another", 401)
    return login_page(request, code=request.GET.get("code", "")[:100])


def logout(request: Any) -> HttpResponse:
    """Ends the session."""
    request.session.flush()
    return HttpResponseRedirect("/login")


def static(request: Any, name: str) -> HttpResponse:
    """One of our own files."""
    path = _STATIC / name
    if path.parent != _STATIC or path.suffix not in _KINDS or not path.is_file():
        raise Http404
    return HttpResponse(path.read_bytes(), content_type=f"{_KINDS[path.suffix]}; charset=utf-8")


def _servers(text: str) -> list[list[tuple[str, Any]]]:
    """Name and value of all that a node says of each file server; what makes no sense is left out."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    each = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [[_in_units(name, value) for name, value in one.items()] for one in each]


def _in_units(name: str, value: Any) -> tuple[str, Any]:
    """Bytes and seconds in units; all else as the node says it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18:
        if name.endswith("Bytes"):
            return name.removesuffix("Bytes"), size(value)
        if name == "Seconds":
            return "Waited", duration(value)
    return name, value


def _way(name: str, sort: str) -> str:
    """As aria-sort has it."""
    return {name: "ascending", f"-{name}": "descending"}.get(sort, "none")


_LINKED = {"owner": "Owner", "group": "AccountingGroup", "vo": "Vo", "executable": "Executable"}
"""A parameter -> the column of a job that leads to all that share it."""


def dressed_job(row: dict[str, Any], now: float) -> dict[str, Any]:
    """A job with text for what a template shows."""
    is_over = row["Type"] == "job"
    updated = row["UpdateTime"] or 0
    seconds = (updated if is_over else now) - (row["StartTime"] or now)
    found = {
        **row,
        "url": job_url(row["Run"]),
        "node_url": node_url(row["Node"]),
        "cluster_url": jobs_url("all", cluster=cluster_of(row["GlobalJobId"])),
        **{f"{name}_url": jobs_url("all", **{name: row.get(column)}) for name, column in _LINKED.items()},
        "is_over": is_over,
        "since": duration(seconds),
        "age": duration(now - updated),
    }
    if "Cores" in row:
        cores, memory = row["Cores"], row["ResidentBytes"]
        if is_over:  # of its whole life: at its end nothing runs any more
            cores = row["CpuSeconds"] / seconds if row["CpuSeconds"] is not None and seconds > 0 else None
            memory = row["PeakBytes"]
        found["cores_text"] = "–" if cores is None else f"{cores:.2f}"
        found["memory_text"], found["asked_memory_text"] = size(memory), size(row["RequestMemoryBytes"])
        found["read_text"], found["written_text"] = size(row["ReadBytes"]), size(row["WriteBytes"])
    return found


def _values(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Of one job: what it uses, each with its name."""
    if "Cores" not in row:
        return []
    asked_cpus = row["RequestCpus"]
    return [
        ("Cores, on average" if row["is_over"] else "Cores", f"{row['cores_text']} of {_number(asked_cpus)} asked for"),
        ("CPU time", "–" if row["CpuSeconds"] is None else duration(row["CpuSeconds"])),
        *([] if row["is_over"] else [("Memory", f"{row['memory_text']} of {row['asked_memory_text']} asked for")]),
        ("Memory, greatest", f"{size(row['PeakBytes'])} of {row['asked_memory_text']} asked for"),
        ("Read, written", f"{row['read_text']}, {row['written_text']}"),
        ("Sent, received", f"{size(row['SentBytes'])}, {size(row['ReceivedBytes'])}"),
        *([] if row["is_over"] else [("Processes", _number(row["Processes"]))]),
    ]


def _number(found: float | None) -> str:
    return "–" if found is None else f"{found:g}"
