"""Retinal data: by patient, two classes by grade, other countries as test domains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revar.data.patients import SHARES, WITHOUT_TEST, by_patient, patient_of
from revar.data.retina import binary, eyepacs_splits
from revar.data.source import Part, Source, load_source
from revar.data.targets import adapting, set_aside
from revar.errors import DataWarning, InputError
from support.layouts import retina, table
from support.pictures import pixels, save


@pytest.fixture(scope="module")
def eyepacs(real_data: Path) -> Source:
    return load_source("eyepacs")


def parts_of(source: Source) -> dict[str, Part]:
    assert source.meta is not None
    own = {"train": source.train, "meta": source.meta, **source.splits}
    return {**own, "test": source.tests["test"]}


def test_every_image_of_eyepacs_is_in_one_part_and_every_patient_too(eyepacs: Source) -> None:
    parts = parts_of(eyepacs)
    assert set(parts) == set(SHARES)
    names = [name for part in parts.values() for name in part.names or ()]
    assert len(names) == len(set(names)) == 6_440
    patients = [set(np.asarray(part.groups).tolist()) for part in parts.values()]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 4_254
    for part in parts.values():
        for name, patient in zip(part.names or (), np.asarray(part.groups), strict=True):
            assert name.split("_")[0] == patient


def test_parts_of_eyepacs_have_their_sizes_and_the_same_prevalence(eyepacs: Source) -> None:
    """The packed sheets have 42.5 % and 28.6 %; pooled it is 40.7 %."""
    whole = np.concatenate([np.asarray(part.y) for part in parts_of(eyepacs).values()])
    assert whole.mean() == pytest.approx((0.425 * 5_600 + 240) / 6_440, abs=1e-4)
    for name, part in parts_of(eyepacs).items():
        assert len(part) == pytest.approx(SHARES[name] * 6_440, abs=2)
        assert part.x.shape == (len(part), 96, 96, 3)
        assert np.mean(np.asarray(part.y)) == pytest.approx(whole.mean(), abs=0.01)


def test_images_and_grades_stay_together(eyepacs: Source, real_data: Path) -> None:
    """Any tile and its label, found again by its name in the table and on its sheet."""
    from revar.data.packed import sheet_rows, sheet_tiles

    labels = real_data / "diabetic_retinopathy" / "labels.csv"
    rows = sheet_rows(labels, "eyepacs_test.jpg", "image_id", "grade")
    tiles = sheet_tiles(labels.parent / "eyepacs_test.jpg", 96, 840)
    where = {name: i for i, name in enumerate(rows["image_id"].tolist())}
    test = eyepacs.tests["test"]
    seen = 0
    for k, name in enumerate(test.names or ()):
        if name in where:
            seen += 1
            np.testing.assert_array_equal(test.x[k], tiles[where[name]])
            assert np.asarray(test.y)[k] == (int(rows["grade"][where[name]]) >= 2)
    assert seen > 100


def test_other_countries_are_test_domains(eyepacs: Source) -> None:
    assert list(eyepacs.tests) == ["test", "aptos", "deepdrid"]
    aptos, deepdrid = eyepacs.tests["aptos"], eyepacs.tests["deepdrid"]
    assert (len(aptos), len(deepdrid)) == (3_662, 2_000)
    assert np.mean(np.asarray(aptos.y)) == pytest.approx(0.4061, abs=1e-4)
    assert len(set(np.asarray(deepdrid.groups).tolist())) == 500
    # No part of ours is theirs.
    assert not set(deepdrid.names or ()) & set(eyepacs.train.names or ())


def test_the_papers_threshold_makes_fewer_referable_in_the_same_split(eyepacs: Source) -> None:
    strict = eyepacs_splits(grade=3)
    assert strict.train.names == eyepacs.train.names
    mild, severe = (np.asarray(source.train.y) for source in (eyepacs, strict))
    assert (severe <= mild).all()
    assert severe.mean() == pytest.approx((0.106071 * 5_600 + 40) / 6_440, abs=3e-3)
    aptos = strict.tests["aptos"]
    assert np.mean(np.asarray(aptos.y)) == pytest.approx(0.1333, abs=1e-4)


def test_deepdrid_keeps_its_parts_which_share_no_patient(real_data: Path) -> None:
    source = load_source("deepdrid")
    assert source.meta is not None
    parts = [source.train, source.meta, source.tests["test"]]
    assert [len(part) for part in parts] == [1_200, 400, 400]
    patients = [set(np.asarray(part.groups).tolist()) for part in parts]
    assert len(set.union(*patients)) == sum(map(len, patients)) == 500
    rates = [np.mean(np.asarray(part.y)) for part in parts]
    assert rates == pytest.approx([0.4333, 0.45, 0.41], abs=1e-4)


# --- the split itself


def clinic(n_patients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grades and patients: one or two eyes each, mostly alike, in no order."""
    generator = np.random.default_rng(seed)
    grades, patients = [], []
    for patient in range(n_patients):
        first = int(generator.choice(5, p=[0.5, 0.1, 0.25, 0.1, 0.05]))
        for _ in range(int(generator.integers(1, 3))):
            other = int(generator.integers(0, 5))
            grades.append(first if generator.random() < 0.8 else other)
            patients.append(f"{patient}")
    order = generator.permutation(len(grades))
    return np.array(grades)[order], np.array(patients)[order]


