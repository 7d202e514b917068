"""Of each request: who asks, and what a browser may do with the answer."""

from __future__ import annotations

import pwd
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.web.access import JOBS, LOGIN_SECONDS, LOOK_SECONDS, OWN, SUMMARY
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.entries import may
from condor_joblens.hub.web.logins import login_page
from condor_joblens.hub.web.oidc_settings import ANSWER
from condor_joblens.hub.web.peers import PEER, PROXY
from condor_joblens.hub.web.people import REMOTE, UNIX
from condor_joblens.hub.web.who_sees import Role

Answer = Callable[[HttpRequest], HttpResponse]

API, BEARER = "/api/", "Bearer "
EVERYTHING = frozenset((JOBS, SUMMARY))
"""What is asked without a token may ask for."""

OPEN = ("/login", "/login/condor", "/login/oidc", ANSWER, "/favicon.ico")
"""Pages for those who have not logged in."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def login_of(request: Any) -> str:
    """unix:NAME or remote:NAME; empty: nobody has logged in."""
    kind, _, uid = request.META.get("REMOTE_ADDR", "").partition(":")
    if kind == PEER:
        try:
            return f"{UNIX}:{pwd.getpwuid(int(uid)).pw_name}"
        except KeyError:
            return ""
    if kind == PROXY:
        name = request.headers.get("X-Remote-User", "") if int(uid) == desk().proxy_uid else ""
        return f"{REMOTE}:{name}" if name else ""
    return str(request.session.get("login", ""))


def viewer(get_response: Answer) -> Answer:
    """Whoever is no person of ours gets nothing but the page on which one logs in."""

    def answer(request: Any) -> HttpResponse:
        request.scopes, request.viewer, request.login = EVERYTHING, None, ""
        is_open = request.path in OPEN or request.path.startswith("/static/")
        try:
            if request.path.startswith(API) and request.headers.get("Authorization", "").startswith(BEARER):
                why = _by_token(request)
            else:
                request.login = login_of(request)
                request.viewer = desk().people_by_login().get(request.login) if request.login else None
                why = "nobody here has this login" if request.login else "log in first"
            if request.viewer is not None and not is_open:
                _note(request)
        except JobLensError as error:  # what can't be noted is not shown
            print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
            return _refused(request, "the hub can't note who asks for now", 503)
        except DatabaseError as error:
            request.viewer = None
            print(f"joblens-hub: sessions: {printable(str(error), 200)}", file=sys.stderr, flush=True)
            return _refused(request, "the hub can't tell who has logged in for now", 503)
        if request.viewer is None and not is_open:
            return _refused(request, why, 401)
        request.has_entries = bool(desk().control) and request.viewer is not None and may(request.viewer)
        return get_response(request)

    return answer


def _refused(request: Any, why: str, status: int) -> HttpResponse:
    if request.path.endswith(".json") or request.path.startswith(API):
        return JsonResponse({"error": why}, status=status)
    if status == 401:
        return login_page(request, why, status)
    return render(request, "gone.html", {"why": why, "page": "gone", "asks_again": True}, status=status)


def _by_token(request: Any) -> str:
    """Whose token is in the header is the viewer, and sees no more than the token is for. Why not, if nobody is.

    Raises JobLensError. Who shows a token is nobody else, whatever session or socket he has.
    """
    request.viewer, request.login = None, ""
    access = desk().access
    token = access.by_secret(request.headers["Authorization"].removeprefix(BEARER).strip()) if access else None
    person = desk().person(token.person) if token else None
    if token is None or person is None:
        return "this token is over, or was never made"
    request.login, request.scopes = f"token:{token.id}", token.scopes - {OWN}
    request.viewer = replace(person, role=Role.USER, groups=()) if OWN in token.scopes else person
    return ""


def _note(request: Any) -> None:
    """That somebody came without a session, and what an administrator looks at. Raises JobLensError."""
    access = desk().access
    if access is None:
        return
    name = request.viewer.name
    if request.login != request.session.get("login"):  # a session was noted when it began
        access.note(name, "log-in", request.login, LOGIN_SECONDS)
    if request.viewer.role is Role.ADMINISTRATOR and request.path != "/logout":
        access.note(name, "look", request.get_full_path(), LOOK_SECONDS)


def headers(get_response: Answer) -> Answer:
    """No script but our own files, nothing of another site, and nothing kept but static files."""

    def answer(request: HttpRequest) -> HttpResponse:
        found = get_response(request)
        for name, value in HEADERS.items():
            found.headers.setdefault(name, value)
        if not request.path.startswith("/static/"):
            found["Cache-Control"] = "no-store"
        return found

    return answer
