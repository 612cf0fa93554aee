"""The site: it builds without a warning, its links lead somewhere, and it asks no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from revar import metrics, selection
from revar.registry import DATASETS, METHODS
from revar.tables.catalogue import TABLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Links(HTMLParser):
    """What a page loads, links to, and can be linked at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        if "id" in found:
            self.anchors.add(found["id"])
        if "src" in found:
            self.loads.append(found["src"])
        if "href" in found:
            (self.loads if tag == "link" else self.links).append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page.resolve(): Links(page) for page in site.rglob("*.html") if page.name != "404.html"}


def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        built = page.relative_to(DOCS).with_suffix(".html")
        built = built.with_name("index.html") if built.name == "README.html" else built
        assert (site / built).exists(), built


def test_nothing_is_loaded_from_a_network(site: Path, pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        assert [one for one in found.loads if "//" in one] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_every_link_and_picture_leads_somewhere(pages: dict[Path, Links]) -> None:
    lost = []
    for page, found in pages.items():
        for target in [*found.links, *found.loads]:
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            path, _, anchor = unquote(target).partition("#")
            there = (page.parent / path).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            known = pages.get(there)
            if not there.exists() or (anchor and known and anchor not in known.anchors):
                lost.append(f"{page.name}: {target}")
    assert lost == []


def test_every_name_has_its_section(site: Path, pages: dict[Path, Links]) -> None:
    def anchors(name: str) -> set[str]:
        return pages[(site / name).resolve()].anchors

    for kind, names in (("datasets", DATASETS), ("tables", TABLES)):
        for entry in names:
            assert entry.name in anchors(f"reference/{kind}/{entry.name}.html")
    functions = {
        name
        for module in (metrics, selection)
        for name in module.__all__
        if name.islower()
    }  # fmt: skip
    assert functions <= anchors("metric-by-metric.html")
    for name in functions:
        assert name in anchors(f"reference/metrics/{name}.html")
    for module in (metrics, selection):
        wanted = {f"{module.__name__}.{name}" for name in module.__all__}
        assert wanted <= anchors(f"api/{module.__name__.removeprefix('revar.')}.html")
    written = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "methods").glob("*.md"))
    for entry in METHODS:
        target = entry.target.replace(":", ".").split(".")
        assert ".".join(target[:4]) in anchors("api/methods.html")
        assert re.search(rf"^# .*`{entry.name}`|^\| `{entry.name}` \|", written, re.MULTILINE)


def test_lists_are_lists(site: Path) -> None:
    """mkdocs wants an empty line before a list; GitHub does not, so one forgets."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"<p>(?:(?!</p>).)*?\n[*-] ", text, re.DOTALL), page
