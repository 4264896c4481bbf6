"""Columns of a mapping; tests/bridges has pandas, Polars and Hugging Face."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic.data import Dataset
from anarchic.errors import DataError

COLUMNS = {
    "age": np.arange(10.0),
    "beds": np.arange(10),
    "city": np.array(list("abababcaba")),
    "scan": np.ones((10, 2, 2)),
    "ill": np.arange(10) % 2,
}


def of(**how):
    return Dataset.of(COLUMNS, **how)


def test_columns_of_numbers_stand_side_by_side():
    data = of(features=["age", "beds"], target="ill", owner="city")
    assert (data.x_train.shape, data.x_train.dtype) == ((8, 2), np.float32)
    assert data.roles == tuple("abc")[: len(data.roles)]
    assert of(features="age", target="ill").x_train.shape == (8, 1)


def test_a_column_of_arrays_is_the_input():
    assert of(features="scan", target="ill").x_train.shape == (8, 2, 2)


def test_several_target_columns_are_a_vector():
    assert of(features="age", target=["beds", "ill"]).y_train.shape == (8, 2)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, r"which column is the target with target=\.\.\.; there are age, beds"),
        ({"target": "il"}, "no column 'il'. Did you mean 'ill'"),
        ({"target": "ill"}, "'city' holds text, not numbers: encode it"),
        ({"target": "ill", "features": ["age", "scan"]}, "'scan' holds arrays of shape .* only"),
        ({"target": "ill", "owner": "town"}, "no column 'town'"),
    ],
)
def test_columns_that_do_not_fit_are_named(how, says):
    with pytest.raises(DataError, match=says):
        of(**how)


def test_missing_values_are_counted_by_column():
    age = np.where(np.arange(10) < 3, np.nan, 1.0)
    with pytest.raises(DataError, match="'age' has 3 missing values of 10"):
        Dataset.of({"age": age, "label": COLUMNS["ill"]})


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(DataError, match=r"columns have \[9, 10\] values"):
        Dataset.of({"age": np.ones(9), "label": COLUMNS["ill"]})


def test_rows_of_different_lengths_are_refused():
    texts = [[1, 2], [3]] * 5
    with pytest.raises(DataError, match=r"different shapes, such as .* pad or cut"):
        Dataset.of({"tokens": np.array(texts, object), "label": COLUMNS["ill"]})


def test_columns_of_other_parts_are_found_by_name():
    chosen = {name: COLUMNS[name] for name in ("age", "beds", "ill")}
    turned = {"name": np.array(["x"] * 10), **dict(reversed(chosen.items()))}
    data = Dataset.of(chosen, target="ill", test=turned, val=turned)
    for part in (data.x_test, data.x_val):
        assert np.array_equal(part, data.x_train)
    split = Dataset.of({"train": chosen, "test": turned}, target="ill")
    assert np.array_equal(split.x_test, split.x_train)


def test_the_target_of_other_parts_is_that_of_the_training_samples():
    chosen = {"age": COLUMNS["age"], "label": COLUMNS["ill"]}
    data = Dataset.of(chosen, test={"target": np.zeros(10), **chosen})
    assert data.y_test.tolist() == data.y_train.tolist()


@pytest.mark.parametrize("part", ["test", "val"])
def test_a_column_that_another_part_lacks_is_named(part):
    chosen = {name: COLUMNS[name] for name in ("age", "beds", "ill")}
    other = {"age": COLUMNS["age"], "rooms": COLUMNS["beds"], "ill": COLUMNS["ill"]}
    with pytest.raises(DataError, match=rf"The {part} samples have no column 'beds', which the .*"):
        Dataset.of(chosen, target="ill", **{part: other})
