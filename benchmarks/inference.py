"""Labels, U-Score and decision for a stream of images against a plain forward pass, one table.

The plain forward is what one writes without this package: the same classifier, normalised inputs,
evaluation mode, no gradients, the largest logit as label. Ours is `predict_or_abstain` on the same
raw arrays, with a threshold on one score at a time; "every score" is `Model.predict`. Images come
in calls of several sizes, as from a folder, a queue or a camera. All rows take turns; a ratio is
the median over the turns of ours to the plain forward of the same turn, so that what else the
machine does meets both. On a CPU it is one of CPU time, which other processes disturb less than
the clock.

    python benchmarks/inference.py --json results/inference/cpu.json
    python benchmarks/inference.py --device cuda --backbone resnet50 --size 224 --calls 64 512
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import where
from revar import ReVaR, SelectiveClassifier
from revar.scores.learned import Fitted, Fusion

ROOT = Path(__file__).parents[1]
PLAIN = "plain forward"
GOAL = 1.1
"""Most that labels, U-Score and decision may cost, for a score that reads no dropout passes."""
_TURN = 8
"""Images of a turn, unless one call has more."""
SCORERS = ("evidence", "features", "network")
Images = NDArray[np.uint8]
Call = Callable[[Images], object]


def pictures(n: int, size: int, seed: int) -> tuple[Images, NDArray[np.int64]]:
    """[n, size, size, 3] noise around one of ten greys, and which one."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 10
    x = rng.normal(60 + 14 * y[:, None, None, None], 40, size=(n, size, size, 3))
    return np.clip(x, 0, 255).astype(np.uint8), y


def train(scorer: str, chosen: argparse.Namespace) -> SelectiveClassifier:
    """A short run: what it costs to use does not depend on what it has learned."""
    method = ReVaR(scorer=scorer)  # type: ignore[arg-type]
    clf = SelectiveClassifier(
        method, chosen.backbone, epochs=1, batch_size=16, device=chosen.device, random_state=0
    )
    clf.fit(*pictures(100, chosen.size, 0))
    return clf


def plain(clf: SelectiveClassifier, batch: int = 512) -> Call:
    """[n, h, w, 3] images to [n] labels by the classifier alone."""
    networks, device, classes = clf.model_.networks, clf.model_.device, clf.classes_
    networks.eval()

    @torch.no_grad()
    def call(images: Images) -> object:
        x = torch.from_numpy(images).movedim(-1, 1).contiguous()
        labels = [
            networks.classifier(networks.normalise(x[start : start + batch].to(device))).argmax(1)
            for start in range(0, len(x), batch)
        ]
        return classes[torch.cat(labels).cpu().numpy()]

    return call


def set_up(clf: SelectiveClassifier, score: str, fitted: Fitted) -> Callable[[], None]:
    """A function that gives the classifier this score, and a threshold that half of images pass."""
    model = clf.model_
    model.fitted = fitted
    predictions = model.predict(pictures(64, model.task.input_shape[1], 1)[0])
    found = model.threshold_from(
        predictions, coverage=0.5, max_risk=None, confidence=0.95, score=score
    )

    def prepare() -> None:
        model.fitted, model.threshold = fitted, found

    return prepare


def ours(clf: SelectiveClassifier, score: str, fitted: Fitted) -> Call:
    """Labels, the named score and decisions."""
    prepare = set_up(clf, score, fitted)

    def call(images: Images) -> object:
        prepare()
        return clf.predict_or_abstain(images)

    return call


def fused(clf: SelectiveClassifier, *weights: float) -> Fitted:
    """A fused score of softmax, dropout variance and U-Score; so short a run fits none."""
    fusion = Fusion(
        features=("softmax", "dropout_variance", "uscore"), coefficients=weights, intercept=0.0,
        fitted_on=100, errors=20,
    )  # fmt: skip
    return replace(clf.model_.fitted, fusion=fusion)


