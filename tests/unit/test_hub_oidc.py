"""What the hub takes of an OpenID provider, and what of one that lies: ID tokens of keys that the test has."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("authlib", reason="it needs Python 3.10")

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web import oidc
from condor_joblens.hub.web.login_rates import ALL, AT_ONCE, EACH, LoginRates, TooMany
from condor_joblens.hub.web.oidc import Flow, OidcGone, OidcRefused, Provider
from condor_joblens.hub.web.oidc_settings import read_settings

KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
FLOW = Flow("state", "nonce", "verifier")


class Lying:
    """A provider that says what the test wants."""

    def __init__(self) -> None:
        self.token = ""
        self.about: dict[str, Any] = {}
        self.keys = [KEY]
        self.asked: list[tuple[str, str]] = []
        lying = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys = {"keys": [key.as_dict(private=False) for key in lying.keys]}
                self._say(keys if self.path == "/keys" else lying.says())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                lying.asked.append((self.headers["Authorization"], body))
                self._say({"id_token": lying.token, "access_token": "a", "token_type": "Bearer"})

            def _say(self, found: Any) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"

    def says(self) -> dict[str, Any]:
        names = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/keys"}
        return {"issuer": self.issuer, **{name: self.issuer + path for name, path in names.items()}, **self.about}

    def claims(self, **other: Any) -> dict[str, Any]:
        now = int(time.time())
        good = {"iss": self.issuer, "sub": "a1", "aud": "hub", "exp": now + 300, "iat": now, "nonce": "nonce"}
        return {name: value for name, value in {**good, **other}.items() if value is not None}


@pytest.fixture(scope="module")
def running() -> Iterator[Lying]:
    made = Lying()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def lying(running: Lying) -> Lying:
    running.token, running.about, running.keys, running.asked = "", {}, [KEY], []
    return running


def provider(lying: Lying, folder: Path, more: str = "") -> Provider:
    (folder / "secret").write_text("pi:ke\n")
    text = f"[oidc]\nissuer = {lying.issuer}\nclient = hub\nsecret_file = {folder}/secret\npages = http://localhost\n"
    (folder / "oidc").write_text(text + more)
    return Provider(read_settings(str(folder / "oidc")))


def signed(claims: dict[str, Any], key: Any = KEY, algorithm: str = "RS256") -> str:
    return jwt.encode({"alg": algorithm, "kid": "one"}, claims, key, algorithms=[algorithm])


def finish(provider: Provider, flow: Flow = FLOW, **answer: str) -> str:
    return provider.finish(flow, {"state": "state", "code": "c", **answer})


def test_the_claim_that_the_file_names_says_who_it_is(lying: Lying, tmp_path: Path) -> None:
    lying.token = signed(lying.claims(aud=["hub"], email="a@example.org", email_verified=True))
    assert finish(provider(lying, tmp_path)) == "a1"
    assert finish(provider(lying, tmp_path, "claim = email\n")) == "a@example.org"
    assert "code_verifier=verifier" in lying.asked[0][1] and lying.asked[0][0] == "Basic aHViOnBpJTNBa2U="
    lying.token = signed(lying.claims(email="a@example.org"))
    with pytest.raises(OidcRefused, match="not verified"):
        finish(provider(lying, tmp_path, "claim = email\n"))
    with pytest.raises(OidcRefused, match="does not say eppn of you"):
        finish(provider(lying, tmp_path, "claim = eppn\n"))


@pytest.mark.parametrize(
    "other",
    [
        {"iss": "http://127.0.0.1:1"}, {"iss": None}, {"aud": "another"}, {"aud": None}, {"aud": ["hub", "another"]},
        {"aud": ["hub", "another"], "azp": "another"}, {"exp": 1}, {"exp": None}, {"exp": "never"}, {"nonce": "n"},
        {"nonce": None}, {"iat": None}, {"sub": None}, {"nbf": 1 << 40}, {"at_hash": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_that_is_not_for_this_log_in_is_refused(other: dict[str, Any], lying: Lying, tmp_path: Path) -> None:
    lying.token = signed(lying.claims(**other))
    with pytest.raises(OidcRefused, match="the ID token is not for this log-in"):
        finish(provider(lying, tmp_path))


def test_a_token_that_another_key_or_algorithm_signed_is_refused(lying: Lying, tmp_path: Path) -> None:
    head, body, _ = signed(lying.claims()).split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').decode().rstrip("=")
    mac = hmac.digest(KEY.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    shared = f"{head}.{body}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    bare = "eyJhbGciOiJub25lIn0." + signed(lying.claims()).split(".")[1] + "."
    curve = ECKey.generate_key("P-256", {"kid": "one"})
    for token in (
        signed(lying.claims(), OTHER), shared, bare, "x", "",
        signed(lying.claims(), KEY, "RS512"), signed(lying.claims(), curve, "ES256"),
    ):  # fmt: skip
        lying.token = token
        with pytest.raises(OidcRefused, match="signature is not good"):
            finish(provider(lying, tmp_path))


def test_a_provider_that_is_gone_is_asked_once_in_a_while(lying: Lying, tmp_path: Path) -> None:
    asks, lying.about = provider(lying, tmp_path), {"issuer": "http://127.0.0.1:1"}
    for _ in range(3):
        with pytest.raises(OidcGone, match="the provider is not http"):
            asks.begin(FLOW)
        lying.about = {}


def test_a_provider_that_says_a_byte_at_a_time_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_ASK_SECONDS", 2.0)  # for a byte as well, which may come late
    with socket.create_server(("127.0.0.1", 0)) as slow:
        address = f"http://127.0.0.1:{slow.getsockname()[1]}"

        def drips() -> None:
            with slow.accept()[0] as opened, contextlib.suppress(OSError):
                opened.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while True:
                    opened.sendall(b" ")
                    time.sleep(0.02)

        threading.Thread(target=drips, daemon=True).start()
        (tmp_path / "oidc").write_text(f"[oidc]\nissuer = {address}\nclient = hub\npages = http://localhost\n")
        with pytest.raises(OidcGone, match="takes too long"):
            Provider(read_settings(str(tmp_path / "oidc"))).begin(FLOW)


def test_a_key_that_came_since_is_found(lying: Lying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = provider(lying, tmp_path)
    lying.token = signed(lying.claims())
    assert finish(made) == "a1"
    new = RSAKey.generate_key(2048, {"kid": "two"})
    lying.keys, lying.token = [new], jwt.encode({"alg": "RS256", "kid": "two"}, lying.claims(), new)
    with pytest.raises(OidcRefused):  # looked a moment ago
        finish(made, Flow("state2", "nonce", "v"), state="state2")
    monkeypatch.setattr("condor_joblens.hub.web.oidc._AGAIN_SECONDS", -1.0)
    assert finish(made, Flow("state3", "nonce", "v"), state="state3") == "a1"


def test_an_answer_of_another_log_in_or_provider_or_a_second_time_is_refused(lying: Lying, tmp_path: Path) -> None:
    made = provider(lying, tmp_path)
    lying.token = signed(lying.claims())
    answers = {"another log-in": {"state": "x"}, "another provider": {"iss": "x"}, "no code": {"code": ""}}
    for why, answer in {**answers, "not logged you in: access_denied": {"error": "access_denied\n"}}.items():
        with pytest.raises(OidcRefused, match=why):
            finish(made, **answer)
    assert finish(made, iss=lying.issuer) == "a1"
    with pytest.raises(OidcRefused, match="finished before"):
        finish(made)
    lying.about = {"authorization_response_iss_parameter_supported": True}
    with pytest.raises(OidcRefused, match="another provider"):
        finish(provider(lying, tmp_path))


def test_what_the_provider_says_of_itself_has_to_fit(lying: Lying, tmp_path: Path) -> None:
    evil = "//evil.example.org"
    for about in (
        {"issuer": f"https:{evil}"}, {"token_endpoint": f"http:{evil}"}, {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": None}, {"x": "y" * (1 << 20)},
    ):  # fmt: skip
        lying.about = about
        with pytest.raises(OidcGone):
            provider(lying, tmp_path).begin(FLOW)
    lying.about = {}
    address = provider(lying, tmp_path).begin(FLOW)
    assert address.startswith(f"{lying.issuer}/auth?") and "code_challenge_method=S256" in address
    assert "verifier" not in address and "nonce=nonce" in address


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("issuer = http://login.example.org", "https://"), ("client =", "client is empty"),
        ("algorithms = HS256", "none of the algorithms"), ("algorithms = none", "none of the algorithms"),
        ("authentication = x", "basic, post"), ("scope = profile", "openid"), ("secrets = x", "there is no secrets"),
        ("pages = joblens.example.org", "https://"),
    ],
)  # fmt: skip
def test_a_wrong_line_of_the_file_is_named(line: str, why: str, tmp_path: Path) -> None:
    given = {"issuer": "https://a.example.org", "client": "hub", "pages": "https://b.example.org"}
    name, _, value = (part.strip() for part in line.partition("="))
    text = "".join(f"{one} = {that}\n" for one, that in {**given, name: value}.items())
    (tmp_path / "oidc").write_text(f"[oidc]\n{text}")
    with pytest.raises(JobLensError, match=why):
        read_settings(str(tmp_path / "oidc"))


def test_attempts_are_bounded_by_place_and_together() -> None:
    now = [0.0]
    rates = LoginRates(lambda: now[0])

    def tries(place: str) -> bool:
        try:
            with rates.one("oidc", place):
                return True
        except TooMany:
            return False

    assert [tries("a") for _ in range(EACH + 1)] == [True] * EACH + [False]
    assert sum(tries(f"b{number}") for number in range(ALL)) == ALL - EACH
    now[0] = 61.0
    assert tries("a")
    with contextlib.ExitStack() as waiting:
        for number in range(AT_ONCE):
            waiting.enter_context(rates.one("condor", f"c{number}"))
        with pytest.raises(TooMany), rates.one("condor", "d"):
            pass
        assert tries("d"), "a schedd that hangs is no reason"
