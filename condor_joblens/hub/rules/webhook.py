"""Posts of firings to addresses that the administrator has listed: JSON, signed. Nothing that comes back is believed.

The header JobLens-Signature has `t=SECONDS,v1=HEX`: HMAC-SHA256 by the secret, over `SECONDS.BODY`.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.rules.firings import Firing
from condor_joblens.hub.rules.settings import Settings, host_of

SECONDS = 15.0
HEADER = "JobLens-Signature"


_KEPT_BACK = ("owner", "schedd", "own")
"""Of a firing, what is not posted: whose it is."""


def signature(secret: bytes, body: bytes, now: float) -> str:
    """The header's value."""
    stamp = str(int(now))
    return f"t={stamp},v1={hmac.new(secret, stamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def post(settings: Settings, url: str, firings: Sequence[Firing], now: float) -> None:
    """All of these in one post. Raises JobLensError: nobody has answered 200 to 299, or it may not be posted there."""
    if host_of(url) not in settings.hosts:  # whatever it was checked by before
        raise JobLensError(f"{printable(url)} is on no host of [webhook] hosts")
    try:
        with open(settings.secret_file, "rb") as file:
            secret = file.read().strip()
    except OSError as error:
        raise JobLensError(f"{settings.secret_file} can't be read: {error.strerror}") from None
    if len(secret) < 16:
        raise JobLensError(f"{settings.secret_file} is no secret: write at least 16 letters")
    body = json.dumps({"firings": [_told(one) for one in firings]}).encode()
    head = {"Content-Type": "application/json", HEADER: signature(secret, body, now)}
    parts = urllib.parse.urlsplit(url)
    connection: Any = (
        http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=SECONDS, context=ssl.create_default_context()
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
    )
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, head)
        status = connection.getresponse().status  # a redirection is not followed: it may lead anywhere
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise JobLensError(f"{printable(url)} does not answer: {printable(str(error), 200)}") from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise JobLensError(f"{printable(url)} answers {status}")


def _told(firing: Firing) -> dict[str, Any]:
    return {name: value for name, value in asdict(firing).items() if name not in _KEPT_BACK}
