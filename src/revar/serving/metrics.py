"""What Prometheus reads, and the look for drift."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from revar import __version__
from revar.selection import CoverageDrift, Threshold, coverage_drift
from revar.serving.deciding import Decider, Decisions

WINDOW = 500
CONFIDENCE = 0.999
"""Of each look: without a drift, one in a thousand looks raises the flag."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class DriftWatch:
    """Whether live inputs are accepted at the rate of the calibration data.

    Answered inputs form blocks of a fixed size, and each block is looked at once, when it is
    full: `coverage_drift` bounds the chance of a false alarm for one look at one batch, and says
    nothing of a window that slides.

    Attributes:
        last: what the last full block said; none before the first, or without a threshold.
        looks: blocks that were looked at.
        alarms: those that had drifted.
    """

    def __init__(
        self, threshold: Threshold | None, *, window: int = WINDOW, confidence: float = CONFIDENCE
    ) -> None:
        self._threshold = None if threshold is None or threshold.threshold is None else threshold
        self._window, self._confidence = window, confidence
        self._block: list[float] = []
        self.last: CoverageDrift | None = None
        self.looks = self.alarms = 0
        if self._threshold is not None:
            # What it needs is loaded now, not while a client waits.
            coverage_drift(self._threshold, [0.0], confidence=confidence)

    def add(self, uncertainty: NDArray[np.float64]) -> None:
        """Further inputs, in the order of their answers."""
        if self._threshold is None:
            return
        self._block.extend(uncertainty.tolist())
        while len(self._block) >= self._window:
            block, self._block = self._block[: self._window], self._block[self._window :]
            self.last = coverage_drift(self._threshold, block, confidence=self._confidence)
            self.looks += 1
            self.alarms += self.last.drifted


class Metrics:
    """All figures of one server.

    Attributes:
        drift: the watch behind the drift flag.
    """

    def __init__(self, decider: Decider, *, window: int = WINDOW) -> None:
        self.registry = CollectorRegistry()
        self.drift = DriftWatch(decider.model.threshold, window=window)
        self._recent: deque[bool] = deque(maxlen=window)
        registry = self.registry
        self._requests = Counter(
            "revar_requests", "Requests by path and status.", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "revar_request_seconds", "From the first byte of a request to its answer.", ("path",),
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._answers = Counter(
            "revar_answers", "Examples answered, by decision.", ("decision",), registry=registry
        )
        for decision in ("label", "abstain"):
            self._answers.labels(decision)
        self._batch = Histogram(
            "revar_batch_examples", "Examples of one forward pass.", buckets=_SIZES,
            registry=registry,
        )  # fmt: skip
        self._pass = Histogram(
            "revar_pass_seconds", "Duration of one forward pass.", buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._queue = Gauge("revar_queue_examples", "Examples that wait.", registry=registry)
        gauges = {
            "acceptance_rate": f"Share accepted of the last {window} examples; NaN before any.",
            "coverage_drift": (
                f"1 if the last {window} examples looked at are accepted at another rate than "
                "calibration data; NaN before the first look or without a threshold."
            ),
            "coverage_drift_p_value": "Of that look.",
        }
        self._gauges = {
            name: Gauge(f"revar_{name}", text, registry=registry) for name, text in gauges.items()
        }
        for gauge in self._gauges.values():
            gauge.set(math.nan)
        self._looks = Counter("revar_drift_looks", "Looks for drift.", registry=registry)
        self._alarms = Counter("revar_drift_alarms", "Looks that found one.", registry=registry)
        about = Gauge(
            "revar_model_info", "Always 1.", ("model", "score", "version"), registry=registry
        )
        about.labels(decider.identity, decider.score, __version__).set(1)

    def queue(self, length: Callable[[], int]) -> None:
        """Where the length of the queue is to be read."""
        self._queue.set_function(length)

    def request(self, path: str, status: int, seconds: float) -> None:
        """One request was answered or refused."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def forward(self, examples: int, seconds: float) -> None:
        """One forward pass was made."""
        self._batch.observe(examples)
        self._pass.observe(seconds)

    def decided(self, decisions: Decisions) -> None:
        """Decisions were made; in the thread that makes them."""
        known = decisions.defined
        accepted = decisions.accepted[known]
        if not len(accepted):
            return
        self._answers.labels("label").inc(int(accepted.sum()))
        self._answers.labels("abstain").inc(int((~accepted).sum()))
        self._recent.extend(accepted.tolist())
        self._gauges["acceptance_rate"].set(sum(self._recent) / len(self._recent))
        looks, alarms = self.drift.looks, self.drift.alarms
        self.drift.add(decisions.uncertainty[known])
        if self.drift.last is not None and self.drift.looks > looks:
            self._looks.inc(self.drift.looks - looks)
            self._alarms.inc(self.drift.alarms - alarms)
            self._gauges["coverage_drift"].set(float(self.drift.last.drifted))
            self._gauges["coverage_drift_p_value"].set(self.drift.last.p_value)

    def text(self) -> bytes:
        """In the text format of Prometheus."""
        return generate_latest(self.registry)
