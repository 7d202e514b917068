"""Who somebody is, by the site's OpenID provider: the authorization code flow with PKCE, a state and a nonce.

Its standard is OpenID Connect Core 1.0. Authlib and joserfc check signatures and claims; what is asked goes by the
standard library, which follows no redirection here and reads a bounded answer.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import secrets
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.web.oidc_settings import OidcSettings, refuse_open

FLOW_SECONDS = 600
"""From the first step of a log-in to its last."""

LEEWAY = 60
"""Seconds by which the provider's clock and ours may differ."""

MOST_TEXT = 200
"""Characters of a claim that says who somebody is."""

_ASK_SECONDS = 10.0  # for its first byte, and for all the others
_WAIT_SECONDS = 2.0  # for another who asks the same
_GONE_SECONDS = 5.0  # for which one that does not answer is not asked again what it is
_MOST_BYTES = 512 << 10
_KEPT_SECONDS = 3600.0
_AGAIN_SECONDS = 60.0  # between two looks for a key that we don't know
_MOST_USED = 10_000
_DISCOVERY = "/.well-known/openid-configuration"


class OidcRefused(JobLensError):
    """This log-in is none; asking the same again is no use."""


class OidcGone(JobLensError):
    """The provider does not answer as it should."""


@dataclass(frozen=True)
class Flow:
    """One log-in that has begun, as the browser keeps it until the provider has answered."""

    state: str
    nonce: str
    verifier: str  # of PKCE

    @classmethod
    def new(cls) -> Flow:
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Provider:
    """Any thread may ask."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.time) -> None:
        """Raises JobLensError: the library is missing, or the authority's file is wrong."""
        try:
            import authlib.oidc.core  # noqa: F401
        except ImportError as error:
            raise JobLensError(f"--oidc needs the extra `oidc` beside `hub` ({error}): see docs/hub.md") from None
        self.settings, self._clock = settings, clock
        try:
            tls = ssl.create_default_context(cafile=settings.authority or None)
        except (ssl.SSLError, OSError) as error:
            raise JobLensError(f"authority {settings.authority} can't be used: {printable(str(error))}") from None
        self._opener = urllib.request.build_opener(_NoRedirection, urllib.request.HTTPSHandler(context=tls))
        self._lock = threading.Lock()
        self._about: tuple[float, dict[str, Any]] = (float("-inf"), {})
        self._asks = threading.Lock()
        self._gone: tuple[float, str] = (float("-inf"), "")
        self._keys: tuple[float, Any] = (float("-inf"), None)
        self._used: dict[str, float] = {}  # states that were redeemed -> when

    def begin(self, flow: Flow) -> str:
        """The provider's address at which a browser goes on. Raises OidcGone."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        return str(
            prepare_grant_uri(
                self._of_provider()["authorization_endpoint"],
                client_id=self.settings.client,
                response_type="code",
                redirect_uri=self.settings.redirect,
                scope=self.settings.scope,
                state=flow.state,
                nonce=flow.nonce,
                code_challenge=create_s256_code_challenge(flow.verifier),
                code_challenge_method="S256",
            )
        )

    def finish(self, flow: Flow, answer: Mapping[str, str]) -> str:
        """Who it is: the value of the settings' claim. answer: what the provider's redirection said.

        Raises OidcRefused, OidcGone.
        """
        if not hmac.compare_digest(flow.state.encode(), answer.get("state", "").encode("utf-8", "replace")):
            raise OidcRefused("this answer is of another log-in: begin anew")
        about = self._of_provider()
        says_so = about.get("authorization_response_iss_parameter_supported") is True  # RFC 9207
        if ("iss" in answer or says_so) and answer.get("iss") != self.settings.issuer:
            raise OidcRefused("this answer is of another provider: begin anew")
        if "error" in answer:
            raise OidcRefused(f"the provider has not logged you in: {printable(answer['error'])}")
        if not answer.get("code"):
            raise OidcRefused("the provider's answer has no code: begin anew")
        self._use(flow.state)
        said = self._redeem(about["token_endpoint"], answer["code"], flow.verifier)
        return self._who(self._claims(said, flow.nonce))

    def _use(self, state: str) -> None:
        """Once. Raises OidcRefused."""
        now = self._clock()
        with self._lock:
            if state in self._used:
                raise OidcRefused("this log-in was finished before: begin anew")
            self._used[state] = now
            for one in [one for one, when in self._used.items() if when < now - FLOW_SECONDS]:
                del self._used[one]
            while len(self._used) > _MOST_USED:
                del self._used[next(iter(self._used))]

    def _redeem(self, address: str, code: str, verifier: str) -> dict[str, Any]:
        """Raises OidcRefused, OidcGone."""
        words = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect,
            "code_verifier": verifier,
        }
        headers = {}
        if self.settings.authentication == "client_secret_basic":
            pair = ":".join(urllib.parse.quote_plus(text) for text in (self.settings.client, self.settings.secret))
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            words["client_id"] = self.settings.client
        if self.settings.authentication == "client_secret_post":
            words["client_secret"] = self.settings.secret
        said = self._ask(address, urllib.parse.urlencode(words).encode(), headers)
        if "id_token" not in said:
            raise OidcRefused(
                f"the provider takes its own code not: {printable(str(said.get('error', 'no ID token')))}"
            )
        return said

    def _claims(self, said: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        """Of an ID token that is the provider's, for us and this log-in, and not over. Raises OidcRefused, OidcGone."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError

        text = said["id_token"]
        if not isinstance(text, str):
            raise OidcRefused("the provider's ID token is none")
        token: Any = None
        for is_last in (False, True):
            try:
                token = jwt.decode(text, self._key_set(anew=is_last), algorithms=list(self.settings.algorithms))
                break
            except (JoseError, ValueError, TypeError) as error:
                if is_last:
                    raise OidcRefused(f"the ID token's signature is not good: {_why(error)}") from None
        must = {"essential": True}
        options = {
            "iss": {**must, "value": self.settings.issuer},
            "aud": {**must, "value": self.settings.client},
            **{name: dict(must) for name in ("sub", "exp", "iat", "nonce")},
        }
        params = {"nonce": nonce, "client_id": self.settings.client, "access_token": said.get("access_token")}
        try:
            claims = CodeIDToken(token.claims, token.header, options, params)
            claims.validate(int(self._clock()), LEEWAY)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise OidcRefused(f"the ID token is not for this log-in: {_why(error)}") from None
        return dict(claims)

    def _who(self, claims: Mapping[str, Any]) -> str:
        """Raises OidcRefused."""
        name = self.settings.claim
        found = claims.get(name)
        if not isinstance(found, str) or not found or len(found) > MOST_TEXT:
            raise OidcRefused(f"the provider does not say {name} of you: ask the hub's administrator")
        if name == "email" and claims.get("email_verified") is not True:
            raise OidcRefused("the provider has not verified your address of mail")
        return found

    def _of_provider(self) -> dict[str, Any]:
        """What it says of itself, as of an hour ago at most. Raises OidcGone.

        Anybody may begin a log-in. So while it does not answer, one request waits for it, and others a moment alone.
        """
        if time.monotonic() - self._about[0] < _KEPT_SECONDS:
            return self._about[1]
        if not self._asks.acquire(timeout=_WAIT_SECONDS):
            raise OidcGone(f"the provider {self.settings.issuer} has not answered yet")
        try:
            if time.monotonic() - self._about[0] >= _KEPT_SECONDS:
                when, why = self._gone
                if time.monotonic() - when < _GONE_SECONDS:
                    raise OidcGone(why)
                about = self._look()
                self._about = time.monotonic(), about
        finally:
            self._asks.release()
        return self._about[1]

    def _look(self) -> dict[str, Any]:
        """What it says of itself now. Raises OidcGone."""
        try:
            about = self._ask(self.settings.issuer.rstrip("/") + _DISCOVERY)
            if about.get("issuer") != self.settings.issuer:
                other = printable(str(about.get("issuer")), 200)
                raise OidcGone(f"the provider is not {self.settings.issuer} but {other}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                try:
                    refuse_open(str(about.get(name)), f"the provider's {name}")
                except JobLensError as error:
                    raise OidcGone(str(error)) from None
        except OidcGone as error:
            self._gone = time.monotonic(), str(error)
            raise
        return about

    def _key_set(self, anew: bool) -> Any:
        """Its public keys. anew: it may have others since. Raises OidcGone."""
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        when, keys = self._keys
        if keys is None or time.monotonic() - when > (_AGAIN_SECONDS if anew else _KEPT_SECONDS):
            try:
                keys = KeySet.import_key_set(self._ask(self._of_provider()["jwks_uri"]))  # type: ignore[arg-type]
            except (JoseError, ValueError, TypeError, KeyError) as error:
                raise OidcGone(f"the provider's keys can't be read: {_why(error)}") from None
            self._keys = time.monotonic(), keys
        return keys

    def _ask(self, address: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Raises OidcGone. What it says with a status of 400 or 401 is an answer, too."""
        request = urllib.request.Request(address, body, {"Accept": "application/json", **(headers or {})})
        try:
            try:
                with self._opener.open(request, timeout=_ASK_SECONDS) as opened:
                    content = _content(opened)
            except urllib.error.HTTPError as error:
                if body is None or error.code not in (400, 401):
                    raise
                content = _content(error)
            found = json.loads(content)
            if not isinstance(found, dict):
                raise ValueError("its answer is no object of JSON")
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise OidcGone(f"the provider does not answer at {address}: {printable(str(error), 200)}") from None
        return found


def _content(answer: Any) -> bytes:
    """Of an answer, in bounds of size and time. Raises ValueError, OSError, HTTPException."""
    end, found = time.monotonic() + _ASK_SECONDS, bytearray()
    while part := answer.read1(1 << 16):
        found += part
        if len(found) > _MOST_BYTES:
            raise ValueError("its answer is too long")
        if time.monotonic() > end:
            raise ValueError("its answer takes too long")
    return bytes(found)


def _why(error: Exception) -> str:
    return printable(str(error) or type(error).__name__, 120)
