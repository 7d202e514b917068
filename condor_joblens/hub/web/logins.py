"""What all ways to log in share: how often, a session of its own, and the page on which one logs in."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import DisallowedHost
from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.shortcuts import render

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.web.desk import desk


def login_page(request: Any, why: str = "", status: int = 200, code: str = "") -> HttpResponse:
    """On which one logs in; the page that was asked for is where one goes then."""
    oidc = desk().oidc
    is_page = request.method == "GET" and not request.path.startswith("/login")
    words = {
        "why": why,
        "code": code,
        "provider": oidc.settings.name if oidc else "",
        "condor": _condor_address(request),
        "next": request.get_full_path() if is_page else "/",
    }
    return render(request, "login.html", words, status=status)


def _condor_address(request: Any) -> str:
    """Where a token of HTCondor is shown; empty: nowhere, or it is asked for by a name that is not this hub's."""
    if desk().condor is None:
        return ""
    # what is behind a proxy comes as http; without one, there are no names but the loopback's
    scheme = "https" if settings.SESSION_COOKIE_SECURE else "http"
    try:
        return f"{scheme}://{request.get_host()}/login/condor?as=browser"
    except DisallowedHost:
        return ""


def begin_session(request: Any, login: str) -> HttpResponse | None:
    """A new one, noted in the audit; an answer: why there is none. What the browser's session was before, is over."""
    person, access = desk().people_by_login().get(login), desk().access
    if person is not None and access is not None:
        try:
            access.note(person.name, "log-in", f"{login}, a browser's session")
        except JobLensError as error:
            print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
            return login_page(request, "the hub can't note who logs in for now", 503)
    try:
        request.session.flush()
        request.session["login"] = login
        request.session.save()
        SessionStore.clear_expired()
    except DatabaseError as error:
        print(f"joblens-hub: sessions: {printable(str(error), 200)}", file=sys.stderr, flush=True)
        return login_page(request, "the hub can't begin a session for now", 503)
    return None


def login_of_session(key: str) -> str:
    """Who has logged in by it; empty: nobody, or it is over. For threads that are no request's. Raises JobLensError."""
    try:
        return str(SessionStore(key).get("login", ""))
    except DatabaseError as error:
        connection.close()  # the next one may be better: nobody else closes this thread's
        raise JobLensError(f"sessions: {printable(str(error), 200)}") from None


def client_of(request: Any) -> str:
    """For bounds alone: where somebody comes from. Behind the site's proxy, what that says last."""
    forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    return str(forwarded or request.META.get("REMOTE_ADDR", ""))[:64]
