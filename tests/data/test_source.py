from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from revar.commands.predict import predict
from revar.commands.train import train
from revar.data.arrays import read_arrays
from revar.data.digits import digits, digits_noisy, shift
from revar.data.files import read_csv, read_frame, read_npz
from revar.data.source import Part, Reading, Source, evaluation_part, load_inputs, load_source
from revar.data.stored import ImageFiles
from revar.errors import DataWarning, InputError
from support.pictures import damaged, pixels, save

TABLES, GREY = Reading(), Reading(image_shape=(1, 4, 4))
X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])


def archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def labels(part: Part | None) -> list[Any]:
    assert part is not None
    assert part.y is not None
    listed: list[Any] = part.y.tolist()
    return listed


# --- archives


def test_an_archive_of_inputs_and_labels_is_all_training_data(tmp_path: Path) -> None:
    source = load_source(str(archive(tmp_path / "d.npz", x=X, y=Y)))
    np.testing.assert_array_equal(source.train.x, X)
    assert labels(source.train) == Y.tolist()
    assert source.train.groups is None
    assert (source.meta, source.unlabelled, source.tests) == (None, None, {})


def test_optional_arrays_become_the_parts_they_name(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "d.npz",
        x=X, y=Y, groups=np.array(list("aabbcc")), x_test=X + 1, y_test=Y[::-1], x_meta=X[:2] + 2,
        y_meta=Y[:2], x_unlabelled=X[:3] + 3,
    )  # fmt: skip
    source = load_source(str(path))
    assert source.train.groups is not None
    assert source.train.groups.tolist() == list("aabbcc")
    np.testing.assert_array_equal(source.tests["test"].x, X + 1)
    assert labels(source.tests["test"]) == [1, 0, 1, 0, 1, 0]
    np.testing.assert_array_equal(source.meta.x if source.meta else None, X[:2] + 2)
    assert labels(source.meta) == [0, 1]
    assert source.unlabelled is not None
    np.testing.assert_array_equal(source.unlabelled.x, X[:3] + 3)
    assert source.unlabelled.y is None


def test_labels_of_text_are_kept(tmp_path: Path) -> None:
    path = archive(tmp_path / "d.npz", x=X[:2], y=np.array(["cat", "dog"]))
    assert labels(read_npz(path).train) == ["cat", "dog"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, r'no array "y" \(it has x\)'),
        ({"y": Y, "X": X}, r'no array "x" \(it has y, X\)'),
        ({}, "it has nothing"),
        ({"x": X, "y": Y[:4]}, "x has 6 rows, y has 4"),
        ({"x": X, "y": Y, "x_test": X}, 'has "x_test" but no "y_test"'),
        ({"x": X, "y": Y, "x_meta": X, "y_meta": Y[:1]}, "x_meta has 6 rows, y_meta has 1"),
        ({"x": X, "y": Y, "groups": Y[:5]}, "x has 6 rows, groups has 5"),
        ({"x": np.array(3.0), "y": np.array(1)}, "x and y need a row per example"),
    ],
)
def test_an_archive_with_something_missing_says_what(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_npz(archive(tmp_path / "d.npz", **arrays))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_tset": X, "y_tset": Y}, 'unknown array of .*"x_tset": did you mean "x_test"'),
        ({"x_test": X, "y_tests": Y}, 'unknown array of .*"y_tests": did you mean "y_test"'),
        ({"x_unlabeled": X}, 'unknown array of .*"x_unlabeled": did you mean "x_unlabelled"'),
        ({"y_test": Y}, 'has "y_test" but no "x_test"'),
        ({"y_meta": Y}, 'has "y_meta" but no "x_meta"'),
    ],
)
def test_a_misspelt_array_is_refused_and_not_left_out(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_source(str(archive(tmp_path / "d.npz", x=X, y=Y, **arrays)))


def test_arrays_of_other_names_are_the_users_own_business(tmp_path: Path) -> None:
    source = load_source(str(archive(tmp_path / "d.npz", x=X, y=Y, feature_names=Y, xs=X)))
    assert len(source.train) == 6


class Trap:
    """Leaves a mark if it is ever unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_objects_in_an_archive_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    path = tmp_path / "d.npz"
    np.savez(path, allow_pickle=True, x=np.array([Trap(mark), 1], dtype=object), y=Y[:2])
    with pytest.raises(InputError, match="it holds Python objects; save plain numbers or text"):
        load_source(str(path))
    with pytest.raises(InputError, match="it holds Python objects"):
        load_inputs(str(path), TABLES)
    assert not mark.exists()
    # The trap is a working one.
    with np.load(path, allow_pickle=True) as opened:
        opened["x"]
    assert mark.exists()


def test_a_bare_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    path = tmp_path / "d.npz"
    path.write_bytes(f"cposix\nmkdir\n(V{mark}\ntR.".encode())
    with pytest.raises(InputError, match=r"d\.npz.* is no \.npz of plain arrays"):
        load_source(str(path))
    assert not mark.exists()


def test_one_array_under_the_name_of_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(InputError, match="it is one array"):
        read_arrays(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and then nothing"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "d.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"d\.npz.* is no \.npz of plain arrays"):
        read_arrays(path)


@pytest.mark.parametrize("start", [30, 120, 200, 400, 3000])
def test_a_damaged_archive_is_refused_wherever_the_damage_is(tmp_path: Path, start: int) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random((400, 2)), y=np.arange(400))
    content = bytearray(path.read_bytes())
    content[start : start + 60] = b"\x55" * 60
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"d\.npz.* is no \.npz of plain arrays: .") as caught:
        read_arrays(path)
    assert "\n" not in str(caught.value)


# --- tables

CSV = "\n".join(
    [
        "age, ward ,pressure,outcome",
        '30,"north, old",1.5,ill',
        "40, south, ?,well",
        ',"say ""hi""",2,well',
        "50,,NA,ill",
    ]
)


