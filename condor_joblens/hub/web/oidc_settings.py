"""The site's OpenID provider: the file of `--oidc`.

[oidc]
issuer = https://login.example.org/realms/site
client = joblens-hub
secret_file = /etc/joblens-hub/oidc.secret
pages = https://joblens.example.org
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.settings_file import read_section

LOOPBACK = ("127.0.0.1", "::1", "localhost")
ANSWER = "/login/oidc/answer"
"""The page to which the provider sends a browser back."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""By which an ID token may be signed: with a key that the provider alone has. Never `none`, and no shared secret."""

_AUTHENTICATIONS = {"basic": "client_secret_basic", "post": "client_secret_post"}
_DEFAULTS = {
    **{"issuer": "", "client": "", "secret_file": "", "pages": "", "name": "your site's account", "claim": "sub"},
    **{"algorithms": "RS256", "scope": "openid", "authentication": "basic", "authority": ""},
}


@dataclass(frozen=True)
class OidcSettings:
    """As the file says."""

    issuer: str
    client: str
    secret: str  # empty: a public client, which PKCE alone protects
    redirect: str  # the whole address of our page that takes the answer
    name: str  # of the provider, for people
    claim: str  # that says who somebody is
    algorithms: tuple[str, ...]
    scope: str
    authentication: str  # of us at the provider: as its standard calls it
    authority: str  # a file of certificates; empty: those that this machine trusts


def read_settings(path: str) -> OidcSettings:
    """Raises JobLensError with what is wrong, OSError."""
    given = read_section(path, "oidc", _DEFAULTS)
    for name in ("issuer", "client", "pages", "claim", "algorithms"):
        if not given[name].strip():
            raise JobLensError(f"{path}: {name} is empty")
    for name in ("issuer", "pages"):
        refuse_open(given[name], f"{path}: {name}")
    algorithms = tuple(given["algorithms"].replace(",", " ").split())
    for one in algorithms:
        if one not in ALGORITHMS:
            raise JobLensError(f"{path}: {printable(one)} is none of the algorithms {', '.join(ALGORITHMS)}")
    if given["authentication"] not in _AUTHENTICATIONS:
        raise JobLensError(f"{path}: authentication is one of {', '.join(_AUTHENTICATIONS)}")
    if "openid" not in given["scope"].split():
        raise JobLensError(f"{path}: scope has the word openid, or the provider says nothing of who somebody is")
    secret = ""
    if given["secret_file"]:
        with open(given["secret_file"], encoding="utf-8") as file:
            secret = file.read().strip()
    return OidcSettings(
        given["issuer"],
        given["client"],
        secret,
        given["pages"].rstrip("/") + ANSWER,
        given["name"],
        given["claim"],
        algorithms,
        given["scope"],
        _AUTHENTICATIONS[given["authentication"]] if secret else "none",
        given["authority"],
    )


def refuse_open(address: str, what: str) -> None:
    """Raises JobLensError, if what goes to this address could be read on its way."""
    try:
        url = urllib.parse.urlsplit(address)
        host = url.hostname or ""
    except ValueError:
        host = ""
    if not host or not (url.scheme == "https" or (url.scheme == "http" and host in LOOPBACK)):
        raise JobLensError(f"{what} is {printable(address, 200)}: write an address that begins with https://")
