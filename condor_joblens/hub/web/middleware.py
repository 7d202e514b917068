"""Of each request: who asks, and what a browser may do with the answer."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.peers import PEER, PROXY
from condor_joblens.hub.web.people import REMOTE, UNIX

Answer = Callable[[HttpRequest], HttpResponse]

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
        request.login = login_of(request)
        request.viewer = desk().people_by_login().get(request.login) if request.login else None
        if request.viewer is None and request.path != "/login" and not request.path.startswith("/static/"):
            why = "nobody here has this login" if request.login else "log in first"
            if request.path.endswith(".json"):
                return JsonResponse({"error": why}, status=401)
            found = render(request, "login.html", {"why": why}, status=401)
            if request.path.startswith("/part/"):
                found["HX-Redirect"] = "/login"
            return found
        return get_response(request)

    return answer


def headers(get_response: Answer) -> Answer:
    """No script but our own files, nothing of another site, and nothing kept but static files."""

    def answer(request: HttpRequest) -> HttpResponse:
        found = get_response(request)
        for name, value in HEADERS.items():
            found[name] = value
        if not request.path.startswith("/static/"):
            found["Cache-Control"] = "no-store"
        return found

    return answer
