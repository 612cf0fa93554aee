"""Where the paper's U-Score might work: its text to the letter, one change at a time.

    python benchmarks/uscore_regimes.py OUT.jsonl --device cuda --workers 14 --commit abc1234
    python benchmarks/uscore_regimes.py OUT.jsonl --plan
    python benchmarks/uscore_regimes.py OUT.jsonl --table results/uscore

Every finished run is one line of JSON with its recipe and figures, written when it ends; a run that
failed leaves a line with its reason and is tried again by the next call. ``--table`` makes
``regimes.csv`` and ``regimes.png`` of it and prints Markdown. ``--tiny`` tries everything on a few
images and small nets: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.devices import choose
from revar.errors import InputError, UndefinedMetricWarning, unknown
from revar.fitting import fit_prepared
from revar.functional import keep_statistics
from revar.methods.base import MakeClassifier
from revar.methods.erm import ERM
from revar.methods.revar import ReVaR
from revar.metrics import curve_figures, uscore_entropy_correlation
from revar.model import Model
from revar.nets.base import Classifier
from revar.nets.finetuning import head_of, input_statistics
from revar.nets.pretrained import load_pretrained
from revar.nets.scorer import NetworkScorer, Scorer
from revar.preparation import Prepared, prepare
from revar.progress import Silent
from revar.recipe import Start
from revar.scores import available, correct, uncertainty
from revar.tables.places import LITE0
from revar.tables.sources import source_of
from revar.types import Clock
from side_by_side import DIED, in_one_line, let_go, run_all
from uscore_regimes_list import (
    REGIMES,
    Job,
    Regime,
    asked,
    cell_of,
    jobs_of,
    missing_of,
    read,
)  # fmt: skip
from uscore_regimes_table import FIGURES, figure, lines_of, markdown, write_csv
from uscore_run import start_worker
from where import commit, processor, told

SCORES = ("uscore", "softmax", "dropout_entropy")
_SIDE = 96
"""Pixels to which images are enlarged for a g that was trained on large ones."""
_SECONDS = 1.4
"""Of a GPU that fourteen runs share, for one like the base; `_BEFORE` until the first begins."""
_BEFORE = 20.0


class Enlarged(Classifier):
    """A net that reads larger images with statistics of its own."""

    scale: Tensor
    shift: Tensor

    def __init__(self, net: Classifier, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.net, self.n_features = net, net.n_features
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward_features(self, x: Tensor) -> Tensor:
        """[n, 3, h, w] normalised by our statistics."""
        x = x * self.scale + self.shift
        if min(x.shape[-2:]) < _SIDE:
            x = F.interpolate(x, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False)
        return self.net.forward_features(x)

    def forward_head(self, features: Tensor) -> Tensor:
        """As the net does."""
        return self.net.forward_head(features)


def _from_lite0(make: MakeClassifier, data: Prepared, *, frozen: bool) -> Scorer:
    """A g that starts from weights learned on ImageNet; frozen but for its last layer."""
    net = make(1, "tf_efficientnet_lite0")
    file = Start(pretrained=LITE0).file
    assert file is not None
    missing = load_pretrained(net, file)
    # timm would start it with weights up to 1, and g near 0 or 1 before it has learned anything.
    last = head_of(net)
    assert isinstance(last, nn.Linear)
    last.reset_parameters()
    if frozen:
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(name in missing)
        keep_statistics(net)
    found = input_statistics(net, file, data.splits["train"].x[:256])
    # A pretrained f has its inputs normalised as this net wants them, the same weights as it is.
    own = found if data.recipe.start.pretrained else dict(data.normalise.named_buffers())
    theirs, ours = ({name: value.cpu() for name, value in one.items()} for one in (found, own))
    scale = ours["deviation"] / theirs["deviation"]
    shift = (ours["mean"] - theirs["mean"]) / theirs["deviation"]
    return NetworkScorer(Enlarged(net, scale, shift))


def _from_task(make: MakeClassifier, backbone: str | None, trunk: Mapping[str, Tensor]) -> Scorer:
    """A g with the trunk of a trained classifier and a new last layer."""
    net = make(1, backbone)
    own = net.state_dict()
    fitting = {k: v for k, v in trunk.items() if k in own and v.shape == own[k].shape}
    left = {name for name in own if name not in fitting}
    if not left or any(not name.startswith("head.") for name in left):
        raise InputError(f"the trained trunk does not fit g: it lacks {sorted(left)[:3]}")
    net.load_state_dict(fitting, strict=False)
    return NetworkScorer(net)


def plain_weights(data: Prepared, device: torch.device) -> dict[str, Tensor]:
    """Of a classifier that was trained on the same data for as long, by plain training."""
    # Nothing but its weights is wanted.
    plain = replace(data, recipe=replace(data.recipe, method=ERM()), tests={})
    classifier = fit_prepared(plain, device=device, observer=Silent()).networks.classifier
    return {name: value.cpu() for name, value in classifier.state_dict().items()}


def started(job: Job, data: Prepared, device: torch.device) -> tuple[Prepared, list[Tensor]]:
    """The data with a method whose g starts as asked, and g's first weights once it is built."""
    method = data.recipe.method
    first: list[Tensor] = []
    if not isinstance(method, ReVaR):
        return data, first
    start = job.regime.start
    trunk = plain_weights(data, device) if start == "task" else {}

    class Started(ReVaR):
        def build_scorer(self, classifier: Classifier, make: MakeClassifier) -> Scorer:
            if start == "new":
                scorer = super().build_scorer(classifier, make)
            elif start == "task":
                scorer = _from_task(make, self.scorer_backbone, trunk)
            else:
                scorer = _from_lite0(make, data, frozen=start == "lite0-features")
            first.extend(_learned(scorer))
            return scorer

    made = Started(**{name: getattr(method, name) for name in method.__dataclass_fields__})
    return replace(data, recipe=replace(data.recipe, method=made)), first


