from dataclasses import replace

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, FedAsync, SharedVectors
from anarchic.core.saving import pack, unpack
from anarchic.errors import ConfigError, RunError

from .make import update, vector


def test_a_state_is_packed_under_dotted_names():
    rule = SharedVectors(AfaCs(m=2), ("control",), population=4)
    state = rule.receive(rule.init(vector(0.0)), update([1.0], extras={"control": vector(2.0)}))
    arrays, numbers = pack(state)
    assert arrays["inner.params"].tolist() == [0.0]
    assert arrays["inner.rows.rows"].tolist() == [[1.0]]
    assert arrays["pending.control"].tolist() == [2.0]
    assert numbers["inner.rows.workers"] == ["a"]
    assert (numbers["inner.version"], numbers["inner.count"]) == (0, 1)


def test_the_order_of_a_dict_is_kept():
    rule = FedAsync(history=3)
    state = rule.init(vector(0.0))
    for version in range(10):
        state = rule.receive(state, update([1.0], base_version=version))
    assert list(unpack(rule.init(vector(0.0)), *pack(state)).history) == ["7", "8", "9"]


@pytest.mark.parametrize(
    ("written", "read"),
    [(AfaCd(m=1), AfaCs(m=1)), (AfaCs(m=1), AfaCd(m=1)), (AfaCd(m=1), FedAsync())],
    ids=str,
)
def test_the_state_of_another_rule_is_refused(written, read):
    with pytest.raises(RunError, match="another rule"):
        unpack(read.init(vector(0.0)), *pack(written.init(vector(0.0))))


@pytest.mark.parametrize("other", [np.zeros(2), np.zeros(1, np.float32)], ids=["dim", "dtype"])
def test_the_state_of_another_model_is_refused(other):
    rule = AfaCd(m=1)
    with pytest.raises(RunError, match="another model"):
        unpack(rule.init(vector(0.0)), *pack(rule.init(other)))


@pytest.mark.parametrize("value", [[], {"ann": 0.5}, "text"], ids=["list", "numbers", "text"])
def test_a_state_that_cannot_be_saved_is_refused(value):
    with pytest.raises(ConfigError, match=r"The state of a rule has .*, which cannot be saved"):
        pack(replace(AfaCd(m=1).init(vector(0.0)), extras=value))
