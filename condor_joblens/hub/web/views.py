"""Each page has its .json, of the same numbers, and a stream of what is new in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.contrib.sessions.backends.db import SessionStore
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.health import duration, size
from condor_joblens.hub.web.peers import PEER
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.reads import ROWS, Reader
from condor_joblens.hub.web.shared import OfOneViewer
from condor_joblens.hub.web.siblings import MEASURES, spread
from condor_joblens.hub.web.streams import event

_STATIC = Path(__file__).parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STATES = ("running", "ended", "failed", "all")
MOST_NAMED = 5
"""Siblings that stand out, of each measure."""

_HEADS = (("job", "Job"), ("owner", "Owner"), ("node", "Node"), ("started", "Runs for"), ("cores", "Cores"),
          ("memory", "Memory"), ("read", "Read"), ("written", "Written"))  # fmt: skip


@dataclass(frozen=True)
class View:
    """A page: what it asks for by an address, what it finds, and how that is shown."""

    name: str  # of its templates
    asked: Callable[..., Any]  # of the address: what tells one question from another
    find: Callable[[Reader, Any], Any]  # None: there is nothing that he may see
    dress: Callable[[Any, Any], dict[str, Any]]  # what was asked, what was found: the words of a template
    whole: Callable[[Reader, Any], Any] | None = None  # what its JSON has, if that is more

    def found(self, viewer: Person, asked: Any) -> Any:
        """Shared with all who see the same. Raises JobLensError."""
        return _asked((self.name, viewer.scope, asked), viewer, lambda reader: self.find(reader, asked))

    def found_whole(self, viewer: Person, asked: Any) -> Any:
        """The same, for its JSON. Raises JobLensError."""
        whole = self.whole
        if whole is None:
            return self.found(viewer, asked)
        return _asked(("whole", self.name, viewer.scope, asked), viewer, lambda reader: whole(reader, asked))

    def part(self, viewer: Person, asked: Any) -> str | None:
        """What is renewed of the page, as HTML. Raises JobLensError."""

        def rendered() -> str | None:
            found = self.found(viewer, asked)
            return None if found is None else render_to_string(f"{self.name}_part.html", self.dress(asked, found))

        return desk().shared.get(("part", self.name, viewer.scope, asked), rendered)

    def page(self, request: Any, **words: str) -> HttpResponse:
        """The whole page."""
        asked = self.asked(request.GET, **words)
        try:
            found, part = self.found(request.viewer, asked), self.part(request.viewer, asked)
        except JobLensError as error:
            why, status = why_not(error)
            return render(request, "gone.html", {"why": why, "page": "gone"}, status=status)
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

    def stream(self, request: Any, **words: str) -> HttpResponse:
        """The part, whenever it is another one."""
        asked, login, scope = self.asked(request.GET, **words), request.login, request.viewer.scope
        key = request.session.session_key if request.login == request.session.get("login") else None

        def look() -> bytes | None:
            person = desk().people_by_login().get(login)
            is_in = key is None or SessionStore(key).get("login") == login
            if not is_in or person is None or person.scope != scope:
                return None
            try:
                return desk().shared.get(
                    ("event", self.name, scope, asked), lambda: event("part", self.part(person, asked) or "")
                )
            except JobLensError as error:
                return event("part", str(render_to_string("gone_part.html", {"why": why_not(error)[0]})))

        if not desk().streams.has_place(login):
            return HttpResponse("too many pages are open", status=429)
        events = desk().streams.follow(login, look)
        return StreamingHttpResponse(events, content_type="text/event-stream")


def _asked(question: Hashable, viewer: Person, find: Callable[[Reader], Any]) -> Any:
    """In the viewer's share of the store's time, and for all who see the same. Raises JobLensError."""

    def ask() -> Any:
        return desk().shares.take(viewer.name, lambda: find(Reader(desk().store, viewer)))

    return desk().shared.get(question, ask)


def why_not(error: JobLensError) -> tuple[str, int]:
    """What a viewer is told, and the status of HTTP."""
    if isinstance(error, OfOneViewer):
        return str(error), 429
    print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
    return "the hub's store does not answer for now", 503


def _dressed_sums(sums: dict[str, Any]) -> dict[str, Any]:
    return {**sums, "memory_text": size(sums["memory"]), "asked_memory_text": size(sums["asked_memory"])}


def _dress_site(asked: Any, found: dict[str, Any]) -> dict[str, Any]:
    sums = {part: _dressed_sums(found[part]) for part in ("site", "mine") if found[part]}
    return {
        "found": {**found, **sums},
        "lights": _lights(found),
        "servers": [{**server, "wait": _wait(server["wait_seconds"])} for server in found["servers"]],
        "failures": [
            {**wave, "url": _address_of(wave), "example_url": job_url(wave["example_run"])}
            for wave in found["failures"]
        ],
    }


def _lights(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Of the site, the worst first: how bad, in a word, and why."""
    lights = [("bad", "The site?", wave["sentence"]) for wave in found["failures"] if wave["verdict"] == "site"]
    silent = found["silent_nodes"] or []
    if silent:
        names = ", ".join(f"{node['node']} ({duration(found['time'] - node['time'])})" for node in silent[:10])
        more = f", and {len(silent) - 10} more" if len(silent) > 10 else ""
        lights.append(("bad", "Nodes without data", f"for more than five minutes: {names}{more}."))
    if found["lost_records"]:
        said = f"{found['lost_records']} records were lost in the last hour, as nodes declare."
        lights.append(("warn", "Numbers are missing.", said))
    return lights or [("good", "Well,", "as far as nodes tell.")]