def test_a_table_has_numbers_text_and_gaps(tmp_path: Path) -> None:
    source = load_source(str(table(tmp_path / "d.csv", CSV)), Reading(target="outcome"))
    frame = source.train.x
    assert list(frame.columns) == ["age", "ward", "pressure"]
    np.testing.assert_array_equal(frame["age"], [30, 40, np.nan, 50])
    np.testing.assert_array_equal(frame["pressure"], [1.5, np.nan, 2, np.nan])
    assert frame["ward"].tolist()[:3] == ["north, old", "south", 'say "hi"']
    assert frame["ward"].isna().tolist() == [False, False, False, True]
    assert labels(source.train) == ["ill", "well", "well", "ill"]
    assert (source.meta, source.tests, source.train.groups) == (None, {}, None)


def test_the_column_of_groups_is_no_input(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", "id,a,y\np1,1,0\np1,2,1\np2,3,0\n")
    source = read_csv(path, Reading(target="y", group="id"))
    assert list(source.train.x.columns) == ["a"]
    assert source.train.groups is not None
    assert source.train.groups.tolist() == ["p1", "p1", "p2"]
    assert labels(source.train) == [0, 1, 0]


def test_a_table_without_a_target_lists_its_columns(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", CSV)
    with pytest.raises(InputError, match=r"needs --target.*columns: age, ward, pressure, outcome"):
        load_source(str(path))
    with pytest.raises(InputError, match=r'--target "outcom" is no column of .*columns: age, ward'):
        load_source(str(path), Reading(target="outcom"))
    with pytest.raises(InputError, match='--group "patient" is no column'):
        load_source(str(path), Reading(target="outcome", group="patient"))


def test_missing_labels_are_counted_and_their_line_named(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", "a,y\n1,0\n2,\n3,?\n4,1\n")
    with pytest.raises(InputError, match='target "y" is missing in 2 rows, first in line 3'):
        load_source(str(path), Reading(target="y"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no CSV table"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3,4,5\n", "is no CSV table"),
        (b"a,b\n1,2,3\n4,5,6\n", "its rows have more cells than its header"),
        (b'a,b\n1,"2\n', "is no CSV table"),
        ("a,b\n1,2\ncafé,1\n".encode("latin-1"), "is not UTF-8 in line 3: save"),
    ],
    ids=["empty", "header only", "one long row", "all rows long", "open quote", "latin-1"],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"d\.csv.*{message}") as caught:
        read_frame(path)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8-sig")
    assert list(read_frame(path).columns) == ["a", "b"]


# --- tables of paths


def pictures(folder: Path) -> dict[str, Any]:
    """Four small pictures, two of them in a folder of their own."""
    names = ("a.png", "b.png", "more/c.png", "more/d.png")
    return {name: save(folder / name, pixels(4, 4, seed=i)) for i, name in enumerate(names)}


LISTED = "\n".join(
    [
        "patient,file,age,outcome",
        "p1,b.png,30,ill",
        "p1,more/d.png,30,well",
        "p2,a.png,50,well",
    ]
)


def test_a_table_of_paths_names_images_relative_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pictures(tmp_path / "data")
    table(tmp_path / "data" / "list.csv", LISTED)
    monkeypatch.chdir(tmp_path)
    reading = Reading(target="outcome", group="patient", image="file")
    part = load_source("data/list.csv", reading).train
    assert isinstance(part.x, ImageFiles)
    expected = np.stack([kept[name] for name in ("b.png", "more/d.png", "a.png")])
    np.testing.assert_array_equal(part.x[:][:, 0], expected)
    assert labels(part) == ["ill", "well", "well"]
    assert part.groups is not None
    assert part.groups.tolist() == ["p1", "p1", "p2"]
    assert part.names == ("b.png", "more/d.png", "a.png")


def test_a_table_may_name_images_by_their_full_paths_and_more_than_once(tmp_path: Path) -> None:
    kept = pictures(tmp_path / "data")["a.png"]
    full = tmp_path / "data" / "a.png"
    path = table(tmp_path / "list.csv", f"file,y\n{full},0\ndata/a.png,1\n{full},0\n")
    part = load_source(str(path), Reading(target="y", image="file")).train
    np.testing.assert_array_equal(part.x[:][:, 0], np.stack([kept] * 3))


def test_images_of_a_table_are_read_at_one_shape_or_at_the_one_given(tmp_path: Path) -> None:
    pictures(tmp_path)
    save(tmp_path / "b.png", pixels(8, 12, 3))
    path = str(table(tmp_path / "list.csv", LISTED))
    assert load_source(path, Reading(target="outcome", image="file")).train.x.shape == (3, 3, 4, 4)
    given = Reading(target="outcome", image="file", image_shape=(1, 6, 5))
    assert load_source(path, given).train.x.shape == (3, 1, 6, 5)


def test_a_missing_path_is_named_by_its_line(tmp_path: Path) -> None:
    pictures(tmp_path)
    path = table(tmp_path / "list.csv", "file,y\na.png,0\nb.png,1\n,1\n?,0\n")
    for skip in (False, True):
        reading = Reading(target="y", image="file", skip_unreadable=skip)
        with pytest.raises(InputError, match=r'list\.csv": no image path in line 4'):
            load_source(str(path), reading)


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    pictures(tmp_path)
    path = str(table(tmp_path / "list.csv", "file,y\na.png,0\ngone.png,1\n"))
    with pytest.raises(InputError, match=r'"[^"]*gone\.png" of line 3 is not there') as seen:
        load_source(path, Reading(target="y", image="file"))
    assert "\n" not in str(seen.value)
    with pytest.raises(InputError, match=r'--image "path" is no column of .*columns: file, y'):
        load_source(path, Reading(target="y", image="path"))


def test_unreadable_images_of_a_table_are_skipped_with_their_labels_and_groups(
    tmp_path: Path,
) -> None:
    kept = pictures(tmp_path)
    damaged(tmp_path / "broken.png")
    text = "file,y,id\ngone.png,0,u\na.png,1,v\nbroken.png,0,w\nb.png,0,x\n"
    path = table(tmp_path / "list.csv", text)
    reading = Reading(target="y", group="id", image="file", skip_unreadable=True)
    with pytest.warns(DataWarning, match=r"^2 unreadable images were skipped, .*gone\.png"):
        part = load_source(str(path), reading).train
    assert labels(part) == [1, 0]
    assert part.groups is not None
    assert part.groups.tolist() == ["v", "x"]
    assert part.names == ("a.png", "b.png")
    np.testing.assert_array_equal(part.x[:][:, 0], np.stack([kept["a.png"], kept["b.png"]]))


# --- what a spec means


def test_an_unknown_name_gets_the_nearest_and_a_missing_path_does_not() -> None:
    with pytest.raises(InputError, match='unknown dataset "digit": did you mean "digits"'):
        load_source("digit")
    for spec in ("digit.npz", "some/where", "/no/such.csv"):
        with pytest.raises(InputError, match=f'no data at "{spec}"'):
            load_source(spec)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"none of: .*\.npz, \.csv"):
        load_source(str(path))


def test_a_folder_is_read_as_class_folders_at_the_shape_asked_for(tmp_path: Path) -> None:
    for name in "ab":
        save(tmp_path / name / "0.png", pixels(8, 8, 3))
    assert load_source(str(tmp_path)).train.x.shape == (2, 3, 8, 8)
    assert load_source(str(tmp_path), GREY).train.x.shape == (2, 1, 4, 4)


def test_a_part_of_a_registered_set_is_named_after_a_colon() -> None:
    whole = load_source("digits-noisy")
    for name, part in {"train": whole.train, **whole.tests}.items():
        alone = load_source(f"digits-noisy:{name}")
        np.testing.assert_array_equal(alone.train.x, part.x)
        assert alone.tests == {}
    with pytest.raises(InputError, match=r'part of digits "shifted".*known: train, test'):
        load_source("digits:shifted")
    with pytest.raises(InputError, match='did you mean "shifted"'):
        load_source("digits-noisy:shift")


def test_the_test_part_is_evaluated_where_there_is_one() -> None:
    train, test = Part(X, Y), Part(X[:2], Y[:2])
    assert evaluation_part(Source(train, tests={"test": test, "other": train})) is test
    assert evaluation_part(Source(train)) is train


def test_taking_rows_keeps_everything_in_step() -> None:
    rows = np.array([3, 0])
    names = tuple("abcdef")
    part = Part(X, Y, np.array(list("uuvvww")), names).take(rows)
    np.testing.assert_array_equal(part.x, X[rows])
    assert labels(part) == [1, 0]
    assert part.groups is not None
    assert part.groups.tolist() == ["v", "u"]
    assert part.names == ("d", "a")
    assert len(part) == 2
    frame = pd.DataFrame(X, columns=["p", "q"], index=[9, 8, 7, 6, 5, 4])
    np.testing.assert_array_equal(Part(frame).take(rows).x.to_numpy(), X[rows])
    assert torch.equal(Part(torch.from_numpy(X)).take(rows).x, torch.from_numpy(X[rows]))
    files = tuple(Path(f"{i}.png") for i in range(6))
    assert Part(ImageFiles(files, (1, 4, 4))).take(rows).x.paths == (files[3], files[0])
    bare = Part(X).take(rows)
    assert (bare.y, bare.groups, bare.names) == (None, None, None)


# --- inputs alone


def test_inputs_are_read_without_their_labels(tmp_path: Path) -> None:
    from_archive = load_inputs(str(archive(tmp_path / "d.npz", x=X, y=Y)), TABLES)
    np.testing.assert_array_equal(from_archive.x, X)
    assert from_archive.y is None
    from_table = load_inputs(str(table(tmp_path / "d.csv", "a,y\n1,0\n2,\n")), TABLES)
    assert list(from_table.x.columns) == ["a", "y"]
    assert from_table.y is None
    from_name = load_inputs("digits", Reading(image_shape=(1, 8, 8)))
    assert len(from_name) == 599
    assert from_name.y is None


def test_an_archive_without_inputs_says_what_it_has(tmp_path: Path) -> None:
    path = archive(tmp_path / "d.npz", inputs=X)
    with pytest.raises(InputError, match=r'no array "x" \(it has inputs\)'):
        load_inputs(str(path), TABLES)


def test_one_image_or_a_folder_of_them_is_read_at_the_models_shape(tmp_path: Path) -> None:
    first = save(tmp_path / "b.png", pixels(4, 4, seed=1))
    save(tmp_path / "sub" / "a.png", pixels(6, 9, 3, seed=2))
    one = load_inputs(str(tmp_path / "b.png"), GREY)
    np.testing.assert_array_equal(one.x[:][0, 0], first)
    assert one.names == (str(tmp_path / "b.png"),)
    both = load_inputs(str(tmp_path), GREY)
    assert both.names == ("b.png", "sub/a.png")
    assert both.x.shape == (2, 1, 4, 4)
    assert torch.equal(both.x[[0]], one.x[:])


def test_inputs_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "images" / "b.png", pixels(4, 4))
    with pytest.raises(InputError, match=r"is no table: this model reads \.csv or \.npz"):
        load_inputs(str(tmp_path / "images"), TABLES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no image files"):
        load_inputs(str(tmp_path / "empty"), GREY)
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    with pytest.raises(InputError, match=r"notes\.txt.* cannot be read as an image"):
        load_inputs(str(notes), GREY).x[:]
    with pytest.raises(InputError, match="no data at"):
        load_inputs(str(tmp_path / "gone.png"), GREY)


def test_inputs_may_be_a_table_of_paths_without_labels(tmp_path: Path) -> None:
    kept = pictures(tmp_path)
    path = table(tmp_path / "list.csv", "id,file\n1,more/c.png\n2,a.png\n")
    part = load_inputs(str(path), Reading(image="file", image_shape=(1, 4, 4)))
    assert (part.y, part.groups) == (None, None)
    assert part.names == ("more/c.png", "a.png")
    np.testing.assert_array_equal(part.x[:][:, 0], np.stack([kept["more/c.png"], kept["a.png"]]))
    # A model of tables reads the same file as a table.
    assert list(load_inputs(str(path), TABLES).x.columns) == ["id", "file"]


def test_unreadable_inputs_are_skipped_and_the_others_keep_their_names(tmp_path: Path) -> None:
    kept = pictures(tmp_path)
    damaged(tmp_path / "aa.png")
    with pytest.raises(InputError, match=r'aa\.png" cannot be read as an image'):
        load_inputs(str(tmp_path), GREY).x[:]
    skipping = Reading(image_shape=(1, 4, 4), skip_unreadable=True)
    with pytest.warns(DataWarning, match=r"^1 unreadable images were skipped, .*aa\.png"):
        part = load_inputs(str(tmp_path), skipping)
    assert part.names == tuple(kept)
    np.testing.assert_array_equal(part.x[:][:, 0], np.stack(list(kept.values())))
    with (
        pytest.warns(DataWarning, match="1 unreadable"),
        pytest.raises(InputError, match=r"none of 1 images can be read, .*aa\.png"),
    ):
        load_inputs(str(tmp_path / "aa.png"), skipping)


# --- digits


def test_digits_are_the_same_images_split_by_class() -> None:
    source = digits()
    train, test = source.train, source.tests["test"]
    assert (train.x.shape, test.x.shape) == ((1198, 8, 8), (599, 8, 8))
    assert train.x.dtype == np.uint8
    assert (train.x.min(), train.x.max()) == (0, 255)
    shares = np.bincount(labels(test)) / np.bincount(labels(train) + labels(test))
    np.testing.assert_allclose(shares, 1 / 3, atol=0.01)
    seen = {image.tobytes() for image in train.x}
    assert sum(image.tobytes() in seen for image in test.x) == 0


def test_noisy_digits_differ_in_their_training_labels_and_shifted_test() -> None:
    clean, noisy = digits(), digits_noisy()
    np.testing.assert_array_equal(noisy.train.x, clean.train.x)
    np.testing.assert_array_equal(noisy.tests["test"].x, clean.tests["test"].x)
    assert labels(noisy.tests["test"]) == labels(clean.tests["test"])
    assert labels(noisy.tests["shifted"]) == labels(clean.tests["test"])
    flipped = np.mean(np.array(labels(noisy.train)) != np.array(labels(clean.train)))
    # E q is 0.2 up to truncation at two deviations; the spread is that of 1,198 coin flips.
    assert flipped == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / 1198) + 0.01)
    assert labels(digits_noisy().train) == labels(noisy.train)


