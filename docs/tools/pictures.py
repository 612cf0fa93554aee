"""Draw the pictures of the concepts and of the guarantee: ``python docs/tools/pictures.py``.

Takes about a minute on one core. Everything in them is computed here, nothing is sketched but the
arrows of the look-ahead.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_moons

from revar import SelectiveClassifier, metrics, selection

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "images"
RIGHT, WRONG, GREY, INK = "#00796b", "#c2410c", "#9ca3af", "#1f2937"
Floats = NDArray[np.float64]
plt.rcParams.update(
    {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110}
)


def save(figure: Figure, name: str) -> None:
    """Write one picture."""
    figure.tight_layout()
    figure.savefig(IMAGES / f"{name}.png", facecolor="white")
    plt.close(figure)


def examples(n: int, seed: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Uncertainties in [0, 1] and whether the answer is right; errors rise with the square."""
    rng = np.random.default_rng(seed)
    uncertainty = rng.beta(1.3, 2.2, n)
    return uncertainty, rng.random(n) > 0.75 * uncertainty**1.5


def rejection() -> None:
    """A threshold on an uncertainty, and the areas under two curves."""
    uncertainty, correct = examples(2000, 0)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.3))
    bins = np.linspace(0, 1, 31).tolist()
    left.hist(uncertainty[correct], bins, color=RIGHT, alpha=0.75, label="right")
    left.hist(uncertainty[~correct], bins, color=WRONG, label="wrong")
    cut = float(np.quantile(uncertainty, 0.8))
    left.axvline(cut, color=INK, linewidth=1.5)
    left.annotate("answered", (cut - 0.03, 124), ha="right")
    left.annotate("left to a person", (cut + 0.03, 124))
    left.set(
        xlabel="uncertainty", ylabel="inputs", title="a threshold", ylim=(0, 135), xlim=(0, 1.1)
    )
    left.legend(frameon=False, loc="center right")

    curve = metrics.accuracy_rejection_curve(uncertainty, correct)
    chance = metrics.accuracy_rejection_curve(np.random.default_rng(1).random(2000), correct)
    middle.fill_between(curve.rejection, curve.accuracy, 0.6, color=RIGHT, alpha=0.15)
    middle.plot(curve.rejection, curve.accuracy, color=RIGHT)
    middle.plot(chance.rejection, chance.accuracy, color=GREY)
    area = metrics.auarc(uncertainty, correct)
    middle.annotate(f"AUARC {area:.3f}: the mean height", (0.1, 0.67), color=RIGHT)
    middle.annotate("a score that knows nothing", (0.1, 0.765), color=INK)
    middle.set(xlabel="share rejected", ylabel="accuracy of the rest", ylim=(0.6, 1.01))
    middle.set_title("accuracy against rejection")

    risk = metrics.risk_coverage_curve(uncertainty, correct)
    right.plot(risk.coverage, risk.risk, color=RIGHT)
    right.axhline(0.1, color=GREY, linestyle=":")
    reach = metrics.coverage_at_risk(uncertainty, correct, 0.1)
    right.plot([reach, reach], [0, 0.1], color=INK, linewidth=1)
    right.plot(reach, 0.1, "o", color=INK)
    right.annotate(f"risk 0.10\nat coverage {reach:.2f}", (reach - 0.03, 0.115), ha="right")
    right.set(xlabel="coverage: share answered", ylabel="selective risk", ylim=(0, 0.26))
    right.set_title("risk against coverage")
    save(figure, "concept-rejection")


def lookahead() -> None:
    """Which examples a held-out set wants more of."""
    figure, axis = plt.subplots(figsize=(6.2, 3.8))
    steps = {
        "agrees: weight rises": ((1.5, 0.75), RIGHT),
        "agrees a little": ((0.45, 1.15), RIGHT),
        "unrelated: weight stays": ((-0.62, 1.02), GREY),
        "disagrees, often a wrong label: weight falls": ((-1.3, -0.55), WRONG),
    }
    held_out = (1.75, 1.1)
    for name, (step, colour) in steps.items():
        axis.annotate("", step, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2})
        side = "left" if step[0] > 0 else "right"
        shift = 0.06 if step[0] > 0 else -0.06
        if name.startswith("disagrees"):
            axis.annotate(name, (-2.35, -0.78), color=colour)
        else:
            axis.annotate(name, (step[0] + shift, step[1] - 0.06), color=colour, ha=side)
    axis.annotate(
        "", held_out, (0, 0),
        arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 2, "linestyle": "--"},
    )  # fmt: skip
    axis.annotate("the step the held-out set\n(meta set) asks for", (1.81, 1.08))
    axis.plot(0, 0, "o", color=INK)
    axis.annotate("weights of the\nclassifier now", (0.08, -0.28))
    axis.set(xlim=(-2.5, 3.6), ylim=(-1.0, 1.5))
    axis.axis("off")
    save(figure, "concept-lookahead")


