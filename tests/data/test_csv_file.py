import gzip

import numpy as np
import pytest

from anarchic.data import by_role, load
from anarchic.errors import ConfigError, DataError

TEXT = "age,bmi,hospital,ill\n" + "".join(
    f"{20 + n},{25 + n / 10},{'north' if n % 3 else 'south'},{'yes' if n > 9 else 'no'}\n"
    for n in range(20)
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(TEXT)
    return str(path)


def test_a_table_becomes_workers_inputs_and_classes(table):
    data = load("csv", path=table, target="ill", owner="hospital", test=0.25, val=0.1)
    assert (data.name, data.classes, data.roles) == ("patients.csv", 2, ("north", "south"))
    assert (len(data.x_train), len(data.x_test), len(data.x_val)) == (13, 5, 2)
    assert sum(map(len, by_role(data))) == 13
    assert data.x_train.mean(0) == pytest.approx([0, 0], abs=1e-6)
    assert data.x_train.std(0) == pytest.approx([1, 1], abs=1e-6)


def test_numbers_in_the_target_are_regressed_on(table):
    data = load("csv", path=table, target="bmi", features="age", scale=False)
    assert (data.classes, data.x_train.shape, data.y_train.dtype) == (None, (16, 1), np.float32)
    assert load("csv", path=table, target="age,bmi", features="age").y_train.shape == (16, 2)


def test_test_samples_from_a_file_of_their_own(table, tmp_path):
    with gzip.open(tmp_path / "held.csv.gz", "wt") as file:
        file.write(TEXT)
    other = str(tmp_path / "held.csv.gz")
    data = load("csv", path=table, target="ill", features="age", test_path=other)
    assert (len(data.x_train), len(data.x_test)) == (20, 20)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n3\n", "line 3: 1 values, but the first line names 2"),
        ("a,a\n1,2\n", "two columns of one name"),
        ("a,b\n", "has 1 lines"),
        ("a,b\n1,2\n,3\n", "'a' has 1 missing values of 2"),
        ("a,b\nred,2\nblue,3\n", "'a' holds text"),
        ("a,c\n1,2\n3,4\n", "no column 'b'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, says):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        load("csv", path=str(path), target="b")


def test_missing_options_and_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match="csv needs the option path: give --data-option path"):
        load("csv", target="b")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        load("csv", path=str(tmp_path / "none.csv"), target="b")


def test_columns_of_the_test_file_are_found_by_name(table, tmp_path):
    rows = [line.split(",") for line in TEXT.splitlines()]
    other = tmp_path / "held.csv"
    other.write_text("".join(f"{ill},{bmi},{place},{age}\n" for age, bmi, place, ill in rows))
    how = {"target": "ill", "owner": "hospital", "test_path": str(other), "scale": False}
    data = load("csv", path=table, **how)
    assert np.array_equal(data.x_test, data.x_train)
    other.write_text("".join(f"{bmi},{ill},{place}\n" for _, bmi, place, ill in rows))
    with pytest.raises(DataError, match="The test samples have no column 'age'"):
        load("csv", path=table, **how)
