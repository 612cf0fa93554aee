"""What users give as inputs, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from revar import InputError, SelectiveClassifier
from revar.data.inputs import fit_inputs, unpack, unpack_inputs
from revar.data.stored import Items
from revar.data.tensors import as_tensor
from support.problems import blobs


class Made(Dataset[Any]):
    """A map-style dataset of what a function makes, which counts how often it is asked."""

    def __init__(self, make: Callable[[int], Any], n: int = 20) -> None:
        self.make, self.n = make, n
        self.asked = 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return self.make(index)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.zeros(2)])


ROW = torch.zeros(2)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (None, "X is None: give an array, a tensor, a pandas frame or a map-style"),
        ("data.csv", 'X is "data.csv", a name rather than data: read it first'),
        (Path("data.csv"), 'X is "data.csv", a name rather than data'),
        ({"a": [1]}, r"X is a dict: make a frame, pandas\.DataFrame"),
        ((row for row in [1]), "X is a generator: make a list of it"),
        (3, r"X has shape \(\): rows are"),
        (torch.tensor(1.0), r"X has shape \(\): rows are"),
        ([[1, 2], [1]], "rows of different lengths"),
        ([torch.zeros(2), torch.zeros(3)], r"item 1 has shape \(3,\)"),
        (torch.eye(3).to_sparse(), r"sparse or nested .*X\.to_dense"),
        (torch.empty(3, 2, device="meta"), 'device "meta"'),
        (np.ma.array([[1.0, 2.0]], mask=[[True, False]]), "X holds 1 masked values: fill them"),
        (DataLoader(TensorDataset(ROW)), r"X is a DataLoader.*give X\.dataset"),
        (Endless(), r"without a length \(Endless\)"),
        (Made(lambda i: {"x": ROW}), "item 0 is a dict"),
        (Made(lambda i: None), "item 0 is None"),
        (Made(lambda i: ("abc", 1)), "item 0 is a str"),
    ],
)
def test_what_is_no_data_is_refused_in_one_line(raw: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        unpack(raw, [0, 1])
    assert "\n" not in str(caught.value)


def test_a_fit_on_no_data_says_the_same() -> None:
    clf = SelectiveClassifier(epochs=1, device="cpu")
    for raw in (None, "data.csv", {"a": [1]}, 3):
        with pytest.raises(InputError, match=r"X is|X has"):
            clf.fit(raw, [0, 1])


def test_numbers_of_any_width_are_read() -> None:
    wide = np.arange(6).reshape(3, 2)
    expected = torch.arange(6.0).reshape(3, 2)
    rows = [row.clone().requires_grad_() for row in expected]
    for raw in (wide.astype(np.longdouble), rows, np.ma.array(wide)):
        assert torch.equal(as_tensor(raw), expected)
    with pytest.raises(InputError, match="too large for float32"):
        as_tensor(np.array([[10**400]], dtype=object))
    with pytest.raises(InputError, match="Complex data not supported"):
        as_tensor(wide.astype(np.clongdouble))


# --- datasets with labels


@pytest.mark.parametrize(
    "label", [torch.zeros(3), [0] * 3, None, {"boxes": 1}, np.eye(2)[0]], ids=str
)
def test_labels_that_nobody_asks_for_are_not_looked_at(label: Any) -> None:
    dataset = Made(lambda i: (ROW + i, label))
    raw = unpack_inputs(dataset)
    assert isinstance(raw, Items)
    assert dataset.asked == 1
    assert torch.equal(raw[:], torch.stack([ROW + i for i in range(20)]))
    given = list(range(20))
    assert unpack(dataset, given)[1] is given


@pytest.mark.parametrize("label", [torch.zeros(3), np.eye(3)[0], [0, 1, 2]], ids=str)
def test_several_values_are_no_label(label: Any) -> None:
    with pytest.raises(InputError, match=r"item 0 has a label of 3 values: one .* argmax"):
        unpack(Made(lambda i: (ROW, label)))


def test_predictions_read_every_item_once() -> None:
    x, y = blobs(60)
    clf = SelectiveClassifier("erm", epochs=1, random_state=0, device="cpu").fit(x, y)
    dataset = Made(lambda i: (x[i], torch.zeros(i % 3)), 60)
    for ask in (clf.predict, clf.predict_proba, clf.uncertainty):
        dataset.asked = 0
        assert np.array_equal(ask(dataset), ask(x))
        assert dataset.asked == 60 + 1, "one is looked at for its shape"


def test_labels_of_a_meta_set_need_its_inputs() -> None:
    x, y = blobs(60)
    with pytest.raises(InputError, match="y_meta is given without X_meta"):
        SelectiveClassifier("erm", epochs=1).fit(x, y, y_meta=y)


def test_a_threshold_needs_rows() -> None:
    x, y = blobs(60)
    clf = SelectiveClassifier("erm", epochs=1, random_state=0, device="cpu").fit(x, y)
    with pytest.raises(InputError, match="there are no rows that could serve as calibration"):
        clf.set_threshold(x[:0], y[:0], coverage=0.5)


def test_inputs_of_a_list_of_tensors_are_those_of_the_tensor() -> None:
    x = torch.randn(4, 3, 8, 8)
    assert fit_inputs(unpack_inputs(list(x)), np.arange(4)) == fit_inputs(x, np.arange(4))
