"""What mkdocs does beside rendering `docs/`: pages made from the code, notebooks, links outside.

Links in the pages are those of the repository, so that they work there too. A link that leaves
``docs/`` gets a copy of its target in the site, and a notebook becomes a page.
"""

from __future__ import annotations

import base64
import html
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = "repository"
"""Folder of the site for what lies outside ``docs/``."""
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^```python (?:file|entry)=(\S+)$", flags=re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill folders into the navigation, and leave out pages that are not written yet.

    A misspelt name does not go unnoticed: its page is then in no place, which is a warning.
    """
    config.nav = _filled(config.nav or [], Path(config.docs_dir))
    return config


def _filled(entries: list[Any], docs: Path) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        (title, value), *_ = entry.items()
        if isinstance(value, list):
            found.append({title: _filled(value, docs)})
        elif value.endswith("/"):
            notes = sorted((docs / value).glob("*.md"))
            found.append({title: [str(note.relative_to(docs)) for note in notes]})
        elif (
            (docs / value).exists()
            or (docs / value).with_suffix(".ipynb").exists()
            or value.startswith("reference/")
        ):
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and copies of what is linked outside ``docs/``."""
    for name, content in (*_datasets(), *_tables(), *_metrics()):
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            for made in _notebook(file, config):
                files.append(made)
    waiting = [(f.src_uri, f.content_string) for f in files.documentation_pages()]
    while waiting:
        uri, text = waiting.pop()
        for path in _outside(uri, text):
            place = f"{OUTSIDE}/{path}"
            if files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
                if path.endswith(".md"):
                    waiting.append((place, (ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at the site's copies and pages; give code its file name as a title."""
    uri = page.file.src_uri

    def move(found: re.Match[str]) -> str:
        opening, target, anchor, closing = found.groups()
        path, anchor = _target(uri, target), anchor or ""
        if path is None:
            return found.group()
        if (ROOT / path).is_dir():
            path, anchor = "results/README.md", _section(Path(path).name)
        if path.startswith("docs/"):
            place = path.removeprefix("docs/")
            place = re.sub(r"\.ipynb$", ".md", place)
        else:
            place = f"{OUTSIDE}/{path}"
        return f"{opening}{posixpath.relpath(place, posixpath.dirname(uri))}{anchor}{closing}"

    return _FENCE.sub(r'```python title="\1"', _LINK.sub(move, markdown))


def _section(folder: str) -> str:
    """Where the README of results speaks of a folder: its section, or the top."""
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    return f"#{folder}" if f"## `{folder}/`" in text else ""


def _target(uri: str, target: str) -> str | None:
    """What a relative link of a page means, from the root of the project."""
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    inside = uri.startswith(f"{OUTSIDE}/")
    page = uri.removeprefix(f"{OUTSIDE}/") if inside else f"docs/{uri}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _outside(uri: str, text: str) -> Iterator[str]:
    """Files a page links to that are not in ``docs/``; a folder stands for its README."""
    for _, target, _, _ in _LINK.findall(text):
        path = _target(uri, target)
        if path is None or path.startswith("docs/"):
            continue
        if (ROOT / path).is_dir() and path.startswith("results"):
            path = "results/README.md"
        if (ROOT / path).is_file():
            yield path


def _notebook(file: File, config: MkDocsConfig) -> Iterator[File]:
    """A notebook as a page: its text, its code, and what it printed and drew."""
    cells = json.loads(file.content_string)["cells"]
    stem = file.src_uri.removesuffix(".ipynb")
    name = posixpath.basename(stem)
    parts = []
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = "".join(output.get("text", data.get("text/plain", "")))
            if "image/png" in data:
                picture = f"{stem}-{number}.png"
                content = base64.b64decode(data["image/png"])
                yield File.generated(config, picture, content=content)
                alternative = data.get("text/plain", "picture")
                alternative = "".join(cell["metadata"].get("alt", alternative))
                parts.append(f"![{alternative}]({posixpath.basename(picture)})")
            elif text.strip():
                parts.append(f"```text\n{text.rstrip()}\n```")
    parts.append(f'<a href="{name}.ipynb" download>This page as a notebook</a>')
    yield File.generated(config, f"{stem}.md", content="\n\n".join(parts) + "\n")


Made = Iterator[tuple[str, str]]
"""Names of pages under ``reference/`` and what they say."""


def _index(kind: str, title: str, introduction: str, entries: dict[str, str]) -> tuple[str, str]:
    """The page that leads to all others of a kind."""
    lines = [f"# {title}", introduction, "| | |\n|---|---|"]
    rows = [f"| [`{name}`]({kind}/{name}.md) | {summary} |" for name, summary in entries.items()]
    return kind, "\n\n".join(lines) + "\n" + "\n".join(rows) + "\n"