def exported(clf: SelectiveClassifier, path: Path) -> Call:
    """Labels, U-Score and decisions by ONNX Runtime, with as many threads."""
    import onnxruntime

    set_up(clf, "uscore", clf.model_.fitted)()
    clf.export(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    classes = clf.classes_

    def call(images: Images) -> object:
        x = np.ascontiguousarray(np.moveaxis(images, -1, 1))
        predicted, *rest = session.run(["predicted", "uncertainty", "accepted"], {"x": x})
        return classes[predicted], *rest

    return call


def rows(scorer: str, chosen: argparse.Namespace, folder: Path) -> dict[str, Call]:
    """What is timed, the plain forward first."""
    clf = train(scorer, chosen)
    fitted = clf.model_.fitted
    calls = {
        PLAIN: plain(clf),
        "softmax": ours(clf, "softmax", fitted),
        "uscore": ours(clf, "uscore", fitted),
        "fused": ours(clf, "fused", fused(clf, 1.0, 0.0, 0.5)),
        f"fused, {clf.test_passes} passes": ours(clf, "fused", fused(clf, 1.0, 3.0, 0.5)),
        "every score": clf.model_.predict,
    }
    if chosen.device == "cpu":
        calls["onnxruntime, uscore"] = exported(clf, folder / f"{scorer}.onnx")
    return calls


def measure(
    calls: dict[str, Call], images: Images, size: int, repeats: int, clock: Callable[[], float]
) -> dict[str, Any]:
    """Milliseconds an image and ratios for all images in calls of one size, in turns."""
    blocks = [images[start : start + size] for start in range(0, len(images), size)]
    # Short turns, so that both meet the same moment; not of one small call, which would find the
    # caches as its neighbour left them.
    length = max(1, _TURN // size)
    turns = [blocks[start : start + length] for start in range(0, len(blocks), length)]
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    for k in range(repeats * len(turns)):
        # Nobody always comes after the same neighbour.
        first = k % len(names)
        turn = turns[k % len(turns)]
        for name in names[first:] + names[:first]:
            calls[name](turn[0])
            began = clock()
            for block in turn:
                calls[name](block)
            times[name].append((clock() - began) / sum(map(len, turn)))
    return {
        name: {
            "ms_per_image": 1000 * median(times[name]),
            "ratio": median(t / p for t, p in zip(times[name], times[PLAIN], strict=True)),
        }
        for name in names
    }


def setting(chosen: argparse.Namespace) -> dict[str, Any]:
    """What was run, where and when."""
    return {
        **where.here(chosen.device),
        "clock": "CPU time" if chosen.device == "cpu" else "wall time",
        "backbone": chosen.backbone,
        "size": chosen.size,
        "images": chosen.images,
        "repeats": chosen.repeats,
    }


def main() -> None:
    """Train, time, print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backbone", default="resnet20")
    parser.add_argument("--scorers", nargs="+", default=list(SCORERS), choices=SCORERS)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--calls", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    images = pictures(chosen.images, chosen.size, 2)[0]
    found: dict[str, Any] = {"setting": setting(chosen), "goal": GOAL, "scorers": {}}
    clock = time.process_time if chosen.device == "cpu" else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        for scorer in chosen.scorers:
            calls = rows(scorer, chosen, Path(folder))
            found["scorers"][scorer] = {
                size: measure(calls, images, size, chosen.repeats, clock) for size in chosen.calls
            }
    shown = " | ".join(f"{n} a call: ms | ratio" for n in chosen.calls)
    print(f"| scorer | computed | {shown} |")
    print("|---|---|" + "---|---|" * len(chosen.calls))
    for scorer, by_size in found["scorers"].items():
        for name in by_size[chosen.calls[0]]:
            figures = [by_size[n][name] for n in chosen.calls]
            cells = " | ".join(f"{f['ms_per_image']:.3f} | {f['ratio']:.3f}" for f in figures)
            print(f"| {scorer} | {name} | {cells} |")
    where.keep(chosen.json, found)


if __name__ == "__main__":
    main()
