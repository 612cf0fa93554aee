"""The README does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from revar.cli import run

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_lines_run_as_pasted(tmp_path: Path) -> None:
    (code,) = blocks("python")
    assert 8 <= len([line for line in code.splitlines() if line.strip()]) <= 12
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accuracy, coverage = map(float, done.stdout.split())
    assert accuracy > 0.97
    assert 0.8 < coverage < 1.0


def test_its_two_commands_are_targets() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_every_command_it_shows_exists(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.findall(r"^revar (\w+)(.*)$", "\n".join(blocks("bash")), flags=re.MULTILINE)
    assert {verb for verb, _ in shown} == {
        "demo", "train", "evaluate", "select", "predict", "list", "report", "serve", "export",
    }  # fmt: skip
    for verb, rest in shown:
        assert run([verb, "--help"]) == 0
        page = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in page, f"{verb} {option}"


def test_its_links_and_pictures_are_there() -> None:
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (root / target).exists(), target