def _datasets() -> Made:
    """A page for every data set, from what the package knows of it."""
    from revar.commands.listing import list_names

    found = list_names("datasets")
    introduction = (
        "Made from what `revar list datasets --json` says. How to lay data out, and what was "
        "decided where it can be read in several ways, is on the page [data sets](../datasets.md)."
    )
    summaries = {row["name"]: f"{row['summary']}" for row in found}
    yield _index("datasets", "Data sets, one by one", introduction, summaries)
    for row in found:
        lines = [f"# {row['name']}", "", f"{row['summary']}.", "", "| | |", "|---|---|"]
        lines.append(f"| on the command line | `--data {row['name']}`, `--on {row['name']}` |")
        lines.append(f"| classes | {row['classes']:,} |")
        for place, layout in row["layout"].items():
            lines.append(f"| in `$REVAR_DATA` | `{place}`: {html.escape(layout)} |")
        paper = ", ".join(f"{part} {size:,}" for part, size in row["paper"].items())
        facts = {
            "sizes in the ReVaR paper": paper, "where to get it": row["obtain"],
            "licence": row["licence"], "cite": row["citation"],
        }  # fmt: skip
        lines += [f"| {key} | {value} |" for key, value in facts.items() if value]
        yield f"datasets/{row['name']}", "\n".join(lines) + "\n"


def _tables() -> Made:
    """A page for every table of the paper: what it asks, and what we found if it was run."""
    from revar.published import parts as published_parts
    from revar.tables.catalogue import TABLES
    from revar.tables.places import scale_of

    introduction = (
        "What each name of `revar list tables` asks, and its shape at the scale `small`. How to "
        "run them is on the page [the paper's tables](../tables.md); `controlled` has "
        "[a page of its own](../controlled-study.md)."
    )
    summaries = {table.name: table.summary for table in TABLES}
    yield _index("tables", "Tables, one by one", introduction, summaries)
    scale = scale_of("small")
    for table in TABLES:
        grids = table.grids(scale)
        lines = [f"# {table.name}", "", f"{table.summary}.", ""]
        lines += [f"In the paper: {one.caption}" for one in published_parts(table.name)[:1]]
        lines += ["", f"    revar paper {table.name} --scale small", ""]
        shapes: dict[tuple[str, str], list[str]] = {}
        for grid in grids:
            rows = ", ".join(f"`{row}`" for row in grid.rows)
            shapes.setdefault((rows, _columns(grid.columns)), []).append(grid.metric)
        lines += ["| figures | rows | columns |", "|---|---|---|"]
        for (rows, columns), metrics in shapes.items():
            lines.append(f"| {', '.join(metrics)} | {rows} | {columns} |")
        files = sorted((ROOT / "results" / table.name).glob("*.md"))
        if files:
            lines += ["", "## What we found", "", "Read in [results](../../results.md).", ""]
        lines += [file.read_text(encoding="utf-8") for file in files]
        yield f"tables/{table.name}", "\n".join(lines) + "\n"


def _metrics() -> Made:
    """A page for every section of `metric-by-metric.md`, with the example it speaks of."""
    text = (ROOT / "docs" / "metric-by-metric.md").read_text(encoding="utf-8")
    example = text[text.index("Four inputs") : text.index("## ")].strip()
    sections = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        sections[name.strip()] = re.split(r"^## ", body, flags=re.MULTILINE)[0].strip()
    introduction = "The sections of [metrics, one by one](../metric-by-metric.md), a page each."
    first = {name: _sentence(body) for name, body in sections.items()}
    yield _index("metrics", "Metrics, a page each", introduction, first)
    for name, body in sections.items():
        whole = f"{body}\n\nThe example:\n\n{example}\n"
        moved = _LINK.sub(lambda found: "](../../" + found.group()[2:], whole)
        moved = moved.replace("](#", "](../../metric-by-metric.md#")
        yield f"metrics/{name}", f"# {name}\n\n{moved}"


def _sentence(text: str) -> str:
    """The first one, without its links."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    return re.split(r"(?<=\.) ", plain)[0]


def _columns(names: tuple[str, ...]) -> str:
    """Names of columns, those of one place at several coverages together."""
    coverages: dict[str, list[str]] = {}
    for name in names:
        place, _, coverage = name.partition("@")
        coverages.setdefault(place, []).extend([coverage] if coverage else [])
    said = [
        f"`{place}` at coverage {', '.join(several)}" if several else f"`{place}`"
        for place, several in coverages.items()
    ]
    return "; ".join(said) or "none: nothing stands in for them"
