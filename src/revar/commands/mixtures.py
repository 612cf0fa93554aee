"""``revar evaluate`` with several opinions: ``--with`` other runs, or ``--augmentations``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from revar import augmented, ensembles
from revar.commands.checks import check_data
from revar.commands.evaluate import Evaluation, evaluate
from revar.commands.reading import reading_for
from revar.data.source import evaluation_part, load_source
from revar.devices import choose
from revar.errors import InputError
from revar.evaluation import evaluate as figures_of
from revar.run import RunFolder
from revar.splits import Fingerprint


def evaluate_ensemble(
    runs: Sequence[str | Path],
    *,
    on: str | None = None,
    target: str | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
) -> Evaluation:
    """Figures of a deep ensemble on the members' own test split, or on other labelled data.

    Other data are evaluated member by member first, as without the others, which is what their
    runs record; the figures of the ensemble itself belong to no run.

    Args:
        runs: the run folders, which differ in their seed or in anything but data and classes.
        on: as for `evaluate`, and so are the others.
        target: the column of labels of a CSV file.
        skip_unreadable: go on without images that cannot be read, and count them.
        device: ``auto``, ``cpu``, ``cuda``, ...

    Raises:
        InputError: a run given twice, or members of other classes or other test examples.
    """
    paths = [Path(run) for run in runs]
    for number, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise InputError(f'"{path}" is given twice: members of an ensemble must differ')
    first, *others = (_Facts(path) for path in paths)
    for other in others:
        other.refuse_unlike(first, own_test=on is None)
    members = [
        evaluate(path, on=on, target=target, skip_unreadable=skip_unreadable, device=device)
        for path in paths
    ]
    predictions = ensembles.combine([member.predictions for member in members])
    figures = figures_of(predictions, ensembles.FITTED)
    notes = dict.fromkeys(member.note for member in members if member.note)
    name = f"{members[0].name}, ensemble of {len(members)}"
    return Evaluation(name, figures, predictions, "; ".join(notes))


class _Facts:
    """What a finished run says of its classes and test examples."""

    def __init__(self, path: Path) -> None:
        folder = RunFolder(path)
        recipe = folder.recipe()
        if not folder.finished:
            raise InputError(f'"{path}" is unfinished: train it with --resume first')
        described: dict[str, Any] = folder.store.read_json("model.json")
        self.path = path
        self.classes, self.inputs = described["classes"], described["inputs"]
        self.test = recipe["data"].get("fingerprints", {}).get("test:test")

    def refuse_unlike(self, first: _Facts, *, own_test: bool) -> None:
        """Refuse a member that does not go with the first."""
        if self.classes != first.classes:
            raise InputError(f'"{self.path}" has other classes than "{first.path}"')
        # Fingerprints are of rows as a run encodes them: where two encode differently, the index
        # and the labels must do.
        alike = self.inputs == first.inputs and None not in (self.test, first.test)
        if own_test and alike and self.test != first.test:
            msg = f'"{self.path}" has another test split than "{first.path}": give one with --on'
            raise InputError(msg)


def evaluate_augmented(
    run: str | Path,
    copies: int,
    *,
    on: str | None = None,
    target: str | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
) -> Evaluation:
    """Figures of a run by the mean over augmented copies of every image.

    The run remembers that other data served as a test set; the figures are not recorded.

    Args:
        run: the run folder.
        copies: K, beside the image itself.
        on: as for `evaluate`; the run's own test split is read again unless given.
        target: the column of labels of a CSV file.
        skip_unreadable: go on without images that cannot be read, and count them.
        device: ``auto``, ``cpu``, ``cuda``, ...

    Raises:
        InputError: no images, no augmentation in training, or data that cannot be used or read.
    """
    folder = RunFolder(Path(run))
    data = folder.recipe()["data"]
    model = folder.load(device=choose(device))
    spec = _own_data(folder, data) if on is None else on
    reading = reading_for(folder, model, target=target, skip_unreadable=skip_unreadable)
    part = evaluation_part(load_source(spec, reading))
    predictions = model.predict_augmented(part.x, part.y, copies=copies)
    note, name = "", "test"
    if on is None:
        found = Fingerprint.of(model.inputs.encode(part.x)).digest
        if found != data["fingerprints"]["test:test"]:
            raise InputError(f'"{spec}" has changed since "{run}" was trained: give data with --on')
    else:
        name = Path(on).stem
        model.claim(part.x, "test")
        try:
            with folder.held():
                folder.write_decisions(model)
        except InputError as error:
            # The figures are right all the same: a run may lie where this user cannot write.
            note = f"not recorded in the run: {error}"
    predictions = replace(predictions, split="test" if on is None else f"on-{name}")
    figures = figures_of(predictions, augmented.FITTED)
    return Evaluation(f"{name}, {copies} augmented copies", figures, predictions, note)


def _own_data(folder: RunFolder, data: dict[str, Any]) -> str:
    """The data a run was trained on, if its test split can be read from there."""
    if "test:test" not in data.get("fingerprints", {}):
        raise InputError(f'the test inputs of "{folder.path}" are not at hand: give some with --on')
    spec: str = data["spec"]
    check_data(spec)
    return spec
