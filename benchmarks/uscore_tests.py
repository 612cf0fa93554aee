"""The tests of the study's goal: paired resampling of examples, or patients, and seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revar.ensembles import mix
from revar.errors import InputError
from revar.metrics import Compared, compare, curve_figures, holm
from revar.scores.softmax import log_odds
from uscore_store import FIGURES, Run
from uscore_tasks import BESIDE, MEMBERS, ON_ALL, WHOLE, WITH_META, Task

SIGNIFICANCE = 0.05
Runs = Mapping[tuple[str, int], Run]
"""The runs of one folder, by way and seed."""
Row = Mapping[str, Any]
ENSEMBLE = ("erm", *MEMBERS)


@dataclass(frozen=True, slots=True)
class Choice:
    """A way and the score it selects by, typed ``way:score``."""

    way: str
    score: str

    @classmethod
    def parse(cls, text: str) -> Choice:
        """From ``way:score``.

        Raises:
            InputError: it is something else.
        """
        way, colon, score = text.partition(":")
        if not (way and colon and score):
            raise InputError(f'"{text}" is not WAY:SCORE, such as trajectory:fused')
        return cls(way, score)

    def __str__(self) -> str:
        return f"{self.way}:{self.score}"


def seeds_of(runs: Runs, way: str) -> list[int]:
    """The seeds a way was trained with."""
    return sorted(seed for name, seed in runs if name == way)


def stacked(
    runs: Runs, choice: Choice, split: str, seeds: Sequence[int]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """[seeds, n] uncertainty, and whether the prediction that goes with it is right."""
    chosen = [runs[choice.way, seed] for seed in seeds]
    return (
        np.stack([run.uncertainty(split, choice.score) for run in chosen]),
        np.stack([run.correct(split, choice.score) for run in chosen]),
    )


def references(ours: Choice) -> dict[str, Choice]:
    """What ours is tested against: softmax of its own classifier and of plain training, twice.

    Once that has the labels that ours has, once all of them; if ours had all, that is the same.
    """
    if ours.way.endswith(ON_ALL):
        return {"same classifier": Choice(ours.way, "softmax"), WHOLE: Choice(WHOLE, "softmax")}
    plain = f"erm{WITH_META}" if ours.way.endswith(WITH_META) else "erm"
    return {
        "same classifier": Choice(ours.way, "softmax"),
        plain: Choice(plain, "softmax"),
        WHOLE: Choice(WHOLE, "softmax"),
    }


def differences(
    runs: Runs, ours: Choice, split: str, *, resamples: int, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Ours less each reference in AUARC, in points, on the seeds that both have.

    ``low`` and ``high`` are the ends of the 95 % interval, ``lower_95`` the one-sided bound, ``p``
    is one-sided: that ours is not better.

    Args:
        runs: of the folder.
        ours: what is tested.
        split: the set.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    found = {}
    for name, other in references(ours).items():
        seeds = [s for s in seeds_of(runs, ours.way) if (other.way, s) in runs]
        if other == ours or not seeds:
            continue
        both = {"ours": ours, "other": other}
        drawn = {who: stacked(runs, choice, split, seeds) for who, choice in both.items()}
        clusters = runs[ours.way, seeds[0]].patients(split)

        def tested(
            confidence: float, drawn: Any = drawn, clusters: Any = clusters
        ) -> tuple[Compared, int]:
            result = compare(
                {who: values for who, (values, _) in drawn.items()},
                {who: right for who, (_, right) in drawn.items()},
                reference="other", clusters=clusters, n_resamples=resamples,
                confidence=confidence, seed=seed,
            )  # fmt: skip
            return result["ours"], result.n_clusters

        two_sided, n_clusters = tested(0.95)
        one_sided, _ = tested(0.90)
        half = two_sided.p_value / 2
        found[name] = {
            "reference": str(other),
            "seeds": seeds,
            "drawn_as_wholes": n_clusters,
            "difference": 100 * two_sided.difference,
            "low": 100 * two_sided.difference_low,
            "high": 100 * two_sided.difference_high,
            "lower_95": 100 * one_sided.difference_low,
            "p": half if two_sided.difference > 0 else 1 - half,
        }
    return found


def best_comparable(rows: Sequence[Row], ours: Choice) -> dict[str, Any] | None:
    """The other method of highest mean AUARC by its default, its own or softmax score.

    Other settings of our method, methods that cost more at inference, and plain training on more
    data are not among them; nor is a score that some seeds of a way do not have.

    Args:
        rows: of the task, one for each run and score.
        ours: what is compared.
    """
    left_out = {row["method"] for row in rows if row["way"] == ours.way} | set(BESIDE)
    values: dict[Choice, list[float | None]] = {}
    for row in rows:
        way, score = row["way"], row["score"]
        counts = row["own"] or row["default"] or score == "softmax"
        more = way.endswith(ON_ALL) or way in MEMBERS
        if counts and not more and row["method"] not in left_out:
            values.setdefault(Choice(way, score), []).append(row["auarc"])
    most: Counter[str] = Counter()
    for choice, some in values.items():
        most[choice.way] = max(most[choice.way], len(some))
    found = {c: _mean(some) for c, some in values.items() if len(some) == most[c.way]}
    if not found:
        return None
    best = max(found, key=lambda choice: found[choice])
    mine = _mean(list(by_seed(rows, ours).values()))
    return {
        "name": str(best),
        "auarc": found[best],
        "seeds": len(values[best]),
        "of": len({choice.way for choice in found}),
        "ours": mine,
        "ours_highest": mine > found[best],
    }


def by_seed(rows: Sequence[Row], choice: Choice) -> dict[int, float | None]:
    """AUARC of every seed, as shares."""
    return {
        row["seed"]: row["auarc"]
        for row in rows
        if row["way"] == choice.way
        and (row["score"] == choice.score or row.get(choice.score) is True)
    }


def ensembles(runs: Runs, split: str) -> dict[int, tuple[NDArray[Any], NDArray[np.bool_]]]:
    """[n] uncertainty and correctness of deep ensembles of five on the data of each seed."""
    found = {}
    for seed in seeds_of(runs, "erm"):
        members = [runs[way, seed] for way in ENSEMBLE if (way, seed) in runs]
        kept = [run.member(split) for run in members]
        whole = [pair for pair in kept if pair is not None]
        if len(whole) < len(ENSEMBLE):
            continue
        log_mean = mix(log_p for _, log_p in whole).log_mean
        found[seed] = -log_odds(log_mean), log_mean.argmax(axis=1) == whole[0][0]
    return found


def ensemble_figures(runs: Runs, split: str) -> dict[int, dict[str, float]]:
    """The figures of each ensemble, by seed."""
    found = {}
    for seed, (uncertainty, correct) in ensembles(runs, split).items():
        curve = {**curve_figures(uncertainty, correct), "accuracy": float(correct.mean())}
        found[seed] = {figure: curve[figure] for figure in FIGURES}
    return found


def gap_closed(
    rows: Sequence[Row], ours: Choice, figures: Mapping[int, Mapping[str, float]]
) -> dict[str, Any] | None:
    """Share of the gap between one model's softmax response and an ensemble that ours closes.

    One model is the mean of the ensemble's members, ours is of the same seed. Members have no
    meta set to train on, so that ours is taken without it, too, where such runs are there; to one
    that had more labels there is nothing to compare.

    Args:
        rows: of the task, one for each run and score.
        ours: what is compared.
        figures: of the ensembles, by seed.
    """
    if ours.way.endswith(ON_ALL):
        return None
    without = ours.way.removesuffix(WITH_META)
    way = without if any(row["way"] == without for row in rows) else ours.way
    mine = by_seed(rows, Choice(way, ours.score))
    members = [by_seed(rows, Choice(name, "softmax")) for name in ENSEMBLE]
    seeds = [seed for seed in figures if seed in mine and all(seed in one for one in members)]
    if not seeds:
        return None
    own = 100 * np.array([mine[seed] for seed in seeds], dtype=float)
    single = np.array([_mean([one[seed] for one in members]) for seed in seeds])
    whole = 100 * np.array([figures[seed]["auarc"] for seed in seeds])
    gap = whole.mean() - single.mean()
    return {
        "way": way, "seeds": seeds, "members": len(members), "single": float(single.mean()),
        "ours": float(own.mean()), "ensemble": float(whole.mean()),
        "share": float((own - single).mean() / gap) if gap > 0 else None,
        "gained_by_seed": (own - single).tolist(), "gap_by_seed": (whole - single).tolist(),
    }  # fmt: skip


def _mean(values: Sequence[float | None]) -> float:
    return 100 * float(np.mean(np.array(values, dtype=float)))


def judge(tasks: Mapping[str, Task], found: Mapping[str, dict[str, Any]]) -> None:
    """Add the verdicts, in place: Holm over the tasks of superiority, margins for the others.

    Against every reference on its own, and against ``all``: the largest of their p-values, which
    is small only if ours beats each of them.

    Args:
        tasks: by name.
        found: task to what `differences` found, under ``against``.
    """
    number = sum(task.goal == "superior" for task in tasks.values())
    known = [n for n in found if tasks[n].goal == "superior" and found[n]["against"]]
    for name in known:
        against = found[name]["against"]
        found[name]["all"] = {"p": max(one["p"] for one in against.values())}
    for reference in dict.fromkeys(r for name in known for r in found[name]["against"]):
        those = [name for name in known if reference in found[name]["against"]]
        _correct([found[name]["against"][reference] for name in those], number)
    _correct([found[name]["all"] for name in known], number)
    for name, result in found.items():
        goal, margin = tasks[name].goal, tasks[name].margin
        result["goal"] = goal
        for one in result["against"].values():
            if goal == "superior":
                one["met"] = one["p_holm"] < SIGNIFICANCE
            if goal == "not inferior":
                one["met"] = one["lower_95"] > -margin
                one["met_two_sided"] = one["low"] > -margin
        if goal == "superior" and "all" in result:
            result["met"] = result["all"]["p_holm"] < SIGNIFICANCE
        if goal == "not inferior" and result["against"]:
            result["margin"] = margin
            for key in ("met", "met_two_sided"):
                result[key] = all(one[key] for one in result["against"].values())


def _correct(results: Sequence[dict[str, Any]], number: int) -> None:
    """For the number of tests that were meant, also before all of them have runs."""
    p_values = [one["p"] for one in results]
    corrected = holm([*p_values, *[1.0] * (number - len(p_values))])
    for one, p in zip(results, corrected, strict=False):
        one["p_holm"] = float(p)
