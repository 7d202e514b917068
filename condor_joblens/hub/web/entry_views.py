"""The page of entries: those that hold, a form for a new one with its preview, and what was said here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.entry_server import Away
from condor_joblens.hub.web import entries
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.health import moment
from condor_joblens.hub.web.views import why_not
from condor_joblens.hub.web.who_sees import Role

_LABELS = {
    "user": "User", "group": "Accounting group", "vo": "VO", "executable": "Program", "node": "Node",
    "cluster": "Cluster", "expression": "ClassAd expression",
}  # fmt: skip

_DONE = re.compile("e[0-9a-f]{8} (holds|has ended)")
"""What a page says that follows one of these."""


def page(request: Any) -> HttpResponse:
    """With what holds."""
    return _page(request)


def as_json(request: Any) -> HttpResponse:
    """The same."""
    if not entries.may(request.viewer):
        return JsonResponse({"error": "there is no such thing, or it is not yours"}, status=404)
    try:
        return JsonResponse(entries.entries(request.viewer))
    except JobLensError as error:
        why, status = _why(error)
        return JsonResponse({"error": why}, status=status)


def preview(request: Any) -> HttpResponse:
    """Of the form's entry: nothing holds yet."""
    return _done(request, lambda entry: _page(request, found=entries.preview(request.viewer, entry)))


def add(request: Any) -> HttpResponse:
    """It holds."""

    def said(entry: dict[str, str]) -> HttpResponse:
        added = entries.add(request.viewer, entry)
        return HttpResponseRedirect("/entries?" + urlencode({"done": f"{added['Name']} holds"}))

    return _done(request, said)


def end(request: Any) -> HttpResponse:
    """One ends."""
    if not entries.may(request.viewer):
        raise Http404
    name = request.POST.get("name", "")
    try:
        entries.end(request.viewer, name)
    except JobLensError as error:
        why, status = _why(error)
        return _page(request, why=why, status=status)
    return HttpResponseRedirect("/entries?" + urlencode({"done": f"{name} has ended"}))


def _done(request: Any, then: Callable[[dict[str, str]], HttpResponse]) -> HttpResponse:
    if not entries.may(request.viewer):
        raise Http404
    try:
        return then(entries.fields(request.viewer, request.POST))
    except JobLensError as error:
        why, status = _why(error)
        return _page(request, why=why, status=status)


def _why(error: JobLensError) -> tuple[str, int]:
    if isinstance(error, Away):
        return str(error), 503 if "refuses" not in str(error) else 400
    return (str(error), 400) if isinstance(error, WrongRequest) else why_not(error)


def _page(request: Any, found: dict[str, Any] | None = None, why: str = "", status: int = 200) -> HttpResponse:
    """found: the preview of what the form says."""
    viewer = request.viewer
    if not entries.may(viewer):
        raise Http404
    try:
        there = entries.entries(viewer)
    except JobLensError as error:
        there, (reason, code) = {}, _why(error)
        why, status = why or reason, status if status != 200 else code
    given, done = request.POST, request.GET.get("done", "")
    is_manager = viewer.role is Role.MANAGER
    wanted = [name for name in entries.WHOM if not (is_manager and name == "expression")]
    said = given if why or found else {}
    context = {
        "page": "entries",
        "why": why,
        "done": done if _DONE.fullmatch(done) else "",
        "there": there,
        "entries": [{**one, "until": moment(one["Until"])} for one in there.get("entries", ())],
        "history": [{**one, "when": moment(one["time"])} for one in there.get("history", ())],
        "whom": [(name, _LABELS[name], said.get(name, "")) for name in wanted],
        "levels": entries.LEVELS,
        "given": {name: said.get(name, "") for name in ("least", "most", "period", "hours", "reason")},
        "is_manager": is_manager,
        "groups": sorted({group for group, _ in viewer.groups}),
        "found": found,
        "silent": found["Nodes"] - found["Answered"] if found else 0,
        "hidden": [(name, given.get(name, "")) for name in (*wanted, "least", "most", "period", "hours", "reason")],
    }
    return render(request, "entries.html", context, status=status)
