"""The tutorials, followed word by word in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import blocks, follow, missing

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "tutorials").glob("*.md"))]


def test_there_are_tutorials_for_images_and_for_tables() -> None:
    assert {"start.md", "images.md", "table.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outputs = follow(text, tmp_path)
    assert len(outputs) >= 1
    for shown, printed in outputs:
        assert missing(shown.text, printed) == [], f"printed was:\n{printed}"


def test_a_changed_line_is_noticed() -> None:
    assert missing("accuracy 90.33%\n...\n", "run runs/a\naccuracy 90.1%\n") == []
    assert missing("accuracy 90.33%\n", "accuracy 60.0%\n") == ["accuracy 90.33%"]
    assert missing("kept with the run\n", "the run is left as it was\n") == ["kept with the run"]
    (block,) = blocks('text\n\n```python title="a.py"\nprint()\n```\n')
    assert (block.title, block.text) == ("a.py", "print()\n")
