"""A function a page. Each page has its .json, of the same numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.health import duration, size
from condor_joblens.hub.web.peers import PEER
from condor_joblens.hub.web.reads import ROWS, Reader

_STATIC = Path(__file__).parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STATES = ("running", "ended", "died", "all")
_HEADS = (("job", "Job"), ("owner", "Owner"), ("node", "Node"), ("started", "Runs for"), ("cores", "Cores"),
          ("memory", "Memory"), ("read", "Read"), ("written", "Written"))  # fmt: skip


def patient(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The same; where the store does not answer, that is said."""

    def answer(request: Any, *words: Any, form: str = "", **named: Any) -> HttpResponse:
        try:
            return view(request, *words, form=form, **named)
        except JobLensError as error:
            print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
            why = "the hub's store does not answer for now"
            if form == "json":
                return JsonResponse({"error": why}, status=503)
            return render(request, "gone_part.html" if form == "part" else "gone.html", {"why": why}, status=503)

    return answer


def _reader(request: Any) -> Reader:
    return Reader(desk().store, request.viewer)


def site(request: Any, form: str = "") -> HttpResponse:
    """Is the site well?"""
    found = _reader(request).site()
    if form == "json":
        return JsonResponse(found)
    for part in ("site", "mine"):
        if found[part]:
            found[part]["memory_text"] = size(found[part]["memory"])
            found[part]["asked_memory_text"] = size(found[part]["asked_memory"])
    for node in found["silent_nodes"] or ():
        node["since"] = duration(found["time"] - node["time"])
    return render(request, "site_part.html" if form == "part" else "site.html", {"found": found, "page": "site"})


def jobs(request: Any, form: str = "") -> HttpResponse:
    """Whose jobs are not well, and why?"""
    asked = request.GET
    words, sort, state = asked.get("q", "")[:200], asked.get("sort", "-updated"), asked.get("state", "running")
    number = asked.get("page", "0")
    page = int(number) if number.isascii() and number.isdecimal() and len(number) < 5 else 0
    reader = _reader(request)
    found = reader.jobs(words, sort, state, page)
    if form == "json":
        return JsonResponse(found)
    for row in found["jobs"]:
        _dress(row, found["time"])
    context = {
        "found": found,
        "page": "jobs",
        "words": words,
        "sort": sort,
        "state": state,
        "states": _STATES,
        "heads": [(title, name if sort == f"-{name}" else f"-{name}", _way(name, sort)) for name, title in _HEADS],
        "first": page * ROWS + 1,
        "last": page * ROWS + len(found["jobs"]),
        "before": page - 1 if page else None,
        "after": page + 1 if (page + 1) * ROWS < found["count"] else None,
        "here": request.GET.urlencode(),
    }
    return render(request, "jobs_part.html" if form == "part" else "jobs.html", context)


def job(request: Any, run: str, form: str = "") -> HttpResponse:
    """One run: what it uses, and how it was."""
    reader = _reader(request)
    found = reader.job(run)
    if found is None:
        if form == "json":
            return JsonResponse({"error": "there is no such job, or it is not yours"}, status=404)
        raise Http404
    if form == "json":
        return JsonResponse({"job": found, "series": reader.series(found), "time": reader.now})
    _dress(found, reader.now)
    servers = json.loads(found["Servers"]) if found.get("Servers") else []
    context = {"job": found, "page": "job", "servers": servers, "values": _values(found), "url": found["url"]}
    return render(request, "job_part.html" if form == "part" else "job.html", context)


def login(request: Any) -> HttpResponse:
    """By a socket: a code for a browser. In a browser: the code becomes a session."""
    if request.META.get("REMOTE_ADDR", "").startswith(f"{PEER}:"):
        if request.viewer is None:
            return JsonResponse({"error": "nobody here has this login"}, status=401)
        try:
            return JsonResponse({"path": f"/login?code={desk().new_code(request.login)}"})
        except JobLensError as error:
            return JsonResponse({"error": str(error)}, status=503)
    if request.method == "POST":
        found = desk().redeem(request.POST.get("code", ""))
        if found:
            request.session.flush()
            request.session["login"] = found
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


def _way(name: str, sort: str) -> str:
    """As aria-sort has it."""
    return {name: "ascending", f"-{name}": "descending"}.get(sort, "none")


def _dress(row: dict[str, Any], now: float) -> None:
    """Text for what a template shows."""
    row["url"] = f"/job/{quote(row['Run'], safe='')}"
    row["since"] = duration(now - (row["StartTime"] or now))
    row["age"] = duration(now - row["UpdateTime"])
    if "Cores" in row:
        row["cores_text"] = "–" if row["Cores"] is None else f"{row['Cores']:.2f}"
        row["memory_text"], row["asked_memory_text"] = size(row["ResidentBytes"]), size(row["RequestMemoryBytes"])
        row["read_text"], row["written_text"] = size(row["ReadBytes"]), size(row["WriteBytes"])


def _values(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Of one job: what it uses, each with its name."""
    if "Cores" not in row:
        return []
    asked_cpus = row["RequestCpus"]
    return [
        ("Cores", f"{row['cores_text']} of {asked_cpus or '–'} asked for"),
        ("CPU time", duration(row["CpuSeconds"] or 0)),
        ("Memory", f"{row['memory_text']} of {row['asked_memory_text']} asked for"),
        ("Memory, greatest", size(row["PeakBytes"])),
        ("Read, written", f"{row['read_text']}, {row['written_text']}"),
        ("Sent, received", f"{size(row['SentBytes'])}, {size(row['ReceivedBytes'])}"),
        ("Processes", "–" if row["Processes"] is None else str(row["Processes"])),
    ]
