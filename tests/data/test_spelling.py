"""How the cells of a CSV file are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from revar.data.columns import row_of, some_of
from revar.data.files import read_csv, read_frame
from revar.data.source import Reading, load_inputs, load_source
from revar.data.spelling import GAPS
from revar.errors import InputError

LABELLED = Reading(target="y")


def table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def labels_of(folder: Path, *cells: str, reading: Reading = LABELLED) -> list[object]:
    rows = "".join(f"{number},{cell}\n" for number, cell in enumerate(cells))
    y = read_csv(table(folder / "d.csv", f"a,y\n{rows}"), reading).train.y
    assert y is not None
    found: list[object] = y.tolist()
    return found


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (("0", "1", "-1"), [0, 1, -1]),
        (("1.0", "2.00"), [1.0, 2.0]),
        (("1", "1.0", "2"), [1.0, 1.0, 2.0]),
        (("007", "012", "100"), ["007", "012", "100"]),
        (("1e3", "2e3"), ["1e3", "2e3"]),
        (("12345678901234567890123", "2"), ["12345678901234567890123", "2"]),
        # Two spellings of one number are no two classes.
        (("01", "1", "2"), [1, 1, 2]),
        (("0.5", "1e-05"), [0.5, 1e-05]),
        (("ok", "ok ", " bad"), ["ok", "ok", "bad"]),
        (("True", "TRUE", "false"), ["True", "True", "False"]),
        (("TRUE", "FALSE"), ["TRUE", "FALSE"]),
    ],
)
def test_labels_are_numbers_unless_those_would_not_give_them_back(
    cells: tuple[str, ...], labels: list[object], tmp_path: Path
) -> None:
    assert labels_of(tmp_path, *cells) == labels


def test_labels_are_read_as_those_of_the_run(tmp_path: Path) -> None:
    as_text = Reading(target="y", text=("y",))
    assert labels_of(tmp_path, "01", "2", "1", reading=as_text) == ["01", "2", "1"]
    as_numbers = Reading(target="y", numeric_labels=True)
    assert labels_of(tmp_path, "007", "1e3", reading=as_numbers) == [7, 1000]


def test_blanks_around_a_text_are_no_part_of_it(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", "a ,b\nx ,1\n x,NA \n NA ,2 \n")
    frame = read_frame(path)
    assert list(frame.columns) == ["a", "b"]
    assert frame["a"].tolist()[:2] == ["x", "x"]
    assert frame["a"].isna().tolist() == [False, False, True]
    np.testing.assert_array_equal(frame["b"], [1, np.nan, 2])
    # As versions read them that had not this rule.
    assert read_frame(path, strip=False)["a"].tolist() == ["x ", "x", "NA "]


@pytest.mark.parametrize("gap", GAPS)
def test_the_words_for_gaps(gap: str, tmp_path: Path) -> None:
    frame = read_frame(table(tmp_path / "d.csv", f"a,b\n1,x\n{gap},{gap}\n"))
    assert frame.isna().all(axis=1).tolist() == [False, True]
    assert frame["a"].dtype == np.float64


def test_a_class_that_is_read_as_a_gap_is_told(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", 'a,y\n"two\nlines",mild\n2,None\n3,None\n4,NA\n5,\n6,mild\n')
    with pytest.raises(InputError) as caught:
        load_source(str(path), LABELLED)
    said = str(caught.value)
    assert 'is missing in 4 rows, first in line 4, read as gaps: "None" (2), "NA" (1): ' in said
    assert 'such as "class None", else leave those rows out' in said


def test_a_row_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", 'y,a,b\n0,"1\n1",2\n\n1,3,\n0,4')
    with pytest.raises(InputError, match=r'd\.csv" is cut short in line 6: it has fewer cells'):
        load_source(str(path), LABELLED)
    assert len(read_frame(table(path, 'y,a,b\n0,"1\n1",2\n\n   \n1,3,\n'))) == 2


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", 'a, b\n"1\n1",2\n\n3,4\n')
    assert row_of(path, 0) == (2, {"a": "1\n1", "b": "2"})
    assert row_of(path, 1) == (5, {"a": "3", "b": "4"})


@pytest.mark.parametrize("value", ["inf", "-inf", "1e300"])
def test_numbers_beyond_all_bounds_are_named_by_line_and_column(value: str, tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", f"a,y\n1,0\n{value},1\n")
    with pytest.raises(InputError, match=rf'd\.csv": column "a" is "{value}" in line 3: numbers'):
        load_source(str(path), LABELLED)
    # A column that the model does not read may hold anything.
    assert len(load_inputs(str(path), Reading(needed=("y",)))) == 2


def test_text_where_numbers_were_is_named_by_line(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", "a,b\nTRUE,1\n,x\n12 kg,2\n")
    with pytest.raises(InputError, match=r'column "a" is "12 kg" in line 4: it held numbers'):
        load_inputs(str(path), Reading(needed=("b", "a"), text=("b",)))
    with pytest.raises(InputError, match=r'column "A" is missing.*did you mean "a"'):
        load_inputs(str(path), Reading(needed=("A",)))


def test_other_signs_between_columns_are_told(tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", "a;b;y\n1;2;0\n")
    with pytest.raises(InputError, match=r'no column of .* are parted by ";", save it with commas'):
        load_source(str(path), LABELLED)
    with pytest.raises(InputError, match=r'more cells than its header: .* are parted by ";"'):
        read_frame(table(path, "a;b;y\n1,5;2;0\n"))


def test_few_of_many_columns_are_listed(tmp_path: Path) -> None:
    names = [f"gene_{number}" for number in range(3000)]
    path = table(tmp_path / "d.csv", f"{','.join(names)},y\n{'1,' * 3000}0\n")
    with pytest.raises(InputError, match=r'mean "gene_1234"\? columns: .*\(3001 in all\)') as error:
        load_source(str(path), Reading(target="Gene_1234"))
    assert len(str(error.value)) < 400
    assert some_of(["a"]) == "columns: a"


def test_large_letters_in_the_suffix_change_nothing(tmp_path: Path) -> None:
    path = table(tmp_path / "d.CSV", "a,y\n1,0\n2,1\n")
    assert len(load_source(str(path), LABELLED).train) == 2
    assert len(load_inputs(str(path), Reading())) == 2


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("d.tsv", r"pandas\.read_csv\(.*sep"),
        ("d.parquet", r"read_parquet\(.*to_csv\(\"d\.csv\", index=False\)"),
        ("d.xlsx", "read_excel"),
        ("d.csv.gz", "unpack it first"),
    ],
)
def test_tables_of_other_kinds_are_to_be_converted(name: str, way: str, tmp_path: Path) -> None:
    path = table(tmp_path / name, "")
    for read in (load_source, load_inputs):
        with pytest.raises(InputError, match=way):
            read(str(path), LABELLED)
