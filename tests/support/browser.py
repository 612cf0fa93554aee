"""A page in headless Chromium, with everything that went wrong in it.

Without a browser a test is skipped, unless ``REVAR_REQUIRE_BROWSER=1``: then it fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass
class BrowserPage:
    """A page under watch.

    Attributes:
        page: Playwright's.
        errors: what the console and uncaught exceptions said.
        external: addresses of other machines that were asked for.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in _HERE:
            self.external.append(url)


def _absent(reason: str) -> None:
    if os.environ.get("REVAR_REQUIRE_BROWSER") == "1":
        pytest.fail(f"REVAR_REQUIRE_BROWSER is set, but {reason}")
    pytest.skip(reason)


@contextmanager
def browser_page(
    *,
    width: int = 1200,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[BrowserPage]:
    """A new page of its own browser.

    Args:
        width: of the window, in CSS pixels.
        height: of the window.
        scheme: what the reader prefers.
    """
    executable = next(filter(None, map(shutil.which, _NAMES)), None)
    if executable is None:
        _absent("there is no chromium on the path")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _absent("playwright is not installed")
    # A browser refuses its sandbox to root, which containers run as.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=arguments)
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        watched = BrowserPage(context.new_page())
        page = watched.page
        page.on(
            "console",
            lambda said: watched.errors.append(said.text) if said.type == "error" else None,
        )
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on("request", lambda request: watched._request(request.url))
        try:
            yield watched
        finally:
            context.close()
            browser.close()
