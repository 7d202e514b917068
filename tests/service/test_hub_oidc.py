"""Log-in to the hub's pages by a real OpenID provider, npm's oidc-provider, and by tokens of HTCondor.

What a real schedd says of tokens, tests/pool/test_hub_tokens.py asks; here a program answers in its place.
"""

from __future__ import annotations

import http.cookiejar
import itertools
import json
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, Hub, access, ask
from servers import OidcProvider

LOGINS = "remote:alice, oidc:a1, condor:alice@pool"
PEOPLE = f"{ALICE.replace('remote:alice', LOGINS)}[Bob]\nlogin = remote:b1\njobs = b1@ap.example.org\n"
"""At the provider, Alice is a1. Its b1 is nobody here, though Bob is called so elsewhere."""


SCHEDD = """#!/usr/bin/python3 -I
import json, sys
asked = json.load(sys.stdin)
known = {"good.a.a": {"who": "alice@pool"}, "far.a.a": {"who": "alice@elsewhere"}, "gone.a.a": {"gone": "it is down"}}
known |= {"none.a.a": {"who": "unauthenticated@unmapped"}, "odd.a.a": {"who": 7}}
print(json.dumps(known.get(asked["token"], {"refused": "no"}) if "token" in asked else {"address": "<127.0.0.1:9618>"}))
"""
PLACES = itertools.count(1)
PATIENCE = 120_000


class Browser:
    """Follows redirections and keeps cookies, as a browser does."""

    def __init__(self, *handlers: Any) -> None:
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies), *handlers)
        self._opener.addheaders = [("X-Forwarded-For", f"192.0.2.{next(PLACES)}")]  # as the site's proxy says it

    def open(self, address: str, **form: str) -> tuple[int, str, str]:
        """Status, the last address, and its text."""
        body = urllib.parse.urlencode(form).encode() if form else None
        try:
            with self._opener.open(address, body, timeout=60) as answer:
                return answer.status, answer.url, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.url, error.read().decode()

    def log_in(self, hub: Hub, name: str, path: str = "/login/oidc") -> tuple[int, str, str]:
        """All pages of it: what the last one says."""
        status, address, text = self.open(hub.pages + path)
        for form in ({"prompt": "login", "login": name, "password": "x"}, {"prompt": "consent"}):
            if "/interaction/" in address:
                (action,) = re.findall(r'action="([^"]+)"', text)
                status, address, text = self.open(urllib.parse.urljoin(address, action), **form)
        return status, address, text

    def cookie(self, name: str) -> str:
        return next((str(one.value) for one in self.cookies if one.name == name), "")


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    packages = ("authlib", "joserfc", "cryptography", "cffi", "typing_extensions")
    made = server(Hub, folder / "hub", packages=packages)
    made.people.write_text(PEOPLE)
    (folder / "secret").write_text("pike\n")
    (folder / "secret").chmod(0o644)
    provider = server(OidcProvider, folder / "provider", "joblens-hub", "pike", f"{made.pages}/login/oidc/answer")
    (folder / "oidc").write_text(
        f"[oidc]\nissuer = {provider.issuer}\nclient = joblens-hub\nsecret_file = {folder}/secret\n"
        f"pages = {made.pages}\nname = Example University\n"
    )
    (folder / "schedd").write_text(SCHEDD)
    (folder / "schedd").chmod(0o755)
    (folder / "condor").write_text(f"[condor]\npython = {folder}/schedd\n")
    made.more = ["--oidc", f"{folder}/oidc", "--condor", f"{folder}/condor"]
    with provider, made:
        yield made


def test_who_logs_in_at_the_provider_is_the_person_whose_login_that_is(hub: Hub) -> None:
    browser = Browser()
    status, _, text = browser.open(hub.pages + "/jobs?state=all")
    assert status == 401 and "Log in with Example University" in text
    assert f"condor_token_fetch -authz READ -lifetime 300)\" '{hub.pages}/login/condor?as=browser'" in text
    (link,) = re.findall(r'href="(/login/oidc[^"]+)"', text)
    status, _, text = browser.log_in(hub, "a1", link)
    assert (status, "You are logged in" in text) == (200, True), text
    assert 'url=/jobs?state=all"' in text, "where one wanted to go"
    assert not browser.cookie("joblens_oidc")
    status, _, text = browser.open(hub.pages + "/jobs")
    assert status == 200 and "Alice, user" in text
    assert "\tAlice\tlog-in\toidc:a1, a browser's session" in access(hub, "audit").stdout


