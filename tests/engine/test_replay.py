"""Steps that are replayed: the same run, bit by bit, whatever the method."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from revar import ReVaR, SelectiveClassifier, fitting, optimisers, replay
from revar.data.source import Part, Source
from revar.fitting import fit_model, fit_prepared
from revar.functional import average
from revar.methods.base import Method
from revar.model import Model
from revar.parallel import World
from revar.preparation import prepare
from revar.progress import Silent
from revar.recipe import Budget
from revar.registry import METHODS
from revar.replay import Recorder, ReplayedSteps, can_replay
from revar.spares import Positions
from revar.training import InterruptedRun
from revar.types import Batch, Clock, Feeds, Networks, StepResult, Task
from support.gpu import GPU, needs_gpu
from support.keepers import FolderKeeper
from support.problems import CPU, blobs, fit, recipe
from support.threads import one_thread

NEVER = {"fsr", "fsr-full"}
"""Methods whose steps are chosen on the host."""


class Again:
    """Stands in for a GPU's recorder: it repeats the very calls, knowing what the host knew then.

    A method that looks at more of the clock than its kind says, or takes a batch that is not put
    into its place, trains otherwise with it.
    """

    def record(self, operations: Callable[[], None], positions: Positions) -> Callable[[], None]:
        """The calls themselves."""
        return operations


class Unable:
    """A recorder that meets something a graph cannot hold, in its first step or a later one."""

    def __init__(self, able: int = 0) -> None:
        self.asked, self.able = 0, able

    def record(self, operations: Callable[[], None], positions: Positions) -> Callable[[], None]:
        """Refuse, in two lines."""
        self.asked += 1
        if self.asked <= self.able:
            return operations
        raise RuntimeError("the host was asked for a number\nand more that nobody reads")


@contextmanager
def replayed(recorder: Recorder | None = None) -> Iterator[list[ReplayedSteps]]:
    """Replay all runs on the CPU; what replayed them."""
    made: list[ReplayedSteps] = []

    @contextmanager
    def replaying(device: torch.device, *, wanted: bool) -> Iterator[ReplayedSteps]:
        made.append(ReplayedSteps(recorder or Again(), device))
        yield made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "replaying", replaying)
        yield made


def trained(method: str | Method, **settings: Any) -> dict[str, Tensor]:
    """All that was learned in a short run with batches of two sizes."""
    x, y = blobs(230)
    weight = np.linspace(0.5, 1.5, len(y)).astype(np.float32)
    plan = {"epochs": 8, "batch_size": 24, "random_state": 0, "device": "cpu"}
    chosen: dict[str, Any] = {**plan, **settings}
    with one_thread():
        made = SelectiveClassifier(method, **chosen).fit(x, y, sample_weight=weight)
    return state_of(made.model_)


def state_of(model: Model) -> dict[str, Tensor]:
    return model.networks.state_dict()


def differing(a: dict[str, Tensor], b: dict[str, Tensor]) -> list[str]:
    """Names of what is not equal bit by bit."""
    assert list(a) == list(b)
    return [name for name in a if not torch.equal(a[name], b[name])]


@pytest.mark.parametrize("method", [entry.name for entry in METHODS])
def test_a_replayed_run_is_the_same_run(method: str) -> None:
    plain = trained(method)
    with replayed() as made:
        again = trained(method)
    assert differing(plain, again) == []
    assert (made[0].replayed > 20) == (method not in NEVER)


@dataclass(frozen=True, kw_only=True)
class EverySecond(Method):
    """Every second step counts twice; it may keep quiet about that."""

    honest: bool = True

    def kind(self, clock: Clock) -> Hashable:
        """Two kinds, or so it should say."""
        return clock.step % 2 if self.honest else "every"

    def loss(
        self, networks: Networks, task: Task, batch: Batch, feeds: Feeds, clock: Clock
    ) -> StepResult:
        """Cross-entropy."""
        logits = networks.classifier(batch.x)
        return StepResult(average(task.losses(logits, batch)) * (1 + clock.step % 2), logits)


@pytest.mark.parametrize("honest", [True, False])
def test_a_method_that_hides_something_from_its_kind_trains_otherwise(honest: bool) -> None:
    """So that the test above can fail."""
    plain = trained(EverySecond(honest=honest))
    with replayed() as made:
        again = trained(EverySecond(honest=honest))
    assert made[0].replayed > 20
    assert (differing(plain, again) == []) == honest


@pytest.mark.parametrize("method", ["erm", "revar"])
def test_what_cannot_be_recorded_is_trained_step_by_step(method: str) -> None:
    """One attempt, one warning of one line, and no bit is lost."""
    even = {"batch_size": 23}  # 184 examples
    plain, unable = trained(method, **even), Unable()
    with (
        replayed(unable) as made,
        pytest.warns(RuntimeWarning, match="^steps are not replayed: the host .* number$") as told,
    ):
        again = trained(method, **even)
    assert differing(plain, again) == []
    assert made[0].replayed == 0
    assert len(told) == unable.asked == 1


def test_what_was_recorded_is_given_up_when_something_cannot_be() -> None:
    """They would draw from two generators."""
    even = {"batch_size": 23}
    with replayed() as all_of_them:
        plain = trained("revar", **even)
    unable = Unable(able=1)
    with replayed(unable) as made, pytest.warns(RuntimeWarning, match="not replayed") as told:
        again = trained("revar", **even)
    assert differing(plain, again) == []
    assert (unable.asked, len(told)) == (2, 1)
    assert 0 < made[0].replayed < all_of_them[0].replayed / 2


@pytest.mark.parametrize("method", ["revar", "revar-paper", "vr", "erm"])
def test_whole_passes_are_replayed_too(method: str) -> None:
    """Dropout everywhere: each of the T passes is computed again in the backward pass."""
    often: dict[str, Method] = {
        "revar": ReVaR(interval=2), "revar-paper": replace(ReVaR.paper(), interval=2),
    }  # fmt: skip
    chosen = often.get(method, method)
    plain = trained(chosen, dropout_placement="everywhere", epochs=4)
    with replayed() as made:
        again = trained(chosen, dropout_placement="everywhere", epochs=4)
    assert differing(plain, again) == []
    assert made[0].replayed > 10
    # With a meta step, where there are some.
    due = {key[1] for key in made[0]._recorded if isinstance(key, tuple)}
    assert due == ({True, False} if method in often else {False})


def test_steps_in_double_precision_are_not_recorded() -> None:
    """A GPU's kernels that read the learning rate from the device take one in single precision."""
    torch.set_default_dtype(torch.float64)
    try:
        plain = trained("revar", epochs=4)
        with replayed() as made:
            again = trained("revar", epochs=4)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {value.dtype for value in plain.values()} >= {torch.float64}
    assert differing(plain, again) == []
    assert made[0].replayed == 0


