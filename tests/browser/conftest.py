"""A real browser for the tests of this layer: Debian's Chromium, started once, without a network."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))  # its examples of profiles

PATIENCE = 120_000
"""Milliseconds for one step in the browser: the machine may be busy."""

expect.set_options(timeout=PATIENCE)  # a page's default does not hold for what is expected of it: that has 5 s

FLAGS = [f"--{flag}" for flag in ("no-sandbox", "disable-gpu", "disable-background-networking", "no-first-run")]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser itself."""
    program = shutil.which("chromium")
    assert program, "chromium is missing: make test-env installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page of 1200 x 800 pixels. What goes wrong in it, or leaves this machine, fails the test."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
    page.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: None if request.url.startswith("file://") else trouble.append(request.url))
    yield page
    context.close()
    assert not trouble
