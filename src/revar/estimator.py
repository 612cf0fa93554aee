"""SelectiveClassifier: the practitioner's front door, in scikit-learn's manner."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from revar.data.factors import class_factors, example_weights
from revar.data.frames import FrameInputs
from revar.data.inputs import unpack, unpack_inputs
from revar.data.labels import as_groups, as_labels
from revar.data.source import Part, Source
from revar.decision import Decision
from revar.devices import choose
from revar.errors import DataWarning, InputError
from revar.fitting import fit_model
from revar.methods.base import Method
from revar.model import Model
from revar.nets.base import Dropout, DropoutPlacement
from revar.predictions import Predictions
from revar.preparation import warn_of_unused
from revar.progress import Bar, Silent
from revar.randomness import RandomStateLike, seed_from
from revar.recipe import Budget, Recipe, Start, make_method
from revar.registry import DEFAULT_METHOD
from revar.run import ARRAYS, RunFolder
from revar.scoring import NOTHING, Wanted
from revar.selection import Threshold
from revar.selection.risk import Procedure
from revar.splits import SplitPlan

_BUDGET = (
    "epochs", "batch_size", "learning_rate", "optimiser", "weight_decay", "schedule", "augment",
    "recompute", "micro_batch",
)  # fmt: skip
"""Arguments that are fields of the budget."""


class SelectiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural classifier that can abstain.

    Args:
        method: a registered name (``revar list methods``) or a method object.
        backbone: ``auto``, a registered name (``revar list backbones``), a timm name, or any
            ``nn.Module`` of your own, of which a copy is trained.
        pretrained: a file of weights to start from, or ``timm`` for those timm has.
        frozen: train the last layer only, of pretrained weights or a module of your own.
        layer_decay: factor on the learning rate from each layer to the one below.
        epochs: passes over the training data.
        batch_size: ``None`` chooses by the size of the data.
        learning_rate: ``None`` chooses by the optimiser.
        optimiser: ``sgd`` or ``adamw``.
        weight_decay: of the classifier.
        schedule: ``cosine``, ``step`` or ``constant``.
        augment: of images: ``auto``, ``none``, ``shift``, ``shift+flip``.
        recompute: save memory: keep the inputs of blocks only, for the same results more slowly.
        micro_batch: save memory: so many rows at a time; batch norm takes them for the batch.
        dropout_rate: share of units dropped; dropout scores and ReVaR's variance need some.
        dropout_placement: ``head`` or ``everywhere``.
        class_weight: ``None``, ``balanced``, or a dictionary from label to factor.
        meta_fraction: share for the meta set; ``None``: a tenth, if the method learns from one.
        tune_fraction: share that ``fused`` is fitted on; ``None``: a tenth, if it is the default.
        test_passes: dropout passes at prediction time; 0 takes none.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        random_state: seed of everything; ``None`` draws one and records it in ``seed_``.
        verbose: 1 shows a progress bar.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`.
        model_: the trained model, with its predictions on the training data's splits.
        seed_: the seed that was used.
        n_features_in_: columns of a table.
        feature_names_in_: their names, for a frame.
    """

    def __init__(
        self,
        method: str | Method = DEFAULT_METHOD,
        backbone: str | nn.Module = "auto",
        *,
        pretrained: str | Path | None = None,
        frozen: bool = False,
        layer_decay: float = 1.0,
        epochs: int = 30,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        optimiser: Literal["sgd", "adamw"] = "sgd",
        weight_decay: float = 5e-4,
        schedule: Literal["cosine", "step", "constant"] = "cosine",
        augment: Literal["auto", "none", "shift", "shift+flip"] = "auto",
        recompute: bool = False,
        micro_batch: int | None = None,
        dropout_rate: float = 0.3,
        dropout_placement: DropoutPlacement = "head",
        class_weight: str | Mapping[Any, float] | None = None,
        meta_fraction: float | None = None,
        tune_fraction: float | None = None,
        test_passes: int = 10,
        device: str = "auto",
        random_state: RandomStateLike = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.pretrained = pretrained
        self.frozen = frozen
        self.layer_decay = layer_decay
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.augment = augment
        self.recompute = recompute
        self.micro_batch = micro_batch
        self.dropout_rate = dropout_rate
        self.dropout_placement = dropout_placement
        self.class_weight = class_weight
        self.meta_fraction = meta_fraction
        self.tune_fraction = tune_fraction
        self.test_passes = test_passes
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        X_meta: Any = None,
        y_meta: Any = None,
        X_unlabelled: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train. A meta and a tune split are taken off the data if the method uses them.

        Args:
            X: [n, columns] table, images [n, h, w], [n, h, w, c] or [n, c, h, w], a pandas
                frame, or a map-style torch dataset.
            y: [n] labels of any kind; may be left out for a dataset of (input, label).
            X_meta: a meta set of your own, for instance from where the model will be used.
            y_meta: its labels.
            X_unlabelled: inputs without labels, for methods with ``unlabelled`` set.
            groups: [n] what must not be torn apart by a split, such as patients.
            sample_weight: [n] how much each example counts in the loss; only ratios matter.

        Raises:
            InputError: (a ``ValueError``) with one line that says what to change.
        """
        X, y = unpack(X, y)
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None")
        if getattr(y, "ndim", 1) == 2:
            msg = "A column-vector y was passed when a 1d array was expected"
            warnings.warn(msg, DataConversionWarning, stacklevel=2)
        labels = as_labels(y)
        meta = None
        if X_meta is None and y_meta is not None:
            raise InputError("y_meta is given without X_meta: give the inputs of the meta set too")
        if X_meta is not None:
            X_meta, y_meta = unpack(X_meta, y_meta)
            if y_meta is None:
                raise InputError("y_meta is missing: the meta set needs labels")
            meta = Part(X_meta, as_labels(y_meta))
        method = make_method(self.method)
        if X_unlabelled is not None and not method.uses_unlabelled:
            msg = "X_unlabelled is given but the method does not use it: ReVaR(unlabelled='pooled')"
            raise InputError(msg)
        unlabelled = None if X_unlabelled is None else Part(unpack_inputs(X_unlabelled))
        groups = None if groups is None else as_groups(groups)
        weights = example_weights(sample_weight)
        source = Source(Part(X, labels, groups, weights=weights), meta, {}, unlabelled)
        recipe = self._recipe(method, labels, seed_from(self.random_state))
        warn_of_unused(recipe, source)
        module = self.backbone if isinstance(self.backbone, nn.Module) else None
        device = choose(self.device)
        if self.verbose:
            with Bar(Console(stderr=True), type(method).__name__) as bar:
                model = fit_model(recipe, source, device=device, observer=bar, module=module)
        else:
            model = fit_model(recipe, source, device=device, observer=Silent(), module=module)
        self._adopt(model)
        return self

    def _recipe(self, method: Method, labels: NDArray[Any], seed: int) -> Recipe:
        return Recipe(
            method=method,
            backbone="custom" if isinstance(self.backbone, nn.Module) else self.backbone,
            dropout=Dropout(rate=self.dropout_rate, placement=self.dropout_placement),
            start=Start(
                pretrained=None if self.pretrained is None else str(self.pretrained),
                frozen=self.frozen,
                layer_decay=self.layer_decay,
            ),
            budget=Budget(**{name: getattr(self, name) for name in _BUDGET}),
            splits=SplitPlan.chosen(
                self.meta_fraction,
                self.tune_fraction,
                uses_meta=method.uses_meta,
                uses_tune=method.uses_tune,
            ),
            class_weight=class_factors(self.class_weight, labels),
            test_passes=self.test_passes,
            seed=seed,
        )

    def _adopt(self, model: Model) -> None:
        for name in ("feature_names_in_", "n_features_in_"):
            if hasattr(self, name):
                # Of an earlier fit, on other data.
                delattr(self, name)
        self.model_ = model
        self.seed_ = model.recipe.seed
        self.classes_ = model.classes.array
        if isinstance(model.inputs, FrameInputs):
            names = [column.name for column in model.inputs.columns]
            self.feature_names_in_ = np.asarray(names, dtype=object)
            self.n_features_in_ = len(names)
        elif len(model.task.input_shape) == 1:
            self.n_features_in_ = model.task.input_shape[0]

    def _predictions(self, X: Any, wanted: Wanted = NOTHING) -> Predictions:
        return self.model_.predict(unpack_inputs(X), wanted=wanted)

    def predict(self, X: Any) -> NDArray[Any]:
        """[n] labels, whether or not the classifier would rather abstain."""
        check_is_fitted(self, "model_")
        predictions = self._predictions(X)
        return self.model_.classes.decode(predictions.predicted)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """[n, C] class probabilities, columns in the order of ``classes_``."""
        check_is_fitted(self, "model_")
        return self._predictions(X).probabilities

    def uncertainty(self, X: Any, score: str | None = None) -> NDArray[np.float64]:
        """[n] uncertainty, higher is less certain.

        Args:
            X: inputs.
            score: a name of ``revar list scores``; ``None`` takes the method's default.
        """
        check_is_fitted(self, "model_")
        predictions = self._predictions(X, self.model_.needs(score))
        return self.model_.uncertainty(predictions, score)

    def set_threshold(
        self,
        X: Any,
        y: Any = None,
        *,
        coverage: float | None = None,
        max_risk: float | None = None,
        confidence: float = 0.95,
        procedure: Procedure = "fixed_sequence",
        score: str | None = None,
    ) -> Threshold:
        """Choose the threshold on calibration data the model has not seen.

        Args:
            X: calibration inputs.
            y: their labels; a coverage does not need them.
            coverage: share of such inputs to accept, or
            max_risk: share of errors among the accepted inputs that must not be exceeded.
            confidence: the chance, over the draw of the calibration data, that it is not.
            procedure: how a threshold for a risk is found, see `revar.selection`.
            score: a name of ``revar list scores``; ``None`` takes the method's default.

        Returns:
            Its ``threshold`` is ``None`` where no threshold will do; the classifier then abstains
            from everything, warns of it, and ``best`` says what could be had.

        Raises:
            InputError: not one of coverage and max_risk, a value out of its range, or data that
                served another purpose already.
        """
        check_is_fitted(self, "model_")
        raw, y = unpack(X, y)
        found = self.model_.select(
            raw, y, coverage=coverage, max_risk=max_risk, confidence=confidence,
            procedure=procedure, score=score,
        )  # fmt: skip
        if found.threshold is None:
            msg = f"{found.describe()}; until another is set, everything is rejected"
            warnings.warn(msg, DataWarning, stacklevel=2)
        return found

    def predict_or_abstain(self, X: Any) -> Decision:
        """Labels, and which of them to believe.

        Raises:
            InputError: no threshold was set.
        """
        check_is_fitted(self, "model_")
        threshold = self.model_.threshold
        if threshold is None:
            msg = "no threshold is set: call set_threshold(X_cal, y_cal, max_risk=0.05) first"
            raise InputError(msg)
        predictions = self._predictions(X, self.model_.needs(threshold.score))
        values = self.model_.uncertainty(predictions, threshold.score)
        numbers, _ = self.model_.answers(predictions, threshold.score)
        labels = self.model_.classes.decode(numbers)
        return Decision(labels, threshold.accept(values), values)

    def save(self, folder: str | Path) -> None:
        """Write a run folder, which ``revar evaluate`` and ``revar predict`` read too.

        Raises:
            InputError: the folder exists and is not empty, or cannot be written; it is as before.
        """
        check_is_fitted(self, "model_")
        run = RunFolder(Path(folder))
        run.begin(self.model_.recipe, {"spec": ARRAYS}, resume=False)
        try:
            run.write(self.model_)
        except BaseException:
            run.discard()
            raise
        finally:
            run.end()

    def export(self, path: str | Path) -> dict[str, Any]:
        """Write one graph that needs no revar, .onnx or .pt2; returns what <path>.json holds."""
        from revar.export import export_model

        check_is_fitted(self, "model_")
        return export_model(self.model_, Path(path)).description

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        backbone: nn.Module | None = None,
        method: type[Method] | None = None,
        device: str = "auto",
    ) -> Self:
        """Read a run folder, from `save` or from ``revar train``.

        Args:
            folder: the run.
            backbone: your own network, if it was trained with one.
            method: the class of your own method, if it was trained with one.
            device: to put it on.
        """
        run = RunFolder(Path(folder))
        model = run.load(device=choose(device), module=backbone, method=method)
        recipe = model.recipe
        weights: Any = recipe.class_weight
        if isinstance(weights, tuple):
            weights = dict(zip(model.classes.values, weights, strict=True))
        clf = cls(
            recipe.method,
            recipe.backbone if backbone is None else backbone,
            pretrained=recipe.start.pretrained,
            frozen=recipe.start.frozen,
            layer_decay=recipe.start.layer_decay,
            **{name: getattr(recipe.budget, name) for name in _BUDGET},
            dropout_rate=recipe.dropout.rate,
            dropout_placement=recipe.dropout.placement,
            class_weight=weights,
            meta_fraction=recipe.splits.meta,
            tune_fraction=recipe.splits.tune,
            test_passes=recipe.test_passes,
            device=device,
            random_state=recipe.seed,
        )  # fmt: skip
        clf._adopt(model)
        return clf
