"""``Dataset.of`` with real pandas and Polars frames."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.data import Dataset, by_role
from anarchic.errors import DataError

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

ROWS = 40
COLUMNS = {
    "age": [20 + n for n in range(ROWS)],
    "bmi": [20 + n / 4 for n in range(ROWS)],
    "smokes": [n % 3 == 0 for n in range(ROWS)],
    "hospital": [("north", "south", "east")[n % 3] for n in range(ROWS)],
    "ill": ["yes" if n > 25 else "no" for n in range(ROWS)],
}
LIBRARIES = [pandas.DataFrame, polars.DataFrame]


@pytest.mark.parametrize("frame", LIBRARIES)
def test_a_frame_is_split_into_inputs_targets_and_hospitals(frame):
    data = Dataset.of(frame(COLUMNS), target="ill", owner="hospital", val=0.1, seed=1)
    assert (data.x_train.shape, data.x_train.dtype) == ((28, 3), np.float32)
    assert (data.classes, data.roles) == (2, ("east", "north", "south"))
    age = data.x_train[:, 0].astype(int) - 20  # the number of the row
    assert data.y_train.tolist() == [int(row > 25) for row in age]
    for role, part in zip(data.roles, by_role(data), strict=True):
        assert {COLUMNS["hospital"][row] for row in age[part]} == {role}


@pytest.mark.parametrize("frame", LIBRARIES)
def test_targets_are_numbers_or_several_columns(frame):
    one = Dataset.of(frame(COLUMNS), target="bmi", features=["age", "smokes"])
    assert (one.classes, one.y_train.dtype, one.x_train.shape) == (None, np.float32, (32, 2))
    two = Dataset.of(frame(COLUMNS), target=["bmi", "smokes"], features="age")
    assert (two.y_train.shape, two.x_train.shape) == ((32, 2), (32, 1))


@pytest.mark.parametrize("frame", LIBRARIES)
def test_a_column_of_lists_is_the_input(frame):
    tokens = frame({"tokens": [[n, n + 1, n + 2] for n in range(10)], "label": [0, 1] * 5})
    data = Dataset.of(tokens)  # a column "label" is the target
    assert (data.x_train.shape, data.x_train.dtype.kind, data.classes) == ((8, 3), "i", 2)
    ragged = frame({"tokens": [[1], [1, 2]] * 5, "label": [0, 1] * 5})
    with pytest.raises(DataError, match=r"'tokens' have different shapes.*pad or cut"):
        Dataset.of(ragged)


@pytest.mark.parametrize("frame", LIBRARIES)
def test_columns_that_do_not_fit_are_named(frame):
    with pytest.raises(DataError, match=r"'hospital' holds text.*encode it"):
        Dataset.of(frame(COLUMNS), target="ill")
    with pytest.raises(DataError, match="'age' has 1 missing values of 40"):
        Dataset.of(
            frame({**COLUMNS, "age": [None, *range(1, ROWS)]}), target="ill", owner="hospital"
        )
    missing = [None, *COLUMNS["hospital"][1:]]
    with pytest.raises(DataError, match="'hospital' has 1 missing"):
        Dataset.of(frame({**COLUMNS, "hospital": missing}), target="ill", owner="hospital")


def test_categories_nullable_numbers_and_dates_of_pandas():
    frame = pandas.DataFrame(COLUMNS)
    frame["ill"] = frame["ill"].astype("category")
    frame["age"] = frame["age"].astype("Int64")
    data = Dataset.of(frame, target="ill", features=["age", "bmi"])
    assert (data.classes, data.x_train.dtype) == (2, np.float32)
    frame["day"] = pandas.Timestamp("2026-01-01")
    with pytest.raises(DataError, match="'day' holds dates"):
        Dataset.of(frame, target="ill", owner="hospital")


def test_series_are_arrays():
    frame = pandas.DataFrame(COLUMNS)
    data = Dataset.of(frame[["age", "bmi"]], frame["bmi"], owner=frame["hospital"])
    assert (data.x_train.shape, len(data.roles)) == ((32, 2), 3)


def test_two_columns_of_one_name_are_refused():
    twice = pandas.DataFrame([[1, 2, 0], [3, 4, 1]], columns=["a", "a", "label"])
    with pytest.raises(DataError, match="Two columns have one name: a, a, label"):
        Dataset.of(twice)


def test_a_lazy_frame_is_refused_with_what_to_do():
    with pytest.raises(DataError, match=r"call .collect\(\) first"):
        Dataset.of(polars.LazyFrame(COLUMNS), target="ill")


@pytest.mark.parametrize("frame", LIBRARIES)
def test_columns_of_other_parts_are_found_by_name(frame):
    train = frame({name: COLUMNS[name] for name in ("age", "bmi", "ill")})
    turned = frame({name: COLUMNS[name] for name in ("ill", "bmi", "smokes", "age")})
    inputs, target = ["age", "bmi"], COLUMNS["ill"]
    for data in (
        Dataset.of(train, target="ill", test=turned),
        Dataset.of({"train": train, "test": turned}, target="ill"),
        Dataset.of(train[inputs], target, test=(turned, target)),
        Dataset.of(train, target, features=inputs, test=(turned, target)),
    ):
        assert np.array_equal(data.x_test, data.x_train)
    for test in (frame({"age": COLUMNS["age"], "ill": target}), (turned[["age"]], target)):
        with pytest.raises(DataError, match="The test samples have no column 'bmi', which the tra"):
            Dataset.of(train, target="ill", test=test)


def test_targets_of_another_index_are_refused():
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"a": range(10)}, index=range(10))
    y = pandas.Series(range(10), index=range(10)) % 2
    mixed = y.sample(frac=1.0, random_state=0)
    with pytest.raises(DataError, match=r"different indices, first in row .*y.loc\[x.index\]"):
        Dataset.of(x, mixed)
    assert len(Dataset.of(x, mixed.loc[x.index]).y_train) == 8
    assert len(Dataset.of(x, mixed.to_numpy()).y_train) == 8
