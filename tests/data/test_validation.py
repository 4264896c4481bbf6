from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anarchic import Settings, simulate
from anarchic.data import Dataset, load
from anarchic.data.validation import set_aside
from anarchic.errors import ConfigError


def made(samples=20, roles=None):
    x = np.arange(samples, dtype=np.float32)[:, None]
    data = Dataset("made", x, np.arange(samples) % 2, x[:2] - 100, np.array([0, 1]), 2)
    if roles is None:
        return data
    return replace(data, roles=tuple("abc"), role_train=np.array(roles))


def test_a_share_is_set_aside_and_no_sample_is_in_both_parts():
    data = set_aside(made(), 0.25)
    kept, aside = data.x_train[:, 0].tolist(), data.x_val[:, 0].tolist()
    assert (len(kept), len(aside)) == (15, 5)
    assert sorted(kept + aside) == list(range(20))
    assert data.y_val.tolist() == [int(x) % 2 for x in aside]
    assert data.y_train.tolist() == [int(x) % 2 for x in kept]
    assert data.x_test.tolist() == [[-100], [-99]]  # test data stay what they are


def test_it_is_always_the_same_samples():
    assert set_aside(made(), 0.25).x_val.tolist() == set_aside(made(), 0.25).x_val.tolist()


def test_each_role_gives_its_share_and_keeps_a_sample():
    roles = [0] * 10 + [1] * 9 + [2]
    data = set_aside(made(20, roles), 0.5)
    assert np.bincount(data.role_train).tolist() == [5, 5, 1]
    for x, role in zip(data.x_train[:, 0], data.role_train, strict=True):
        assert roles[int(x)] == role


def test_a_run_reports_it():
    run = simulate(Settings(val_share=0.2, rounds=2, batch=4, local_steps=1))
    assert {"val_accuracy", "accuracy"} <= run.metrics[-1].keys()
    assert run.summary["updates"] == 10


def test_what_cannot_be_set_aside_is_refused():
    data = made()
    with pytest.raises(ConfigError, match="above 0 and below 1, got 1"):
        set_aside(data, 1.0)
    with pytest.raises(ConfigError, match="has 5 validation samples of its own"):
        set_aside(set_aside(data, 0.25), 0.25)
    with pytest.raises(ConfigError, match=r"val_share=0.01 of 20 training samples is no sample"):
        set_aside(data, 0.01)
    with pytest.raises(ConfigError, match="above 0 and below 1, got -1"):
        Settings(val_share=-1.0)


def test_without_it_nothing_changes():
    assert Settings().val_share is None
    assert load("digits").x_val is None
