"""Where a run comes from, and its model card: facts that are on record, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from revar.report.page.content import PageRun

Facts = list[tuple[str, str]]
_HIGHER = "unless told otherwise; higher is less certain and is rejected first."
_LIMITS = (
    "Figures describe these test sets. On inputs of another kind (another device, site or "
    "population) both accuracy and coverage may differ. A guarantee holds for inputs drawn like "
    "the calibration data and for nothing else. Choosing a point by looking at a test set makes "
    "its figures too good: choose it with revar select, on calibration data."
)
_USE = (
    "This page knows what was measured, not what the model is meant for. Those who put it to use "
    "must say for whom, for what, and who decides where it abstains."
)


def provenance(run: PageRun) -> dict[str, Facts]:
    """Sections of facts: data, recipe, versions, hardware."""
    recipe, made = run.recipe, run.provenance
    data: Mapping[str, Any] = recipe.get("data", {})
    sections = {
        "Data": [
            ("where", str(data.get("spec", "not on record"))),
            *_given(data, ("target", "group", "image", "added_label_noise")),
            ("one example", run.inputs),
            *((f"fingerprint, {k}", str(v)) for k, v in data.get("fingerprints", {}).items()),
        ],
        "Recipe": _flat({k: v for k, v in recipe.items() if k not in ("data", "format")}),
        "Made by": [
            (name, _text(made[key]))
            for key, name in (
                ("revar", "revar"), ("python", "Python"), ("torch", "torch"), ("numpy", "NumPy"),
                ("date", "date"), ("command", "command"),
            )
            if key in made
        ],
        "Hardware": _given(made, ("platform", "processor", "threads")),
    }  # fmt: skip
    return {name: [fact for fact in facts if fact[1]] for name, facts in sections.items() if facts}


def model_card(run: PageRun) -> Facts:
    """What one must know before using the model, as far as the run can tell."""
    recipe = run.recipe
    method = str(recipe.get("method", {}).get("name", "unknown"))
    seed, backbone = recipe.get("seed"), recipe.get("backbone")
    data = recipe.get("data", {})
    names = ", ".join(run.classes[:12]) + (", ..." if len(run.classes) > 12 else "")
    facts: Facts = [
        ("Model", f'A {backbone} classifier trained with the method "{method}", seed {seed}.'),
        ("Answers", f"One of {len(run.classes)} classes ({names}), or none: it may abstain."),
        ("Input", run.inputs),
        ("Training data", _training_data(run, data)),
        ("Abstains by", f'The score "{run.fitted.default_score}" {_HIGHER}'),
        ("Threshold", _threshold(run)),
        (
            "Tested on",
            "; ".join(f"{name}: {len(t.predictions):,} examples" for name, t in run.tests.items())
            + ".",
        ),
        ("Limits", _LIMITS),
        ("Use", _USE),
    ]
    return [fact for fact in facts if fact[1]]


def _training_data(run: PageRun, data: Mapping[str, Any]) -> str:
    n = "" if run.train is None else f"{len(run.train):,} training examples from "
    text = f"{n}{data.get('spec', 'a source that is not on record')}"
    noise = data.get("added_label_noise")
    return f"{text}, with added label noise {noise}." if noise else f"{text}."


def _threshold(run: PageRun) -> str:
    threshold = run.threshold
    if threshold is None:
        return "None is kept with the run: everything is answered until one is chosen."
    return f'On the score "{threshold.score}": {threshold.describe()}.'


def _given(data: Mapping[str, Any], keys: tuple[str, ...]) -> Facts:
    return [
        (key.replace("_", " "), _text(data[key])) for key in keys if data.get(key) not in (None, "")
    ]


def _flat(data: Mapping[str, Any], prefix: str = "") -> Facts:
    facts: Facts = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            facts += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            facts.append((f"{prefix}{key}", _text(value)))
    return facts


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