@settings(max_examples=25, deadline=None)
@given(n=st.integers(60, 400), seed=st.integers(0, 10**6))
def test_no_patient_is_torn_and_every_grade_is_dealt_out(n: int, seed: int) -> None:
    grades, patients = clinic(n, seed)
    rows = by_patient(grades, patients, seed=seed)
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(len(grades)))
    owners = [set(patients[those].tolist()) for those in rows.values()]
    assert len(set.union(*owners)) == sum(map(len, owners))
    for name, those in rows.items():
        assert abs(len(those) - SHARES[name] * len(grades)) <= 2
        # At most a few patients off in any run of like ones.
        for threshold in (1, 2, 3):
            expected = SHARES[name] * (grades >= threshold).sum()
            assert abs((grades[those] >= threshold).sum() - expected) <= 8


def test_the_split_follows_its_seed_and_not_the_order_of_the_rows() -> None:
    grades, patients = clinic(200, 0)
    first, again, other = (by_patient(grades, patients, seed=s) for s in (1, 1, 2))
    for name in SHARES:
        np.testing.assert_array_equal(first[name], again[name])
    assert any(first[name].tolist() != other[name].tolist() for name in SHARES)
    # Another order of the rows, with patients where they were: the same patients together.
    order = np.random.default_rng(3).permutation(len(grades))
    moved = by_patient(grades[order], patients[order], seed=1)
    for name in SHARES:
        assert set(patients[order][moved[name]].tolist()) == set(patients[first[name]].tolist())


def test_shares_that_cannot_be_are_refused() -> None:
    grades, patients = clinic(50, 0)
    with pytest.raises(InputError, match="add up to 1"):
        by_patient(grades, patients, {"train": 0.5, "test": 0.4})
    with pytest.raises(InputError, match="2 patients are too few for train, meta"):
        by_patient(np.array([0, 1]), np.array(["a", "b"]))
    assert sum(WITHOUT_TEST.values()) == pytest.approx(1.0)
    assert patient_of(np.array(["10_left", "7", "9_l_1"])).tolist() == ["10", "7", "9"]


def test_grades_become_two_classes() -> None:
    part = Part(np.zeros(5), np.arange(5))
    assert np.asarray(binary(part, 2).y).tolist() == [0, 0, 1, 1, 1]
    assert np.asarray(binary(part, 3).y).tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(InputError, match="from 0 to 4, here is 5"):
        binary(Part(np.zeros(1), np.array([5])), 2)


# --- unlabelled points of a target


def test_points_given_away_have_no_labels_and_are_not_scored(eyepacs: Source) -> None:
    adapted = adapting(eyepacs, "deepdrid", share=0.1, seed=4)
    away, scored = adapted.unlabelled, adapted.tests["deepdrid"]
    assert away is not None
    assert away.y is None
    assert len(away) == 200
    assert len(scored) == 1_800
    # Whole patients, of four images each.
    assert not set(np.asarray(away.groups).tolist()) & set(np.asarray(scored.groups).tolist())
    everything = [*(away.names or ()), *(scored.names or ())]
    assert sorted(everything) == sorted(eyepacs.tests["deepdrid"].names or ())
    assert adapted.tests["aptos"] is eyepacs.tests["aptos"]
    with pytest.raises(InputError, match='unknown test set "aptoss": did you mean "aptos"'):
        adapting(eyepacs, "aptoss")
    with pytest.raises(InputError, match="unlabelled points of its own"):
        adapting(adapted, "aptos")


def test_what_is_given_away_follows_the_seed_alone() -> None:
    x = np.arange(100)
    one, other = Part(x, x % 2), Part(x, x % 5)
    for part in (one, other):
        away, scored = set_aside(part, 0.1, seed=0)
        np.testing.assert_array_equal(away.x, set_aside(one, 0.1, seed=0)[0].x)
        assert len(away) == 10
        assert sorted([*away.x.tolist(), *scored.x.tolist()]) == x.tolist()
    assert set_aside(one, seed=0)[0].x.tolist() != set_aside(one, seed=1)[0].x.tolist()
    for share in (0.0, 1.0):
        with pytest.raises(InputError, match=r"must be in \(0, 1\)"):
            set_aside(one, share)
    with pytest.raises(InputError, match="too few"):
        set_aside(Part(np.zeros(2), groups=np.zeros(2)), 0.5)