SETTINGS: dict[str, Any] = {
    "shared, train": {"shares_gradient": True, "candidates": "train"},
    "shared, held out": {"shares_gradient": True, "candidates": "held_out"},
    "shared, network": {"shares_gradient": True, "candidates": "train", "scorer": "network"},
    "upper": {"aligned_layers": "upper"},
    "upper, shared": {"aligned_layers": "upper", "shares_gradient": True},
    "differences": {"engine": "finite_difference", "update": "linear"},
    "half": {"precision": "bfloat16"},
    "clipped": {"gradient_clip": 0.1, "schedule": "step"},
    "adamw": {"optimiser": "adamw"},
    "layer decay": {"layer_decay": 0.7},
    "in parts": {"micro_batch": 8},
    "in parts, shared": {"micro_batch": 8, "shares_gradient": True, "candidates": "train"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_every_setting_replays_the_same(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernels of a GPU: those of the CPU that read a learning rate in the same way.
    monkeypatch.setattr(optimisers, "_fused", lambda _: True)
    chosen = {"epochs": 6, "interval": 2, **settings}
    plain = state_of(fit("revar", **chosen))
    with replayed() as made:
        again = state_of(fit("revar", **chosen))
    assert differing(plain, again) == []
    assert made[0].replayed > 10


def test_the_reference_engine_trains_the_same() -> None:
    plain = state_of(fit("revar-paper", epochs=6, interval=2, engine="double_backward"))
    with replayed():
        again = state_of(fit("revar-paper", epochs=6, interval=2, engine="double_backward"))
    assert differing(plain, again) == []


@pytest.mark.parametrize(("method", "settings"), [("revar", {"interval": 2}), ("vr", {})])
def test_unlabelled_inputs_are_put_into_their_place(
    method: str, settings: dict[str, object]
) -> None:
    def run(shift: float) -> dict[str, Tensor]:
        data = Source(Part(*blobs()), unlabelled=Part(blobs(seed=9)[0] + shift))
        chosen = {"unlabelled": "pooled", "unlabelled_from": 0.3, "epochs": 6, **settings}
        return state_of(fit(method, data, **chosen))

    plain = run(0.5)
    with replayed() as made:
        assert differing(plain, run(0.5)) == []
        assert made[0].replayed > 10
        assert differing(plain, run(0.7)) != [], "they take no part"


@pytest.mark.parametrize("method", ["revar", "sat"])
def test_stopped_in_the_middle_of_an_epoch_and_resumed(method: str, tmp_path: Path) -> None:
    """Epochs of six steps: once among replayed steps, once among the first of the next process."""
    often = {"interval": 2, "shares_gradient": True} if method == "revar" else {}
    data = prepare(recipe(method, epochs=6, **often), Source(Part(*blobs())))
    whole = state_of(fit_prepared(data, device=CPU, observer=Silent()))
    keeper = FolderKeeper(tmp_path / "run")
    with replayed() as made:
        for steps in (21, 2):
            stop = iter([False] * (steps - 1) + [True]).__next__
            with pytest.raises(InterruptedRun):
                fit_prepared(data, device=CPU, observer=Silent(), keeper=keeper, stop=stop)
            keeper.folder.end()
            torch.manual_seed(123)
        resumed = fit_prepared(data, device=CPU, observer=Silent(), keeper=keeper)
    assert [steps.replayed > 0 for steps in made] == [True, False, True]
    assert differing(whole, state_of(resumed)) == []


def test_when_steps_may_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    choices: tuple[Literal["auto", "always", "never"], ...] = ("auto", "always", "never")
    for graphs, device, known, parts, again, processes in product(
        choices, (cuda, CPU), (True, False), (None, 8), (False, True), (1, 2)
    ):
        monkeypatch.setattr(replay, "world", lambda n=processes: World(size=n))
        budget = Budget(graphs=graphs, micro_batch=parts, recompute=again)
        got = can_replay(budget, device, known_net=known)
        wanted = graphs == "always" or (graphs == "auto" and known)
        assert got == (wanted and device == cuda and processes == 1), (
            graphs, device, known, parts, again, processes,
        )  # fmt: skip


def test_a_cpu_replays_nothing() -> None:
    with replay.replaying(CPU, wanted=can_replay(Budget(), CPU, known_net=True)) as step:
        assert step is None


# --- on a GPU, with its own recorder


def on_gpu(
    method: str,
    graphs: str,
    module: nn.Module | None = None,
    backbone: str = "resnet20",
    **settings: Any,
) -> tuple[dict[str, Tensor], int]:
    """What a run on images learned, and how many of its steps were replayed."""
    y = np.arange(240) % 3
    x = np.random.default_rng(0).integers(0, 100, (240, 16, 16, 3)).astype(np.uint8)
    x[np.arange(240), :, :, y] += 100
    chosen = replace(
        recipe(method, epochs=8, graphs=graphs, deterministic=True, **settings),
        backbone=backbone if module is None else "custom",
    )
    made: list[ReplayedSteps] = []

    @contextmanager
    def watched(device: torch.device, *, wanted: bool) -> Iterator[ReplayedSteps | None]:
        with replay.replaying(device, wanted=wanted) as step:
            made.extend([] if step is None else [step])
            yield step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "replaying", watched)
        data, silent = Source(Part(x, y)), Silent()
        model = fit_model(chosen, data, device=GPU, observer=silent, module=module)
    return state_of(model), sum(steps.replayed for steps in made)


@needs_gpu
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("erm", {}),
        ("erm", {"optimiser": "adamw"}),
        ("erm", {"layer_decay": 0.7}),
        ("sat", {}),
        ("gamblers", {}),
        ("mwn", {}),
        ("trajectory", {}),
        ("revar", {"interval": 2}),
        ("revar", {"interval": 2, "shares_gradient": True, "candidates": "train"}),
        ("revar", {"interval": 2, "aligned_layers": "upper"}),
        ("revar", {"interval": 2, "scorer": "features"}),
        ("revar-paper", {"interval": 3}),
        ("revar-paper", {"interval": 3, "shares_gradient": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "as it is",
)
def test_graphs_train_the_same_bits(method: str, settings: dict[str, Any]) -> None:
    plain, none = on_gpu(method, "never", **settings)
    again, count = on_gpu(method, "auto", **settings)
    assert differing(plain, again) == []
    assert (none, count > 20) == (0, True)


@needs_gpu
@pytest.mark.parametrize("scorer", ["features", "evidence", "network"])
@pytest.mark.parametrize("backbone", ["resnet18", "mobilenetv3_small_050"])
def test_graphs_train_the_same_bits_of_nets_of_others(backbone: str, scorer: str) -> None:
    """The second has layers between its trunk and what g reads."""
    pytest.importorskip("timm")
    chosen: dict[str, Any] = {
        "backbone": backbone, "scorer": scorer, "interval": 2, "candidates": "train",
    }  # fmt: skip
    if scorer == "network":
        chosen["scorer_reduction"] = 2
    plain, none = on_gpu("revar", "never", **chosen)
    again, count = on_gpu("revar", "auto", **chosen)
    assert differing(plain, again) == []
    assert (none, count > 20) == (0, True)


@needs_gpu
@pytest.mark.parametrize("method", ["erm", "sat", "trajectory", "revar", "revar-paper"])
@pytest.mark.parametrize("backbone", ["resnet20", "vit-cifar"])
def test_blocks_computed_again_train_the_same_bits_on_a_gpu(method: str, backbone: str) -> None:
    """As usual, and recorded."""
    plain, _ = on_gpu(method, "never", backbone=backbone)
    for graphs in ("never", "auto"):
        again, count = on_gpu(method, graphs, backbone=backbone, recompute=True)
        assert differing(plain, again) == []
        assert (count > 20) == (graphs == "auto")


@needs_gpu
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("revar", {"interval": 2, "dropout_placement": "everywhere"}),
        ("revar-paper", {"interval": 3, "dropout_placement": "everywhere"}),
        (
            "revar-paper",
            {"interval": 3, "dropout_placement": "everywhere", "shares_gradient": True},
        ),
        ("revar", {"interval": 2, "dropout_placement": "everywhere", "recompute": True}),
        ("vr", {"dropout_placement": "everywhere"}),
        ("erm", {"micro_batch": 8, "dropout_placement": "everywhere"}),
        ("revar-paper", {"interval": 3, "micro_batch": 8}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_graphs_go_back_to_any_state_of_the_generator(
    method: str, settings: dict[str, Any]
) -> None:
    """What is computed again draws the masks that it drew before, in the middle of a step."""
    plain, none = on_gpu(method, "never", **settings)
    again, count = on_gpu(method, "auto", **settings)
    assert differing(plain, again) == []
    assert (none, count > 20) == (0, True)


class Looks(nn.Module):
    """A net that decides on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(768, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Twice the logits of very large inputs."""
        logits: Tensor = self.layers(x)
        return logits * 2 if x.mean().item() > 1e6 else logits


@needs_gpu
def test_a_net_that_decides_on_the_host_is_trained_all_the_same() -> None:
    torch.manual_seed(0)
    net = Looks()
    plain, _ = on_gpu("erm", "auto", net)
    with pytest.warns(RuntimeWarning, match="steps are not replayed: "):
        again, count = on_gpu("erm", "always", net)
    assert differing(plain, again) == []
    assert count == 0