def _learned(scorer: nn.Module) -> list[Tensor]:
    return [p.detach().cpu().clone() for p in scorer.parameters() if p.requires_grad]


def train(job: Job, device: torch.device) -> list[dict[str, Any]]:
    """Rows of a run: one for each test set and score."""
    began = time.perf_counter()
    cell = cell_of(job)
    recipe = cell.recipe()
    data, first = started(job, prepare(recipe, source_of(cell, recipe), device), device)
    model = fit_prepared(data, device=device, observer=Silent())
    shared = {
        "group": job.regime.group, "regime": job.regime.name, "method": cell.method,
        "seed": job.seed, "updates": _updates(data), "moved": _moved(model, first),
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip
    return [{**shared, **row} for name in data.tests for row in _rows(model, name)]


def _updates(data: Prepared) -> int:
    """How often g is updated."""
    budget, method = data.recipe.budget, data.recipe.method
    if not isinstance(method, ReVaR):
        return 0
    assert budget.batch_size is not None
    each = -(-len(data.splits["train"].x) // budget.batch_size)
    total = each * budget.epochs
    return sum(
        method.outer_due(Clock(step=step, total=total, steps_per_epoch=each, lr=0.0))
        for step in range(total)
    )


def _moved(model: Model, first: list[Tensor]) -> float | None:
    """How far g is from where it started, as a share of the length of its weights."""
    if model.networks.scorer is None:
        return None
    pairs = list(zip(_learned(model.networks.scorer), first, strict=True))
    way = math.sqrt(sum(float((now - then).square().sum()) for now, then in pairs))
    return way / math.sqrt(sum(float(then.square().sum()) for _, then in pairs))


def _rows(model: Model, name: str) -> list[dict[str, Any]]:
    found, fitted = model.predictions[name], model.fitted
    right = correct(found, "softmax", fitted)
    rows = []
    for score in SCORES:
        if score not in available(found, fitted):
            continue
        values = uncertainty(found, score, fitted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            figures = curve_figures(values, right)
            rank = uscore_entropy_correlation(values, found.probabilities, kind="spearman")
        row: dict[str, Any] = {name: figures[name] for name in FIGURES}
        row |= {"accuracy": float(right.mean()), "entropy_spearman": rank}
        row["spread"] = float(found.columns["uscore"].std()) if score == "uscore" else None
        plain = {key: None if value is None else _number(value) for key, value in row.items()}
        rows.append({"set": name, "score": score, **plain})
    return rows


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of a job.

    Attributes:
        job: it.
        reason: why it failed, in one line; ``None`` where it is finished.
        rows: of it.
        device: where it ran.
        seconds: it took.
    """

    job: Job
    reason: str | None = None
    rows: tuple[dict[str, Any], ...] = ()
    device: str = ""
    seconds: float = 0.0


def one_run(job: Job, device: str) -> Told:
    """Train and score; what goes wrong is told in one line."""
    began, where, rows, reason = time.perf_counter(), "", [], None
    try:
        chosen = choose(device)
        where = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else processor()
        rows = train(job, chosen)
    except Exception as error:
        reason = in_one_line(error)
    finally:
        let_go()
    seconds = time.perf_counter() - began
    return Told(job=job, reason=reason, rows=tuple(rows), device=where, seconds=seconds)


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing, say what would run, or make tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a file of JSON lines")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--regimes", nargs="+", metavar="NAME")
    parser.add_argument("--groups", nargs="+", metavar="GROUP")
    parser.add_argument("--seeds", type=int, help="of every regime")
    parser.add_argument("--tiny", action="store_true", help="a few images and small nets")
    parser.add_argument("--commit", help="of the code, on a machine without git")
    parser.add_argument("--plan", action="store_true", help="say what would run, and how long")
    parser.add_argument("--table", type=Path, metavar="DIR", help="make regimes.csv and .png")
    options = parser.parse_args(arguments)
    command = told(["uscore_regimes.py", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        if options.table is not None:
            return _tables(options.out, options.table)
        return _runs(options, " ".join(command))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def chosen(names: Sequence[str] | None, groups: Sequence[str] | None) -> list[Regime]:
    """Regimes by name or group; all of them where neither is given."""
    for name in names or ():
        if name not in REGIMES:
            raise unknown("regime", name, REGIMES)
    known = dict.fromkeys(regime.group for regime in REGIMES.values())
    for group in groups or ():
        if group not in known:
            raise unknown("group", group, known)
    if names is None and groups is None:
        return list(REGIMES.values())
    return [r for r in REGIMES.values() if r.name in (names or ()) or r.group in (groups or ())]


def died(job: Job) -> Told:
    """What is told of a run whose workers died."""
    return Told(job=job, reason=DIED)


def _runs(options: argparse.Namespace, command: str) -> int:
    regimes = chosen(options.regimes, options.groups)
    jobs = jobs_of(regimes, tiny=options.tiny, seeds=options.seeds)
    missing = missing_of(jobs, options.out)
    seconds = _BEFORE + _SECONDS * sum(job.regime.cost for job in missing)
    print(f"{len(missing)} of {len(jobs)} runs are missing, about {seconds:.0f} s of an H200")
    if options.plan:
        for job in missing:
            print(f"{_SECONDS * job.regime.cost:6.1f} s  {job}")
        return 0
    made = {
        "command": command, "commit": commit() if options.commit is None else options.commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "torch": torch.__version__,
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    began, failed, count = time.perf_counter(), 0, 0

    def tell(done: Told) -> None:
        nonlocal failed, count
        count += 1
        failed += done.reason is not None
        _keep(done, made, options.out)
        gone = time.perf_counter() - began
        said = "" if done.reason is None else f", FAILED {done.reason}"
        where = f"{count}/{len(missing)} {done.job}"
        print(f"{gone:7.1f} s  {where}: {done.seconds:.0f} s{said}", flush=True)

    work = functools.partial(one_run, device=options.device)
    if options.workers > 1:
        run_all(missing, work, options.workers, tell, died, start_worker)
    else:
        start_worker()
        for job in missing:
            tell(work(job))
    print(f"{len(missing) - failed} finished, {failed} failed")
    return 1 if failed else 0


def _keep(done: Told, made: Mapping[str, str], out: Path) -> None:
    """Write one line, whole: nobody else writes here."""
    job = done.job
    run = {
        "regime": job.regime.name, "seed": job.seed, "tiny": job.tiny, "reason": done.reason,
        "seconds": round(done.seconds, 2), "asked": asked(job),
        "made": {**made, "device": done.device}, "rows": done.rows,
    }  # fmt: skip
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")


def _tables(out: Path, folder: Path) -> int:
    found = read(out)
    order = list(REGIMES)
    keys = sorted(found, key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k))
    finished = [found[key] for key in keys if found[key]["reason"] is None]
    rows = [{**run["made"], **row} for run in finished for row in run["rows"]]
    if not rows:
        raise InputError(f'"{out}" holds no finished run')
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(rows, folder / "regimes.csv")
    lines = lines_of(rows)
    figure(lines, folder / "regimes.png")
    print(markdown(lines))
    for key in keys:
        if found[key]["reason"] is not None:
            print(f"\n{key[0]}, seed {key[1]}, failed: {found[key]['reason']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
