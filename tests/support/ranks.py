"""Processes that train together, in float64, and what they end with.

Run as a script it is one process of several; it trains every case it is given, one after another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from revar.data.source import Source
    from revar.preparation import Prepared
    from revar.totals import EpochRecord
    from revar.training import TrainingState

TESTS = Path(__file__).parents[1]
Case = tuple[Literal["table", "images"], str, dict[str, str]]
"""Data, method, settings."""


def environments(count: int, folder: Path) -> list[dict[str, str]]:
    """Of processes that meet in a folder."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "REVAR_RENDEZVOUS": f"file://{folder}/meeting",
    }
    return [{**shared, "RANK": str(k), "LOCAL_RANK": str(k)} for k in range(count)]


def run_ranks(
    script: str | Path, count: int, *arguments: str, seconds: float = 150
) -> list[tuple[int, str, str]]:
    """Run a script in several processes; exit code, stdout and stderr of each."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for environment in environments(count, Path(folder))
        ]  # fmt: skip
        found = []
        for process in processes:
            out, err = process.communicate(timeout=seconds)
            found.append((process.returncode, out, err))
    return found


def train_cases(
    cases: Mapping[str, Case], count: int, out: Path, device: str = "cpu", seconds: float = 150
) -> None:
    """Train cases by several processes, or by one; the end of each is in ``out/NAME``.

    Several processes on a GPU are on the same one.
    """
    described = out / "cases.json"
    described.write_text(json.dumps(cases))
    for code, _, err in run_ranks(__file__, count, str(described), device, seconds=seconds):
        assert code == 0, err


class Witness:
    """Keeps the log, both optimisers, and the generators after the last step."""

    def __init__(self) -> None:
        self.log: list[dict[str, Any]] = []

    def begin(self, data: Prepared, state: TrainingState) -> None:
        """Nothing."""

    def save(self, state: TrainingState) -> None:
        from revar.checkpoint import progress_of

        found = progress_of(state)[0]
        self.progress = {k: v.clone() for k, v in found.items() if not k.startswith("random.")}

    def started(self, *, step: int, total: int, epochs: int) -> None:
        """Nothing."""

    def stepped(self, step: int, figures: Callable[[], dict[str, float]]) -> None:
        """Nothing."""

    def finished_epoch(self, record: EpochRecord) -> None:
        import torch

        self.generators = {"CPU": torch.get_rng_state()}
        if torch.cuda.is_initialized():
            self.generators["GPU"] = torch.cuda.get_rng_state()
        self.log.append({k: v for k, v in asdict(record).items() if k != "seconds"})


def sources() -> dict[str, Source]:
    """Rows of which two processes do not have equal numbers, and coloured images of noise."""
    import numpy as np

    from revar.data.source import Part, Source
    from support.problems import blobs

    x, y = blobs(161)
    noise = np.random.default_rng(0).integers(0, 120, (120, 3, 8, 8))
    labels = np.arange(120) % 3
    # Their brightness says their class.
    images = (noise + 60 * labels[:, None, None, None]).astype(np.uint8)
    weights = np.array([0.5, 1.5, 2.5])[np.arange(161) % 3]
    return {
        "table": Source(Part(x, y, weights=weights), unlabelled=Part(x[:31] + 0.3, None)),
        "images": Source(Part(images, labels)),
    }


def main(described: Path, where: str) -> None:
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    from revar.fitting import fit_prepared
    from revar.parallel import joined
    from revar.preparation import prepare
    from revar.recipe import Budget, Recipe, make_method, with_settings
    from revar.rows import shared_rows

    # Half precision is what a GPU takes unless told.
    budget = Budget(epochs=2, precision="float32")

    device, given = torch.device(where), sources()
    with joined(device, one_gpu=True, timeout=60) as world:
        for name, (data, method, settings) in json.loads(described.read_text()).items():
            recipe = Recipe(method=make_method(method), budget=budget, test_passes=2)
            prepared = prepare(with_settings(recipe, settings), given[data])
            witness = Witness()
            model = fit_prepared(prepared, device=device, observer=witness, keeper=witness)
            parts = shared_rows(model.networks)
            whole = {k: v for k, v in model.networks.state_dict().items() if k not in parts}
            found = {f"weights {k}": v for k, v in whole.items()}
            # Without the one that stands for those of others.
            found |= {f"part {k}": v[:-1] for k, v in parts.items()}
            for place, state in witness.generators.items():
                found[f"weights of the generator of the {place}"] = state
            if world.first:
                found |= {f"progress {k}": v for k, v in witness.progress.items()}
            for split, predictions in model.predictions.items():
                found[f"logits {split}"] = torch.from_numpy(predictions.logits)
                for kind in (predictions.columns, predictions.scores):
                    found |= {f"{k} {split}": torch.from_numpy(v) for k, v in kind.items()}
            save_file(
                {k: v.cpu().contiguous() for k, v in found.items()},
                described.parent / f"{name}-{world.rank}.safetensors",
            )
            log = described.parent / f"{name}-{world.rank}.json"
            log.write_text(json.dumps(witness.log))


if __name__ == "__main__":
    from revar.commands.processes import leave

    main(Path(sys.argv[1]), sys.argv[2])
    leave(0)