def _wait(seconds: float | None) -> str:
    """0.31 ms, 12 ms, 4.2 s; a dash for what makes no sense."""
    if seconds is None:
        return "–"
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"


def _address_of(wave: dict[str, Any]) -> str:
    return "/jobs?" + urlencode({"state": "failed", "q": wave["search"]})


def job_url(run: str) -> str:
    """Of its page."""
    return f"/job/{quote(run, safe='')}"


@dataclass(frozen=True)
class _Jobs:
    """Which jobs, and in which order."""

    words: str
    sort: str
    state: str
    page: int

    def address(self, **other: Any) -> str:
        """The query of the same, with something else."""
        there = replace(self, **other)
        return urlencode({"q": there.words, "state": there.state, "sort": there.sort, "page": there.page})


def _asked_jobs(asked: Any) -> _Jobs:
    number = asked.get("page", "0")
    page = int(number) if number.isascii() and number.isdecimal() and len(number) < 5 else 0
    return _Jobs(asked.get("q", "")[:200], asked.get("sort", "-updated")[:20], asked.get("state", "running")[:20], page)


def _dress_jobs(asked: _Jobs, found: dict[str, Any]) -> dict[str, Any]:
    heads = []
    for name, title in _HEADS:
        turned = name if asked.sort == f"-{name}" else f"-{name}"
        kind = "" if name in ("job", "owner", "node") else "number"
        heads.append((title, asked.address(sort=turned, page=0), _way(name, asked.sort), kind))
    return {
        "jobs": [dressed_job(row, found["time"]) for row in found["jobs"]],
        "count": found["count"],
        "asked": asked,
        "states": _STATES,
        "heads": heads,
        "first": asked.page * ROWS + 1,
        "last": asked.page * ROWS + len(found["jobs"]),
        "before": asked.address(page=asked.page - 1) if asked.page else "",
        "after": asked.address(page=asked.page + 1) if (asked.page + 1) * ROWS < found["count"] else "",
        "here": asked.address(),
    }


def _find_job(reader: Reader, run: str) -> dict[str, Any] | None:
    found = reader.job(run)
    return found and {"job": found, "siblings": _beside(found, reader.siblings(found)), "time": reader.now}


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


def _whole_job(reader: Reader, run: str) -> dict[str, Any] | None:
    found = _find_job(reader, run)
    return found and {**found, "series": reader.series(found["job"])}


def _dress_job(run: str, found: dict[str, Any]) -> dict[str, Any]:
    row = dressed_job(found["job"], found["time"])
    servers = _servers(row.get("Servers") or "")
    siblings = []
    for one in found["siblings"]:
        text = size if one["unit"] == "bytes" else duration
        numbers = {name: "–" if one[name] is None else text(one[name]) for name in ("own", "low", "median", "high")}
        named = [{**each, "url": job_url(each["Run"]), "value": text(each["value"])} for each in one["named"]]
        siblings.append({**one, **numbers, "named": named})
    return {"siblings": siblings, "job": row, "servers": servers, "values": _values(row), "url": row["url"]}


SITE = View("site", lambda asked: None, lambda reader, asked: reader.site(), _dress_site)
JOBS = View("jobs", _asked_jobs, lambda reader, asked: reader.jobs(*astuple(asked)), _dress_jobs)
JOB = View("job", lambda asked, run: run, _find_job, _dress_job, _whole_job)


def login(request: Any) -> HttpResponse:
    """By a socket: a code for a browser. In a browser: the code becomes a session."""
    if request.META.get("REMOTE_ADDR", "").startswith(f"{PEER}:"):
        if request.viewer is None:
            return JsonResponse({"error": "nobody here has this login"}, status=401)
        return JsonResponse({"path": f"/login?code={desk().new_code(request.login)}"})
    if request.method == "POST":
        found = desk().redeem(request.POST.get("code", ""))
        if found:
            person, access = desk().people_by_login().get(found), desk().access
            if person is not None and access is not None:
                try:
                    access.note(person.name, "log-in", f"{found}, a browser's session")
                except JobLensError as error:
                    print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
                    return render(request, "login.html", {"why": "the hub can't note who logs in for now"}, status=503)
            request.session.flush()
            request.session["login"] = found
            SessionStore.clear_expired()
            return HttpResponseRedirect("/")
        return render(request, "login.html", {"why": "this code is over, or was used: ask for another"}, status=401)
    return render(request, "login.html", {"code": request.GET.get("code", "")[:100]})


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
    return [list(one.items()) for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _way(name: str, sort: str) -> str:
    """As aria-sort has it."""
    return {name: "ascending", f"-{name}": "descending"}.get(sort, "none")


def dressed_job(row: dict[str, Any], now: float) -> dict[str, Any]:
    """A job with text for what a template shows."""
    is_over = row["Type"] == "job"
    updated = row["UpdateTime"] or 0
    seconds = (updated if is_over else now) - (row["StartTime"] or now)
    found = {
        **row,
        "url": job_url(row["Run"]),
        "node_url": f"/node/{quote(row['Node'], safe='')}",
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
