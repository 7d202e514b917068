"""Log-in by a token of HTCondor: a program shows it, and gets a token of the hub, or a code for a browser."""

from __future__ import annotations

import sys
from typing import Any

from django.http import HttpResponse, JsonResponse

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web.access import JOBS
from condor_joblens.hub.web.condor_tokens import ScheddGone, TokenRefused
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.login_rates import TooMany
from condor_joblens.hub.web.logins import client_of
from condor_joblens.hub.web.people import CONDOR

_BEARER = "Bearer "
DAYS = 1
"""For which a token of the hub is good that was had so."""


def log_in(request: Any) -> HttpResponse:
    """`as=browser`: an address that works once. `as=token`: a token for /api/v1.

    Nobody is known by a cookie here, and no other site can set the header: it needs no token against forged requests.
    """
    tokens, access = desk().condor, desk().access
    shown = request.headers.get("Authorization", "")
    wanted = request.GET.get("as", "browser")
    if tokens is None or access is None:
        return _refused("this hub takes no tokens of HTCondor", 404)
    if not shown.startswith(_BEARER):
        return _refused("show a token in the header Authorization: Bearer", 401)
    if wanted not in ("browser", "token"):
        return _refused("as is browser or token", 400)
    try:
        with desk().login_rates.one(CONDOR, client_of(request)):
            login = f"{CONDOR}:{tokens.whose(shown.removeprefix(_BEARER).strip())}"
        person = desk().people_by_login().get(login)
        if person is None:
            return _refused(f"you are {login}, and nobody here has this login: ask the hub's administrator", 403)
        if wanted == "browser":
            return JsonResponse({"path": f"/login?code={access.new_code(login)}"})
        token, secret = access.add(person.name, frozenset({JOBS}), DAYS, login, "by a token of HTCondor")
        return JsonResponse({"token": secret, "until": token.until})
    except TooMany as error:
        return _refused(str(error), 429)
    except TokenRefused as error:
        print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
        return _refused(str(error), 401)
    except ScheddGone as error:
        print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
        return _refused("the schedd can't be asked now: try again later", 503)
    except JobLensError as error:
        print(f"joblens-hub: {error}", file=sys.stderr, flush=True)
        return _refused(str(error), 503)


def _refused(why: str, status: int) -> HttpResponse:
    return JsonResponse({"error": why}, status=status)