def variance() -> None:
    """Two moons: what the classifier says, and how much it changes under dropout."""
    rng = np.random.default_rng(0)
    x, y = make_moons(600, noise=0.25, random_state=0)
    keep = ~((x[:, 0] > 1.0) & (x[:, 0] < 1.7) & (x[:, 1] < 0.4))
    x, y = x[keep], y[keep]
    clf = SelectiveClassifier(
        "erm", "mlp", epochs=150, dropout_rate=0.3, dropout_placement="everywhere",
        test_passes=50, random_state=0, device="cpu",
    ).fit(x, y)  # fmt: skip
    side = np.linspace(-2.2, 3.2, 160), np.linspace(-1.7, 2.2, 120)
    grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
    probabilities = clf.predict_proba(grid)[:, 1].reshape(120, 160)
    maps = {
        "probability of class 1": (probabilities, "coolwarm"),
        "entropy of the softmax": (clf.uncertainty(grid, "softmax_entropy"), "viridis"),
        "variance over 50 dropout passes": (clf.uncertainty(grid, "dropout_variance"), "viridis"),
    }
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
    shown = rng.permutation(len(x))[:250]
    for axis, (title, (values, colours)) in zip(axes, maps.items(), strict=True):
        image = axis.pcolormesh(*side, values.reshape(120, 160), cmap=colours, rasterized=True)
        for number, marker in enumerate("o^"):
            some = shown[y[shown] == number]
            axis.plot(x[some, 0], x[some, 1], marker, color="white", mec="black", ms=3.5, mew=0.6)
        axis.set_title(title)
        figure.colorbar(image, ax=axis, shrink=0.9)
    save(figure, "concept-dropout-variance")


def guarantee(repetitions: int = 2000) -> None:
    """True risks of thresholds chosen naively and with a proof, over calibration sets."""
    new, right = examples(400_000, 99)
    order = np.argsort(new)
    ranked, errors = new[order], np.cumsum(~right[order])

    def true_risk(threshold: float) -> float:
        accepted = int(np.searchsorted(ranked, threshold, side="right"))
        return float(errors[accepted - 1] / accepted) if accepted else 0.0

    naive, proved = [], []
    for seed in range(repetitions):
        uncertainty, correct = examples(500, 1000 + seed)
        coverage = metrics.coverage_at_risk(uncertainty, correct, 0.1)
        if coverage > 0:
            cut = selection.threshold_for_coverage(uncertainty, coverage).threshold
            naive.append(true_risk(float(cut or 0)))
        found = selection.threshold_for_risk(uncertainty, correct, max_risk=0.1, confidence=0.95)
        if found.threshold is not None:
            proved.append(true_risk(found.threshold))
    figure, axis = plt.subplots(figsize=(7, 3.2))
    bins = np.linspace(0, 0.16, 65).tolist()
    broken = float(np.mean(np.array(naive) > 0.1))
    axis.hist(naive, bins, color=GREY, alpha=0.9, label=f"naive: {broken:.0%} above 10 %")
    share = sum(risk > 0.1 for risk in proved) / repetitions
    axis.hist(proved, bins, color=RIGHT, alpha=0.75, label=f"proved: {share:.1%} above 10 %")
    axis.axvline(0.1, color=INK)
    axis.set_ylim(0, axis.get_ylim()[1] * 1.15)
    axis.annotate("what was asked", (0.1012, axis.get_ylim()[1] * 0.92))
    axis.set(xlabel="true error rate of the answers", ylabel="calibration sets")
    axis.legend(frameon=False)
    save(figure, "guarantee")
    print(f"naive: {broken:.3f} of {len(naive)} above; proved: {share:.4f} of {repetitions} above, "
          f"no threshold in {repetitions - len(proved)}")  # fmt: skip


if __name__ == "__main__":
    rejection()
    lookahead()
    variance()
    guarantee()
