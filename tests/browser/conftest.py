"""A real browser and a real server for the tests of the page. `make test-browser` installs what they need."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from tests.process.conftest import short_directory
from tests.process.harness import ROOT, Framehost, running

GUARD_MS = 20_000
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}
KEY = "a-key-for-the-tests-of-the-page"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", action="store_true", help="write the screenshots of the documentation")


@pytest.fixture(autouse=True)
def _loops_are_not_blocked() -> None:
    """Instead of the guard of all other tests: the only loop in this process is the one of the browser's driver, inside
    which these tests run, and the commands that they call may wait."""


@pytest.fixture(scope="session")
def screenshots(request: pytest.FixtureRequest) -> Path | None:
    """Where screenshots go, None when they were not asked for."""
    return ROOT / "docs" / "images" if request.config.getoption("--screenshots") else None


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, "these tests need Chromium: make test-browser installs it"
    with sync_playwright() as playwright:
        # Containers run as root and have a small /dev/shm; the pages are our own.
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Framehost]:
    """The embedded model, for everyone who can connect."""
    with short_directory() as runtime, running(runtime, "sparrow=sparrow") as started:
        yield started


@pytest.fixture(scope="session")
def locked() -> Iterator[Framehost]:
    """The same behind an API key."""
    environment = {"FRAMEHOST_API_KEYS": KEY}
    with short_directory() as runtime, running(runtime, "sparrow=sparrow", environment=environment) as started:
        yield started


class Visit:
    """One visitor's page, and everything that the browser had to say about it."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(GUARD_MS)
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))

    def open(self, server: Framehost) -> Page:
        self.page.goto(server.url)
        return self.page


@pytest.fixture
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A visitor at a desk, unless the test says otherwise with `context` arguments as the fixture's parameter."""
    context = browser.new_context(**{"viewport": DESK, "locale": "en-US", **getattr(request, "param", {})})
    yield Visit(context)
    context.close()
