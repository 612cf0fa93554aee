"""Small runs to serve, and servers in processes of their own."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from revar import SelectiveClassifier
from revar.commands.predict import predict
from revar.errors import DataWarning
from support.problems import blobs
from support.threads import one_thread

CATEGORIES = ("left", "right", "both")


@dataclass(frozen=True)
class Served:
    """A run, and inputs that it has not seen."""

    run: Path
    unseen: Any


def save_rows(folder: Path, *, threshold: str = "coverage") -> Served:
    """A perceptron on rows of numbers; its threshold from a coverage, hopeless, or none."""
    (x, y), (x_cal, y_cal), (unseen, _) = blobs(240), blobs(120, seed=1), blobs(300, seed=2)
    with one_thread():
        clf = SelectiveClassifier("erm", epochs=3, batch_size=32, random_state=0).fit(x, y)
    if threshold == "coverage":
        clf.set_threshold(x_cal, y_cal, coverage=0.7)
    if threshold == "hopeless":
        with pytest.warns(DataWarning, match="everything is rejected"):
            clf.set_threshold(x_cal, y_cal, max_risk=1e-6)
    clf.save(folder)
    return Served(folder, unseen)


def pictures(n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """[n, 12, 12, 3] noise around one of three colours, and which one."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    x = rng.normal(90, 45, size=(n, 12, 12, 3)) + 70 * np.eye(3)[y][:, None, None]
    return np.clip(x, 0, 255).astype(np.uint8), y


def save_images(folder: Path) -> Served:
    """A small convolutional net on colours."""
    (x, y), (x_cal, y_cal) = pictures(150, 0), pictures(90, 1)
    labels = np.array(["red", "green", "blue"])
    with one_thread():
        clf = SelectiveClassifier(
            "erm", "convnet", epochs=1, batch_size=32, random_state=0, test_passes=3
        ).fit(x, labels[y])
    clf.set_threshold(x_cal, labels[y_cal], coverage=0.6)
    clf.save(folder)
    return Served(folder, pictures(12, 2)[0])


def save_frame(folder: Path) -> Served:
    """A table with numbers, gaps and categories."""

    def table(n: int, seed: int) -> tuple[pd.DataFrame, NDArray[np.str_]]:
        rng = np.random.default_rng(seed)
        age, side = rng.normal(60, 9, n).round(3), rng.integers(0, 3, n)
        label = np.where(age + 6 * side + rng.normal(0, 3, n) > 66, "ill", "well")
        age[::7] = np.nan
        eyes = np.array(CATEGORIES)[side].astype(object)
        eyes[::11] = None
        count = rng.integers(0, 10_000, n)
        return pd.DataFrame({"age": age, "eyes": eyes, "count": count}), label

    with one_thread():
        clf = SelectiveClassifier("erm", epochs=3, batch_size=32, random_state=0)
        clf.fit(*table(240, 0))
    clf.set_threshold(*table(120, 1), coverage=0.7)
    clf.save(folder)
    return Served(folder, table(40, 2)[0])


@dataclass
class Running:
    """A server in a process of its own.

    Attributes:
        process: `revar serve`.
        url: where it answers.
        client: for one thread.
    """

    process: subprocess.Popen[str]
    url: str
    client: httpx.Client

    def stop(self) -> str:
        """SIGTERM, the end, and what it wrote to standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        return said


@contextmanager
def serving(run: Path, *options: str, **environment: str) -> Iterator[Running]:
    """`revar serve RUN --port 0`, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "revar", "serve", str(run), "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at (http://\S+)$", line.strip())
        assert found is not None, f"{line}{process.communicate()[1]}"
        with httpx.Client(base_url=found[1], timeout=60) as client:
            yield Running(process, found[1], client)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def expected(run: Path, inputs: Path) -> list[dict[str, str]]:
    """What the command says."""
    text = StringIO()
    predict(run, str(inputs)).write(text)
    return list(csv.DictReader(StringIO(text.getvalue())))


def check_answers(answers: list[dict[str, Any]], wanted: list[dict[str, str]]) -> None:
    """The same labels, decisions and figures, to the digits that the command prints."""
    assert len(answers) == len(wanted)
    for answer, row in zip(answers, wanted, strict=True):
        likely = max(answer["probabilities"], key=answer["probabilities"].get)
        assert likely == row["label"]
        assert answer["accepted"] == (row["accepted"] == "true")
        assert answer["label"] == (row["label"] if answer["accepted"] else "abstain")
        assert answer["uncertainty"] == pytest.approx(float(row["uncertainty"]), rel=1e-5, abs=1e-6)
        for label, p in answer["probabilities"].items():
            assert p == pytest.approx(float(row[f"probability_{label}"]), rel=1e-4, abs=1e-7)


def figures(client: httpx.Client) -> dict[str, float]:
    """Every sample of /metrics, by its name and labels."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return figures_of(answer.text)


def figures_of(text: str) -> dict[str, float]:
    """Every sample of a text of Prometheus, by its name and labels."""
    return {
        sample.name + "".join(f" {k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def refused(answer: httpx.Response, status: int, words: str) -> None:
    """One sentence with these words, and no trace of our code."""
    assert answer.status_code == status, answer.text
    said = answer.json()
    assert list(said) == ["error"]
    assert words in said["error"]
    assert "\n" not in said["error"]
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text
