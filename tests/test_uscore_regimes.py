"""The regimes in which the paper's U-Score might work: what is run, what is kept, what is told."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from revar.errors import InputError
from revar.fitting import build_networks
from revar.methods.revar import ReVaR
from revar.nets.base import SplitClassifier
from revar.nets.scorer import NetworkScorer
from revar.preparation import Prepared, prepare
from revar.tables.sources import source_of
from revar.types import Task
from support.scripts import driven, scripts

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The scripts of the study."""
    with scripts("uscore_regimes", "list", "table", runs="uscore_regimes") as found:
        yield found


def generated(study: Any, name: str = "made", **changes: Any) -> Any:
    return study.list.Regime(name=name, group="test", place="generated", seeds=1, **changes)


def job_of(study: Any, regime: Any, seed: int = 0) -> Any:
    return study.list.Job(regime=regime, seed=seed)


def prepared(study: Any, job: Any) -> Prepared:
    cell = study.list.cell_of(job)
    recipe = cell.recipe()
    return prepare(recipe, source_of(cell, recipe))


def test_every_regime_is_another_one_and_can_be_asked_for(study: Any) -> None:
    every = list(study.list._regimes())
    assert len({regime.name for regime in every}) == len(every) == len(study.list.REGIMES)
    for tiny in (False, True):
        jobs = study.list.jobs_of(every, tiny=tiny)
        assert len({str(job) for job in jobs}) == len(jobs)
        for job in jobs:
            assert job.seed < 2
            study.list.cell_of(job).recipe()
    asked = [json.dumps(study.list.asked(job_of(study, regime))) for regime in every]
    assert len(set(asked)) == len(asked)


def test_the_literal_regimes_are_the_papers_text_but_for_one_change(study: Any) -> None:
    paper, literal = ReVaR.paper(), [*study.list._literal(), study.list.REGIMES["base"]]
    for regime in literal:
        cell = study.list.cell_of(job_of(study, regime))
        method = cell.recipe().method
        named = {name: getattr(paper, name) for name, _ in regime.settings if hasattr(paper, name)}
        assert replace(method, **named) == paper
        if regime.place == "cifar":
            assert cell.epochs == 15 * regime.epochs
            assert cell.data.train == (1_000 if "1,000" in regime.name else 5_000)
    asked = {
        regime.name: dict(regime.settings).get("variance_weight")
        for regime in study.list.REGIMES.values()
        if regime.group == "lambda"
    }
    assert {asked[f"moving, lambda {value}"] for value in ("0.01", "0.1", "10", "100")} == {
        "0.01", "0.1", "10", "100",
    }  # fmt: skip


def test_nets_of_full_size_can_be_built(study: Any) -> None:
    seen = set()
    for regime in study.list.REGIMES.values():
        recipe = study.list.cell_of(job_of(study, regime)).recipe()
        scorer = getattr(recipe.method, "scorer_backbone", None)
        key = (recipe.backbone, scorer, recipe.dropout)
        if regime.place != "cifar" or key in seen:
            continue
        seen.add(key)
        task = Task(n_classes=10, input_shape=(3, 32, 32))
        build_networks(recipe, task, torch.zeros(2, 3, 32, 32), None, CPU)
    assert len(seen) >= 4


def test_jobs_begin_with_the_first_seed_and_the_longest(study: Any) -> None:
    jobs = study.list.jobs_of(list(study.list.REGIMES.values()), tiny=False)
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    assert jobs[0].regime.name == "moving, 160 epochs of Fashion-MNIST"
    longest = study.list.cell_of(jobs[0])
    assert (longest.epochs, longest.data.train, longest.backbone) == (160, None, "mlp")
    costs = [job.regime.cost for job in jobs if job.seed == 0]
    assert costs == sorted(costs, reverse=True)
    again = study.list.jobs_of(list(study.list.REGIMES.values()), tiny=False, seeds=3)
    assert len(again) == 3 * len(study.list.REGIMES)