def test_shifting_darkens_and_moves_but_keeps_the_digit() -> None:
    images = digits().tests["test"].x
    shifted = shift(images)
    assert shifted.dtype == np.uint8
    assert shifted.shape == images.shape
    np.testing.assert_array_equal(shifted, shift(images))
    # An image that has not moved is nearest to its own darker self among all nine moves.
    padded = np.pad(0.8 * images, ((0, 0), (1, 1), (1, 1)))
    moves = [(dy, dx) for dy in range(3) for dx in range(3)]
    distances = [
        np.square(shifted - padded[:, dy : dy + 8, dx : dx + 8]).sum((1, 2)) for dy, dx in moves
    ]
    stayed = np.argmin(distances, axis=0) == moves.index((1, 1))
    # A third of the images draw a move, one in nine of which is none.
    assert stayed.mean() == pytest.approx(1 - 8 / 27, abs=0.08)
    for grey in (255, 128):
        left = shifted[stayed][images[stayed] == grey].astype(float)
        assert left.mean() == pytest.approx(0.8 * grey, abs=3)
        assert left.std() == pytest.approx(20, abs=3)


def test_which_rows_a_file_has_does_not_say_what_a_category_is(tmp_path: Path) -> None:
    """Codes that look like numbers, once the others are not there."""
    file = tmp_path / "codes.csv"
    file.write_text("\n\ncode,kind\n007,x\n4E2,y\n")
    frame = read_frame(file)
    assert frame["code"].tolist() == [7.0, 400.0]
    frame = read_frame(file, text=("code",))
    assert frame["code"].tolist() == ["007", "4E2"]
    codes = ["007", "4E2", "A1", "B2"] * 30
    rows = [f"{code},{'xy'[k % 2]}" for k, code in enumerate(codes)]
    (tmp_path / "train.csv").write_text("\n".join(["code,kind", *rows]) + "\n")
    settings = {"batch_size": "16", "test_passes": "0"}
    run = train(str(tmp_path / "train.csv"), tmp_path / "run", method="erm", target="kind",
                epochs=1, settings=settings)  # fmt: skip
    alone = predict(run.path, str(file))
    (tmp_path / "more.csv").write_text("code\n007\n4E2\nA1\n")
    beside = predict(run.path, str(tmp_path / "more.csv"))
    assert alone.rows == beside.rows[:2]
