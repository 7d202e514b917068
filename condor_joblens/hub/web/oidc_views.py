"""Log-in by the site's OpenID provider: the way there, and the way back.

What has begun is kept in a signed cookie of its own. That of sessions is SameSite=Strict: it does not come along when
another site sends a browser here. So the last answer is a page of ours, which leads on.
"""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core import signing
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.login_rates import TooMany
from condor_joblens.hub.web.logins import begin_session, client_of, login_page
from condor_joblens.hub.web.oidc import FLOW_SECONDS, Flow, OidcGone, OidcRefused
from condor_joblens.hub.web.people import OIDC

_COOKIE, _PATH, _SALT = "joblens_oidc", "/login/oidc", "joblens-hub-oidc"
_MOST_ANSWER = 4096
"""Characters of a parameter of the provider's answer."""


def begin(request: Any) -> HttpResponse:
    """To the provider."""
    provider = desk().oidc
    if provider is None:
        return login_page(request, "this hub has no OpenID provider", 404)
    flow = Flow.new()
    try:
        address = provider.begin(flow)
    except OidcGone as error:
        return _gone(request, error)
    answer = HttpResponseRedirect(address)
    kept = {"flow": [flow.state, flow.nonce, flow.verifier], "next": _own_path(request.GET.get("next", ""))}
    answer.set_cookie(
        _COOKIE, signing.dumps(kept, salt=_SALT), max_age=FLOW_SECONDS, path=_PATH,
        secure=settings.SESSION_COOKIE_SECURE, httponly=True, samesite="Lax",
    )  # fmt: skip
    return answer


def finish(request: Any) -> HttpResponse:
    """From the provider. Whatever comes of it, this log-in can't be finished again."""
    answer = _finished(request)
    answer.delete_cookie(_COOKIE, path=_PATH, samesite="Lax")
    return answer


def _finished(request: Any) -> HttpResponse:
    provider = desk().oidc
    if provider is None:
        return login_page(request, "this hub has no OpenID provider", 404)
    try:
        kept = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=FLOW_SECONDS)
    except signing.BadSignature:
        return login_page(request, "this log-in was not begun in this browser, or is over: begin anew", 400)
    given = {name: request.GET.get(name, "") for name in request.GET}
    if any(len(value) > _MOST_ANSWER for value in given.values()):
        return login_page(request, "this answer of the provider is too long", 400)
    try:
        with desk().login_rates.one(OIDC, client_of(request)):
            login = f"{OIDC}:{provider.finish(Flow(*kept['flow']), given)}"
    except TooMany as error:
        return login_page(request, str(error), 429)
    except OidcRefused as error:
        print(f"joblens-hub: log-in by OpenID: {error}", file=sys.stderr, flush=True)
        return login_page(request, str(error), 403)
    except OidcGone as error:
        return _gone(request, error)
    if login not in desk().people_by_login():
        return login_page(request, f"you are {login}, and nobody here has this login: ask the hub's administrator", 403)
    return begin_session(request, login) or render(request, "logged_in.html", {"next": kept["next"]})


def _gone(request: Any, error: OidcGone) -> HttpResponse:
    """People need not know its addresses: the log has them."""
    print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
    return login_page(request, "the site's OpenID provider does not answer as it should: try again later", 503)


def _own_path(path: str) -> str:
    """A page of ours, whatever somebody wrote into an address."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/login")) and "\\" not in path and path.isprintable()
    return path if is_ours and len(path) <= 1000 else "/"
