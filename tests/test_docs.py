"""What the pages show is what happens: every ``>>>`` in them is run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from revar import calibrators, metrics, selection

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if ">>>" in page.read_text(encoding="utf-8"))


def test_there_are_pages_with_examples() -> None:
    assert DOCS / "metrics.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_examples_of_a_page_give_what_they_show(page: Path) -> None:
    found = doctest.testfile(
        str(page), module_relative=False, encoding="utf-8", optionflags=doctest.ELLIPSIS
    )
    assert found.attempted > 0
    assert found.failed == 0, "see the captured output"


def test_the_page_of_metrics_names_every_public_one() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    names = [*metrics.__all__, *selection.__all__]
    names += [entry.name for entry in calibrators.CALIBRATORS]
    assert [name for name in names if not re.search(rf"`[^`]*\b{name}\b[^`]*`", page)] == []