# --- imitations


def test_countries_that_are_not_there_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    listed = [(f"{i}_{eye}", i % 5) for i in range(30) for eye in ("left", "right")]
    tiles = retina(
        tmp_path / "diabetic_retinopathy",
        {"eyepacs_train": listed[:40], "eyepacs_test": listed[40:], "aptos": [("z", 3), ("y", 1)]},
    )
    with pytest.warns(DataWarning, match="not complete"):
        aptos = load_source("aptos")
    np.testing.assert_array_equal(aptos.train.x, tiles["aptos"])
    assert np.asarray(aptos.train.y).tolist() == [1, 0]
    with pytest.raises(InputError, match=r'every tile of "deepdrid_train\.jpg"'):
        load_source("deepdrid")
    with pytest.warns(DataWarning, match="not complete"):
        eyepacs = load_source("eyepacs")
    assert list(eyepacs.tests) == ["test", "aptos"]
    own = np.concatenate([tiles["eyepacs_train"], tiles["eyepacs_test"]])
    where = {name: i for i, (name, _) in enumerate(listed)}
    for part in parts_of(eyepacs).values():
        for k, name in enumerate(part.names or ()):
            np.testing.assert_array_equal(part.x[k], own[where[name]])
            assert np.asarray(part.y)[k] == (listed[where[name]][1] >= 2)


def test_kaggles_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    folder = tmp_path / "eyepacs"
    grades = {f"{i}_{eye}": i % 5 for i in range(40) for eye in ("left", "right")}
    table(folder / "trainLabels.csv", "image,level", list(grades.items()))
    solution = [("90_left", 4, "Private"), ("91_left", 0, "Public"), ("92_right", 1, "Private")]
    table(folder / "retinopathy_solution.csv", "image,level,Usage", solution)
    for name in grades:
        save(folder / "train" / f"{name}.jpeg", pixels(6, 6, 3))
    picture = save(folder / "test" / "90_left.jpeg", np.full((6, 6, 3), 70, np.uint8))
    table(tmp_path / "aptos" / "train.csv", "id_code,diagnosis", [("aa", 2), ("bb", 1)])
    save(tmp_path / "aptos" / "train_images" / "aa.png", pixels(9, 9, 3))
    with pytest.warns(DataWarning, match="not complete"):
        source = load_source("eyepacs")
    assert source.meta is not None
    held = [source.train, source.meta, *source.splits.values()]
    assert sum(map(len, held)) == 80
    owners = [set(np.asarray(part.groups).tolist()) for part in held]
    assert len(set.union(*owners)) == sum(map(len, owners)) == 40
    test = source.tests["test"]
    assert test.names == ("90_left", "92_right")
    assert np.asarray(test.y).tolist() == [1, 0]
    assert test.x.shape == (2, 3, 512, 512)
    assert abs(int(test.x[[0]].float().mean()) - int(picture.mean())) <= 1
    assert np.asarray(source.tests["aptos"].y).tolist() == [1, 0]
    for name, y in zip(source.train.names or (), np.asarray(source.train.y), strict=True):
        assert y == (grades[name] >= 2)


def test_the_repository_of_deepdrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    root = tmp_path / "DeepDRiD" / "regular_fundus_images"
    header = "patient_id,image_id,image_path,Overall quality,left_eye_DR_Level,right_eye_DR_Level"
    for name, patient in (("training", 1), ("validation", 265)):
        folder = root / f"regular-fundus-{name}"
        rows = [
            (patient, f"{patient}_l1", f"\\{folder.name}\\{patient}\\{patient}_l1.jpg", 0, 3, ""),
            (patient, f"{patient}_r1", f"\\{folder.name}\\{patient}\\{patient}_r1.jpg", 1, "", 1),
        ]
        table(folder / f"{folder.name}.csv", header, rows)
        for _, image, *_ in rows:
            save(folder / "Images" / str(patient) / f"{image}.jpg", pixels(8, 8, 3))
    with pytest.warns(DataWarning, match="not complete"):
        source = load_source("deepdrid")
    assert np.asarray(source.train.y).tolist() == [1, 0]
    assert np.asarray(source.tests["test"].groups).tolist() == ["265", "265"]
    assert source.train.x[[0, 1]].shape == (2, 3, 512, 512)
