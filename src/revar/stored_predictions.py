"""The predictions of a run on disk, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Protocol

from revar.predictions import Predictions


class Folder(Protocol):
    """Whoever has them."""

    def predictions(self, name: str) -> Predictions:
        """Those on one set."""

    def prediction_names(self) -> list[str]:
        """The sets there are predictions for."""


class StoredPredictions(MutableMapping[str, Predictions]):
    """The predictions of a run, read when they are asked for; new ones stay in memory.

    A copy that is sent elsewhere, by pickle, takes them along.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._names = folder.prediction_names()
        self._own: dict[str, Predictions] = {}

    def __getitem__(self, name: str) -> Predictions:
        if name in self._own:
            return self._own[name]
        if name not in self._names:
            raise KeyError(name)
        return self._folder.predictions(name)

    def __setitem__(self, name: str, predictions: Predictions) -> None:
        self._own[name] = predictions

    def __delitem__(self, name: str) -> None:
        self._own.pop(name, None)
        self._names = [other for other in self._names if other != name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._names, *self._own}))

    def __len__(self) -> int:
        return len({*self._names, *self._own})

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return dict, ({name: self[name] for name in self},)