def test_runs_are_kept_whole_skipped_and_told(
    study: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    late = generated(study, "late", settings=(("warmup_epochs", "99"),))
    regimes = {
        "made": generated(study, corrupted=True),
        "plain": generated(study, "plain", method="erm"),
        "late": late,
    }
    monkeypatch.setattr(study.runs, "REGIMES", regimes)
    monkeypatch.setattr(study.runs, "start_worker", lambda: None)
    out, said = tmp_path / "runs.jsonl", tmp_path / "told"

    def main(*arguments: str) -> tuple[int, str]:
        code = study.runs.main([str(out), *arguments])
        read = capsys.readouterr()
        return code, read.out + read.err

    code, text = main("--device", "cpu", "--commit", "abc1234")
    assert (code, "3 of 3 runs are missing" in text) == (1, True), text
    assert "2 finished, 1 failed" in text
    assert "late, seed 0" in text
    assert "would never be updated" in text
    runs = {run["regime"]: run for run in map(json.loads, out.read_text().splitlines())}
    assert runs["made"]["made"].keys() == {"command", "commit", "date", "torch", "device"}
    assert runs["made"]["made"]["commit"] == "abc1234"
    assert str(tmp_path) not in json.dumps(runs)
    assert runs["made"]["asked"]["recipe"]["method"]["interval"] == 15
    assert (runs["late"]["rows"], "never" in runs["late"]["reason"]) == ([], True)

    with out.open("a") as file:
        file.write('{"regime": "plain", "seed": 0, "rea')
    code, text = main("--device", "cpu")
    assert (code, "1 of 3 runs are missing" in text) == (1, True), text
    assert "1 of 1 runs are missing" in main("--plan", "--regimes", "late")[1]

    code, text = main("--table", str(said))
    assert code == 0
    rows = list(csv.DictReader((said / "regimes.csv").read_text().splitlines()))
    assert tuple(rows[0]) == study.table.COLUMNS
    sets = {row["set"] for row in rows if row["regime"] == "made"}
    assert sets == {"test", "shifted", "test+fog-3", "test+contrast-3"}
    assert {row["set"] for row in rows if row["regime"] == "plain"} == {"test", "shifted"}
    assert {row["score"] for row in rows if row["regime"] == "plain"} == {
        "softmax", "dropout_entropy",
    }  # fmt: skip
    for row in rows:
        assert 0 <= float(row["failure_auroc"]) <= 1
        assert 0 < float(row["auarc"]) <= 1
        assert row["device"]
        if row["score"] == "uscore":
            assert float(row["spread"]) > 0
            # 16 steps in each of 4 epochs, the first of 64 / 12 for warming up.
            assert int(row["updates"]) == len([15, 30, 45, 60])
            assert 0 < float(row["moved"]) < 0.01
    assert (said / "regimes.png").stat().st_size > 5_000
    assert "| made | corrupted | 1 | 4 |" in text
    assert "late, seed 0, failed: the U-Score would never be updated" in text


def test_another_setting_under_the_same_name_is_run_again(study: Any, tmp_path: Path) -> None:
    out, job = tmp_path / "runs.jsonl", job_of(study, generated(study))
    done = study.runs.Told(job=job, rows=({"set": "test"},))
    study.runs._keep(done, {"commit": ""}, out)
    assert study.list.missing_of([job], out) == []
    other = job_of(study, generated(study, settings=(("interval", "5"),)))
    assert study.list.missing_of([other], out) == [other]
    assert study.list.missing_of([replace(job, seed=1)], out) != []
    study.runs._keep(replace(done, reason="no"), {"commit": ""}, out)
    assert study.list.missing_of([job], out) == [job]


def test_names_that_are_not_there(study: Any, tmp_path: Path) -> None:
    for regimes, groups, said in (
        (["K=2"], None, 'unknown regime "K=2"'),
        (None, ["lamda"], 'did you mean "lambda"'),
    ):
        with pytest.raises(InputError, match=said):
            study.runs.chosen(regimes, groups)
    assert {r.group for r in study.runs.chosen(None, ["lambda"])} == {"lambda"}
    assert study.runs.main([str(tmp_path / "none.jsonl"), "--table", str(tmp_path)]) == 2


def test_workers_side_by_side(tmp_path: Path) -> None:
    """Spawned, as on a GPU: what travels to a worker and back."""
    driven(
        tmp_path,
        "import sys, uscore_regimes as runs\nfrom uscore_regimes_list import Regime\n"
        "if __name__ == '__main__':\n"
        "    one = Regime(name='one', group='g', place='generated', seeds=1)\n"
        "    runs.REGIMES = {'one': one}\n"
        "    sys.exit(runs.main(['runs.jsonl', '--device', 'cpu', '--workers', '2']))\n",
    )
    run = json.loads((tmp_path / "runs.jsonl").read_text())
    assert run["reason"] is None
    assert len(run["rows"]) == 2 * 3
    assert run["made"]["device"]


def test_g_may_start_from_a_classifier_of_the_task(study: Any) -> None:
    job = job_of(study, generated(study, backbone="convnet", start="task"))
    data = prepared(study, job)
    plain = study.runs.plain_weights(data, CPU)
    started, first = study.runs.started(job, data, CPU)
    assert first == []
    networks = build_networks(
        started.recipe, started.task, torch.zeros(2, 3, 12, 12), None, CPU, pretrained=True
    )
    assert isinstance(networks.scorer, NetworkScorer)
    own = networks.scorer.net.state_dict()
    trunk = {name: value for name, value in plain.items() if not name.startswith("head.")}
    assert len(trunk) > 4
    assert all(torch.equal(own[name], value) for name, value in trunk.items())
    assert not torch.equal(
        networks.classifier.state_dict()[next(iter(trunk))], trunk[next(iter(trunk))]
    )
    assert all(map(torch.equal, first, networks.scorer.parameters()))
    with pytest.raises(InputError, match="does not fit g"):
        study.runs._from_task(lambda *_: networks.classifier, None, {})


def test_pretrained_nets_read_enlarged_images_with_their_own_statistics(study: Any) -> None:
    class Seen(SplitClassifier):
        def forward_features(self, x: Tensor) -> Tensor:
            return x

    ours, theirs = (torch.tensor([100.0, 50.0]), torch.tensor([127.5, 127.5]))
    (mean, deviation), (wanted_mean, wanted) = ours, theirs
    net = study.runs.Enlarged(
        Seen(torch.nn.Identity(), 1, 1, 0.0), deviation / wanted, (mean - wanted_mean) / wanted
    )
    stored = torch.full((2, 3, 32, 32), 200.0)
    read = net.forward_features((stored - mean) / deviation)
    assert read.shape == (2, 3, 96, 96)
    assert read == pytest.approx(torch.full_like(read, (200 - 127.5) / 127.5))
    large = torch.zeros(1, 3, 128, 128)
    assert net.forward_features(large).shape == large.shape


def test_corrupted_sets_are_one_line(study: Any) -> None:
    def row(name: str, seed: int, auroc: float | None) -> dict[str, Any]:
        figures = dict.fromkeys(study.table._AVERAGED, auroc)
        return {
            "regime": "r", "group": "g", "set": name, "score": "softmax", "seed": seed,
            "updates": 0, "moved": None, **figures,
        }  # fmt: skip

    rows = [row("test", 0, 0.9), row("test+fog-3", 0, 0.5), row("test+blur-3", 0, 0.7)]
    rows += [row("test+fog-3", 1, None), row("test+blur-3", 1, 0.8)]
    lines = study.table.lines_of(rows)
    assert [r["failure_auroc"] for r in lines["r", "test"]["softmax"]] == [0.9]
    found = [r["failure_auroc"] for r in lines["r", "corrupted"]["softmax"]]
    assert found == pytest.approx([0.6, 0.8])
    told = study.table.markdown(lines).splitlines()
    assert "| r | corrupted | 2 |" in told[-1]
    assert "0.700 ± 0.141" in told[-1]
