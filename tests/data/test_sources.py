"""``Dataset.of`` with arrays and lists; tests/bridges has the libraries that are heavy."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from anarchic.data import Dataset, by_role
from anarchic.errors import ConfigError, DataError

X = np.arange(60, dtype=np.float64).reshape(20, 3)
Y = np.arange(20) % 4


def rows_of(x):
    """The numbers of the rows of X that ``x`` has."""
    return (x[:, 0] // 3).astype(int).tolist()


def test_arrays_are_split_by_shares_and_a_seed():
    data = Dataset.of(X, Y, test=0.2, val=0.1, seed=3)
    assert (len(data.x_train), len(data.x_test), len(data.x_val)) == (14, 4, 2)
    parts = [rows_of(x) for x in (data.x_train, data.x_test, data.x_val)]
    assert sorted(row for part in parts for row in part) == list(range(20))
    assert data.y_train.tolist() == [Y[row] for row in parts[0]]
    assert (data.x_train.dtype, data.y_train.dtype, data.classes) == (np.float32, np.int64, 4)
    again = Dataset.of(X, Y, test=0.2, val=0.1, seed=3)
    assert np.array_equal(again.x_val, data.x_val)
    assert not np.array_equal(Dataset.of(X, Y, seed=4).x_test, data.x_test)


def test_parts_that_are_given_are_kept():
    data = Dataset.of(X[:10], Y[:10], test=(X[10:15], Y[10:15]), val=(X[15:], Y[15:]))
    assert rows_of(data.x_train) == list(range(10))
    assert (rows_of(data.x_test)[0], rows_of(data.x_val)[0]) == (10, 15)


def test_a_mapping_with_splits_is_taken_apart():
    data = Dataset.of({"train": (X, Y), "test": (X[:3], Y[:3]), "validation": (X[:2], Y[:2])})
    assert (len(data.x_train), len(data.x_test), len(data.x_val)) == (20, 3, 2)


@pytest.mark.parametrize(
    ("y", "classes", "dtype", "shape"),
    [
        (Y, 4, np.int64, ()),
        (Y.astype(np.uint8), 4, np.int64, ()),
        (Y > 1, 2, np.int64, ()),
        (np.array(["no", "yes"])[Y % 2], 2, np.int64, ()),
        (Y / 2, None, np.float32, ()),
        (np.stack([Y, Y], 1) / 2, None, np.float32, (2,)),
        (np.stack([Y > 1, Y > 2], 1), None, np.float32, (2,)),
        (np.stack([Y, Y, Y], 1), None, np.int64, (3,)),
    ],
)
def test_targets_decide_whether_there_are_classes(y, classes, dtype, shape):
    data = Dataset.of(X, y)
    assert (data.classes, data.y_train.dtype, data.y_train.shape[1:]) == (classes, dtype, shape)


def test_floats_are_labels_where_classes_are_asked_for():
    assert Dataset.of(X, Y.astype(float), classes=4).y_train.dtype == np.int64
    with pytest.raises(DataError, match="labels are of type float32, but there are 4 classes"):
        Dataset.of(X, Y / 2, classes=4)


def test_texts_are_numbered_in_order_over_all_parts():
    data = Dataset.of(X[:2], np.array(["b", "c"]), test=(X[:1], np.array(["a"])))
    assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([1, 2], [0], 3)


def test_owners_become_roles():
    owner = np.array(["north", "south", "east", "south"])[Y]
    data = Dataset.of(X, Y, owner=owner, test=0.25)
    assert data.roles == ("east", "north", "south")
    parts = by_role(data)
    assert set(data.y_train[parts[2]]) <= {1, 3}
    assert sum(map(len, parts)) == len(data.y_train) == 15
    assert [data.roles[role] for role in data.role_test] == [
        str(owner[row]) for row in rows_of(data.x_test)
    ]


def test_a_list_of_pairs_is_a_data_set():
    data = Dataset.of(list(zip(X, Y, strict=True)))
    assert (len(data.x_train), data.classes) == (16, 4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Dataset.of(X), r"without targets: Dataset.of\(x, y\)"),
        (lambda: Dataset.of(X, Y[:5]), r"inputs of shape \(20, 3\) and targets of shape \(5,\)"),
        (
            lambda: Dataset.of((X, X), Y),
            r"The input is a tuple of shapes \(20, 3\), \(20, 3\): sev",
        ),
        (lambda: Dataset.of((X, X), 3), "The input is a tuple of shapes"),
        (lambda: Dataset.of(((X, X), Y)), "The input is a tuple of shapes"),
        (lambda: Dataset.of({"a": X, "b": X}, Y), "The input is a dict with the keys a, b: sev"),
        (lambda: Dataset.of(42), "cannot read a int"),
        (lambda: Dataset.of([(1, 2, 3)]), r"\(input, target\), got 3 parts"),
        (lambda: Dataset.of([([1.0], 0), ([1.0, 2.0], 1)]), "Input 1 has shape .* pad or cut"),
        (lambda: Dataset.of(X, Y, owner=[1, 2]), r"owners of shape \(2,\) for 20 samples"),
        (lambda: Dataset.of(X, Y, owner=[None, "a"] * 10), "Some owners are missing"),
        (lambda: Dataset.of("table.csv"), r"cannot read a str.*load\('csv'"),
        (lambda: Dataset.of(X, Y, classes=0), "must be classes, or None; got 0"),
        (lambda: Dataset.of(X, np.where(Y > 0, np.inf, Y)), "targets hold NaN or infinity"),
        (lambda: Dataset.of(X, Y - 1), "labels go from -1 to"),
        (lambda: Dataset.of(X, Y, classes=3), "but there are 3 classes"),
        (lambda: Dataset.of(X, Y, test=(X[:, :2], Y)), "a test input has shape"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(call, says):
    with pytest.raises(DataError, match=says):
        call()


@pytest.mark.parametrize("absent", [None, float("nan")])
@pytest.mark.parametrize("present", ["yes", 3])
@pytest.mark.parametrize("first", [True, False])
def test_missing_labels_are_counted(absent, present, first):
    y = [absent, *[present] * 19] if first else [*[present] * 19, absent]
    says = "1 of 20 labels are missing|targets hold NaN or infinity in 1 of"
    for source in ((X, y), (X, np.array(y, object)), list(zip(X, y, strict=True))):
        with pytest.raises(DataError, match=says):
            Dataset.of(source)


def test_labels_of_two_kinds_are_refused():
    with pytest.raises(DataError, match="mixture of texts and numbers"):
        Dataset.of(X, np.array(["yes", 3] * 10, object))


def test_a_text_may_be_nan():
    assert Dataset.of(X, ["nan", "yes"] * 10).classes == 2


@pytest.mark.parametrize(
    "shares", [{"test": 1.5}, {"test": 0.6, "val": 0.5}, {"test": 0.0}, {"seed": -1}]
)
def test_shares_must_leave_something(shares):
    with pytest.raises(ConfigError, match=r"share|needs test samples|seed must"):
        Dataset.of(X, Y, **shares)


def test_inputs_that_are_not_finite_are_counted():
    wrong = X.copy()
    wrong[3, 1], wrong[7] = np.nan, np.inf
    with pytest.raises(DataError, match=r"training inputs hold NaN .* in 2 of 20 .* number 3"):
        Dataset.of(wrong, Y, test=(X, Y))


def test_an_array_on_disk_stays_there(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = Dataset.of(x[:15], Y[:15], test=(x[15:], Y[15:]))
    assert data.on_disk
    assert isinstance(data.x_train, np.memmap)
    assert data.x_train.dtype == np.float16
    with pytest.raises(DataError, match=r"would copy them: give test=\(x, y\)"):
        Dataset.of(x, Y)


def test_a_data_set_is_shown_by_its_sizes():
    shown = repr(Dataset.of(X, Y, val=0.1, owner=Y))
    assert shown == (
        "<Dataset mine: 14 training, 2 validation, 4 test samples, inputs (3,) float32, "
        "4 classes, 4 roles>"
    )


def test_an_array_far_larger_than_memory_is_looked_at_in_few_places(tmp_path):
    """8 GB, of which the file system holds only what is written."""
    x = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(1_000_000, 2_000))
    y = np.arange(len(x)) % 2
    tracemalloc.start()
    begun_s = time.perf_counter()
    data = Dataset.of(x[:-100], y[:-100], test=(x[-100:], y[-100:]))
    took_s, peak = time.perf_counter() - begun_s, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.on_disk
    assert took_s < 5  # single samples from all over took 15
    assert peak < 256 << 20
    x[-150, 3] = np.nan  # in the last piece
    with pytest.raises(DataError, match="first in number 999850"):
        Dataset.of(x[:-100], y[:-100], test=(x[-100:], y[-100:]))
    del data, x


def test_classes_without_training_samples_are_told(caplog):
    y = np.array([0, 1, 3] * 6 + [0, 4])
    Dataset.of(X[:18], y[:18], test=(X[18:], y[18:]), name="few")
    assert caplog.messages == [
        "few: 2 of 5 classes have no training sample: 2, 4. No model can learn them.",
        "few: 1 of 2 test samples are of classes without a training sample: 4. Give training "
        "samples of them, or leave these out.",
    ]
    caplog.clear()
    Dataset.of(X, Y, test=(X, Y))
    Dataset.of(X, Y / 2, test=(X, Y / 2))
    assert not caplog.messages