def test_a_browser_is_logged_in_by_another_site(hub: Hub) -> None:
    """The session's cookie does not come along from there, and nothing of the page's own rules is broken."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--disable-gpu"]}
        browser = playwright.chromium.launch(timeout=PATIENCE, **flags)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        trouble: list[str] = []
        page.on("console", lambda message: trouble.append(message.text) if hub.pages in page.url else None)
        page.goto(f"{hub.pages}/login")
        page.get_by_role("link", name="Log in with Example University").click()
        page.locator("input[name=login]").fill("a1")
        page.locator("input[name=password]").fill("x")
        page.locator("button[type=submit]").click()
        page.locator("button[type=submit]").click()  # what the hub is to know
        page.wait_for_url(f"{hub.pages}/")
        assert page.get_by_text("Alice, user").is_visible() and not trouble
        browser.close()


def test_an_equal_name_at_the_provider_is_nobody(hub: Hub) -> None:
    browser = Browser()
    status, _, text = browser.log_in(hub, "b1")
    assert status == 403 and "you are oidc:b1, and nobody here has this login" in text
    assert browser.open(hub.pages + "/jobs")[0] == 401


def test_a_session_from_before_is_not_the_one_of_who_logs_in(hub: Hub) -> None:
    browser = Browser()
    browser.log_in(hub, "a1")
    before = browser.cookie("sessionid")
    browser.log_in(hub, "a1")
    assert before and browser.cookie("sessionid") not in ("", before)
    other = Browser()
    for cookie in browser.cookies:
        if cookie.name == "sessionid":
            cookie.value = before
        other.cookies.set_cookie(cookie)
    assert other.open(hub.pages + "/jobs")[0] == 401, "whoever knew the old one has nothing"


def test_an_answer_is_good_in_the_browser_that_began_once_and_for_its_state(hub: Hub) -> None:
    seen: list[str] = []

    class Stop(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, request: Any, file: Any, code: Any, message: Any, headers: Any, address: str) -> Any:
            if "/login/oidc/answer" in address and not seen:
                seen.append(address)
                raise urllib.error.HTTPError(address, 418, "caught", headers, file)
            return super().redirect_request(request, file, code, message, headers, address)

    browser, thief = Browser(Stop), Browser()
    browser.log_in(hub, "a1")
    (answer,) = seen
    status, _, text = thief.open(answer)
    assert status == 400 and "was not begun in this browser" in text
    thief.open(f"{hub.pages}/login/oidc")
    status, _, text = thief.open(answer)
    assert status == 403 and "of another log-in" in text, "he gets nobody logged in as somebody else"
    kept = browser.cookie("joblens_oidc")
    assert browser.open(answer)[0] == 200
    again = urllib.request.Request(answer, headers={"Cookie": f"joblens_oidc={kept}"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(again, timeout=60)
    assert refused.value.code == 403 and "was finished before" in refused.value.read().decode()


def test_what_the_provider_refuses_is_said_in_a_sentence_and_attempts_are_bounded(hub: Hub) -> None:
    browser = Browser()
    statuses = []
    for _ in range(11):
        browser.open(f"{hub.pages}/login/oidc")
        query = urllib.parse.urlencode({"error": "access_denied", "state": "x", "error_description": "<b>"})
        statuses.append(browser.open(f"{hub.pages}/login/oidc/answer?{query}")[0])
    assert statuses[0] == 403 and statuses[-1] == 429


# --- tokens of HTCondor


def shown(hub: Hub, token: str, wanted: str, method: str = "POST") -> tuple[int, dict[str, Any]]:
    """What a program is told that shows it."""
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": f"192.0.2.{next(PLACES)}"}
    request = urllib.request.Request(f"{hub.pages}/login/condor?as={wanted}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def test_a_token_of_htcondor_becomes_a_session_or_a_token_of_the_hub(hub: Hub) -> None:
    status, said = shown(hub, "good.a.a", "browser")
    assert status == 200, said
    browser = Browser()
    form = dict(re.findall(r'name="(\w+)" value="([^"]+)"', browser.open(hub.pages + said["path"])[2]))
    assert "Alice, user" in browser.open(f"{hub.pages}/login", **form)[2]
    status, said = shown(hub, "good.a.a", "token")
    assert status == 200 and 86000 < said["until"] - time.time() < 86401
    assert ask(hub, "", "/api/v1/jobs", secret=said["token"])[0] == 200
    assert "condor:alice@pool\ttoken made" in access(hub, "audit").stdout


def test_a_token_that_no_schedd_or_nobody_here_knows_is_refused(hub: Hub) -> None:
    for token, status, why in (
        ("bad.a.a", 401, "does not take this token"), ("odd.a.a", 401, "does not take this token"),
        ("none.a.a", 401, "does not know whose"), ("x", 401, "is no token of HTCondor"), ("", 401, "show a token"),
        ("far.a.a", 403, "you are condor:alice@elsewhere, and nobody here"), ("gone.a.a", 503, "can't be asked now"),
    ):  # fmt: skip
        assert (found := shown(hub, token, "token"))[0] == status and why in found[1]["error"], token
    assert shown(hub, "good.a.a", "root")[0] == 400 and shown(hub, "good.a.a", "token", "GET")[0] == 405
