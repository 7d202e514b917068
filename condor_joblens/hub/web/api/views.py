"""Answers over HTTP: what was asked is checked, bounded and found; errors are JSON with one sentence."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from django.http import HttpResponse, JsonResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.rules.posted import TooOften, WrongPost
from condor_joblens.hub.web import parquet
from condor_joblens.hub.web.api.endpoints import ENDPOINTS, ROOT, Endpoint, Posting
from condor_joblens.hub.web.api.openapi import document
from condor_joblens.hub.web.api.parameters import read
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.shared import OfOneViewer
from condor_joblens.hub.web.views import ANSWER_SECONDS, csv_answer, parquet_answer, why_not

MOST_AT_ONCE = 2
"""Questions of one person that the hub works at."""

SECONDS = 10
"""For which the store works at each of the four questions, at most, that an answer takes; and the bytes of each."""

BYTES = 16 << 20
DOCUMENT = f"{ROOT}openapi.json"
_RUN = r"(?P<run>[^/]{1,300}?)"


NEXT = "JobLens-Next"
"""A header of an answer as a file: `after` of the next page, encoded as in an address."""


def _wanted(accept: str) -> str:
    """The kind of file that is accepted; empty: JSON."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((kind for kind in ("text/csv", parquet.KIND) if kind in kinds and "application/json" not in kinds), "")


class _AtOnce:
    """Who is being answered. Any thread may ask."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self, name: str) -> Iterator[None]:
        """Raises OfOneViewer."""
        with self._lock:
            if self._busy[name] >= MOST_AT_ONCE:
                raise OfOneViewer(f"{MOST_AT_ONCE} of your questions are being answered: ask one after the other")
            self._busy[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy[name] -= 1
                if not self._busy[name]:
                    del self._busy[name]


_at_once = _AtOnce()


def routes() -> list[Any]:
    """A route for each endpoint, and one for whatever else is asked."""
    found = []
    for endpoint in ENDPOINTS:
        pattern = re.escape(f"{ROOT}{endpoint.path}".lstrip("/")).replace(r"\{run\}", _RUN)
        found.append(re_path(rf"^{pattern}\Z", _answering(endpoint)))
    described = re_path(rf"^{re.escape(DOCUMENT.lstrip('/'))}\Z", _described)
    return [*found, described, re_path("^api/", _missing)]


def _described(request: Any) -> HttpResponse:
    return JsonResponse(document(ENDPOINTS))


def error(why: str, status: int) -> HttpResponse:
    """One sentence."""
    return JsonResponse({"error": why}, status=status)


def _missing(request: Any) -> HttpResponse:
    there = ", ".join([DOCUMENT, *(ROOT + endpoint.path for endpoint in ENDPOINTS)])
    return error(f"there is nothing here: ask for {there}", 404)


def _answering(endpoint: Endpoint) -> Callable[..., HttpResponse]:
    def answer(request: Any, **words: str) -> HttpResponse:
        if request.method == "POST" and endpoint.post is not None:
            return _posted(endpoint.post, request)
        if request.method != "GET":
            return _not_allowed(endpoint)
        if endpoint.scopes and not endpoint.scopes & request.scopes:
            return error(f"this token is not for {endpoint.name}: it is for {', '.join(sorted(request.scopes))}", 403)
        kind = _wanted(request.headers.get("Accept", "")) if endpoint.has_table else ""
        try:
            asked = {**read(endpoint.parameters, dict(request.GET.lists())), **words}
            found = _found(endpoint, asked, request.viewer)
            if found is None:
                return error("there is no such thing, or it is not yours", 404)
            return _file(endpoint, kind, found, request.viewer) if kind else JsonResponse(found)
        except JobLensError as wrong:
            return error(*why_not(wrong))

    return csrf_exempt(answer)  # type: ignore[no-any-return]  # whatever is no GET is refused there


def _file(endpoint: Endpoint, kind: str, found: dict[str, Any], viewer: Person) -> HttpResponse:
    """The answer's table, as that kind of file. Raises JobLensError."""
    rows = endpoint.rows_of(found)
    if kind == parquet.KIND:
        answer = parquet_answer(rows, endpoint.name, viewer, endpoint.types)
    else:
        answer = csv_answer(rows, f"{endpoint.name}.csv")
    if found.get("next"):
        answer[NEXT] = quote(found["next"], safe="")
    return answer


def _not_allowed(endpoint: Endpoint) -> HttpResponse:
    answer = error("nothing is changed here: ask with GET", 405)
    answer["Allow"] = "GET" if endpoint.post is None else "GET, POST"
    return answer


def _posted(posting: Posting, request: Any) -> HttpResponse:
    """By a token alone: no page of another site can make a browser send one."""
    if posting.scope not in request.scopes:
        return error(f"post with a token of the scope {posting.scope}", 403)
    try:
        given = posting.read(request.read(posting.most_bytes + 1))
        with _at_once.one_more(request.viewer.name):
            return JsonResponse(posting.take(request.viewer.name, given))
    except WrongPost as wrong:
        return error(str(wrong), 400)
    except (TooOften, OfOneViewer) as wrong:
        return error(str(wrong), 429)
    except JobLensError as wrong:
        print(f"joblens-hub: {wrong}", file=sys.stderr, flush=True)
        return error("the hub can't keep it for now", 503)


def _found(endpoint: Endpoint, asked: dict[str, Any], viewer: Person) -> dict[str, Any] | None:
    """In the viewer's share of the store's time. Raises JobLensError."""
    store = desk().store.bounded(SECONDS, BYTES).until(time.monotonic() + ANSWER_SECONDS)
    with _at_once.one_more(viewer.name):
        return desk().shares.take(viewer.name, lambda: endpoint.find(Reader(store, viewer), asked))
