"""Pages that are followed: their files are written, their commands run, their outputs compared.

A page's ``python title="NAME"`` block is a file, a ``bash`` block is run, and a ``text`` block
after it is what was printed; a line of three dots stands for lines left out. To write the
outputs of a page anew, from the root of the project:

    PYTHONPATH=tests python -m support.pages docs/tutorials/images.md
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
DOTS = "..."


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its language, the file it is, and its text."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks in order."""
    return [Block(*found) for found in _BLOCK.findall(page)]


def run(commands: str, folder: Path, *, timeout: float = 300) -> str:
    """What a block of commands prints, in a folder, with this Python's programs first.

    Raises:
        RuntimeError: a command failed.
    """
    programs = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder, env=environment, timeout=timeout, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{commands}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def follow(page: str, folder: Path) -> list[tuple[Block, str]]:
    """Do what a page says in a folder; the outputs it shows, each with what was printed."""
    shown = []
    printed = ""
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            printed = run(block.text, folder)
        elif block.language == "text":
            shown.append((block, printed))
    return shown


def alike(shown: str, printed: str) -> bool:
    """Whether two lines have the same words, and numbers that are near each other.

    Training in another order of float operations moves the figures of a small test set a little.

    >>> alike("accuracy 90.33%, n 300", "accuracy 91.0%, n 300")
    True
    >>> alike("accuracy 90.33%", "accuracy 70.1%")
    False
    >>> alike("accuracy 0.90", "risk 0.90")
    False
    """
    words = [" ".join(_NUMBER.sub("#", line).split()) for line in (shown, printed)]
    if words[0] != words[1]:
        return False
    numbers = [
        [float(found.replace(",", "")) for found in _NUMBER.findall(line)]
        for line in (shown, printed)
    ]
    return all(
        abs(a - b) <= (0.2 if abs(a) < 1 else 1.5 + 0.1 * abs(a))
        for a, b in zip(*numbers, strict=True)
    )


def missing(shown: str, printed: str) -> list[str]:
    """Lines of a page that have no line like them in what was printed."""
    candidates = printed.splitlines()
    return [
        line
        for line in shown.splitlines()
        if line.strip() and line.strip() != DOTS and not any(alike(line, c) for c in candidates)
    ]


def main(paths: list[str]) -> None:
    """Write the outputs of pages anew; one with dots is left for its author to shorten."""
    for path in map(Path, paths):
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for block, printed in follow(page, Path(folder)):
                lines = [line.rstrip() for line in printed.splitlines()]
                fresh = "\n".join(lines).strip("\n") + "\n"
                if DOTS in block.text.splitlines():
                    print(f"--- shorten by hand in {path}:\n{fresh}")
                else:
                    page = page.replace(f"```text\n{block.text}```", f"```text\n{fresh}```", 1)
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
