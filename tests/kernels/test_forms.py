"""The declared protocol of the room: every form is there, and so is its twin."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

import anarchic.kernels
from anarchic.core import arrays, steps
from anarchic.core.rules import table
from anarchic.kernels import FORMS, chunks, find


@pytest.mark.parametrize("name", FORMS)
def test_a_form_and_its_twin_exist(name: str) -> None:
    form = FORMS[name]
    missing = [package for package in form.needs if find_spec(package) is None]
    if missing:
        assert find(name) is None
        pytest.skip(f"{missing} are not installed")
    assert callable(find(name))
    module, _, attribute = form.twin.partition(":")
    twin = import_module(module)
    assert not attribute or callable(getattr(twin, attribute))
    assert not module.startswith("anarchic.kernels")


def test_a_form_that_lacks_a_package_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    find.cache_clear()
    monkeypatch.setattr(
        anarchic.kernels, "find_spec", lambda name: None if name == "numba" else find_spec(name)
    )
    try:
        assert find("philox_words") is None
        assert find("lstm") is not None or find_spec("torch") is None
    finally:
        find.cache_clear()


def test_a_name_that_nobody_has_is_not_found() -> None:
    assert find("resnet_cuda") is None


def drawn(seed, *shape, dtype):
    """Of sizes seven powers of ten apart: any other order or rounding would show."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def added(function, total, rows):
    function(total, rows, np.array([0.3, 7.7]))
    return total


def exchanged(function, total, rows):
    kept = rows[1] + 1
    function(total, [table.RowExchange(kept, known, rows[0], 0.3) for known in (True, False)])
    return total, kept


def taken(function, total, rows):
    function(total, rows[0])
    return total


def stepped(function, total, rows):
    step = steps.AdamStep()
    moments = step.init(rows[0])
    return function(rows[0], total, moments, 3.0, step, 0.1, clear=True), total, *moments.values()


FOLDS = {
    arrays.add_scaled: added,
    arrays.norms: lambda function, total, rows: function(rows),
    table.exchange: exchanged,
    table.take_away: taken,
    steps.stepped: stepped,
}


@pytest.mark.parametrize(
    "dim",
    [
        *(0, 1, 9, chunks.CHUNK + 9),
        pytest.param(chunks.SHARED + 3 * chunks.CHUNK + 17, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("wide", "narrow"), [("f4", "f4"), ("f8", "f8"), ("f8", "f4")])
@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.__name__)
def test_a_fold_gives_the_bytes_of_its_twin(fold, wide, narrow, dim) -> None:
    found = []
    for function in (find(fold.__name__), fold.__wrapped__):
        total, rows = drawn(0, dim, dtype=wide), drawn(1, 2, dim, dtype=narrow)
        results = FOLDS[fold](function, total, rows)
        results = results if isinstance(results, tuple) else (results,)
        found.append([array.tobytes() for array in results])
    assert found[0] == found[1]


def test_bounds_are_no_less_than_the_norms() -> None:
    matrix = drawn(0, 3, chunks.CHUNK + 9, dtype="f4")
    least = arrays.norms_at_most.__wrapped__(matrix)
    assert (least == arrays.norms(matrix)).all()
    assert (arrays.norms_at_most(matrix) >= least).all()
