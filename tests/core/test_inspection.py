"""What a first model is told about before a run begins with it."""

import numpy as np
import pytest

from anarchic import Layout
from anarchic.core.inspection import (
    LARGE,
    LARGEST,
    check_policy,
    concerns,
    negative_variance,
    running_statistics,
)
from anarchic.errors import ConfigError


def of(**dtypes):
    return Layout.of({name: ((2,), dtype) for name, dtype in dtypes.items()})


def test_running_statistics_are_known_by_their_names():
    names = [
        "running_var",
        "my_running_var",
        "a.bn.running_mean",
        "x/moving_variance",
        "n.num_batches_tracked",
    ]
    assert running_statistics([*names, "weight", "running_variable", "mean"]) == names


def test_running_statistics_without_a_policy_are_a_concern_with_a_command():
    layout = Layout.of({"w": ((2,), "F32"), "bn.running_var": ((2,), "F32")})
    (told,) = concerns(layout, "my model.safetensors")
    assert "bn.running_var" in told
    assert "variances negative" in told
    assert (
        "`anarchic init --from 'my model.safetensors' --buffers average --out averaged.safetensors`"
        in told
    )


def test_running_statistics_that_are_averaged_are_none():
    tensors = {"w": ((2,), "F32"), "bn.running_var": ((2,), "F32")}
    assert concerns(Layout.of(tensors, ["bn.running_var"]), "m") == []


def test_half_precision_and_stray_doubles_are_concerns():
    assert "1 of 2 tensors are in half precision (w)" in concerns(of(w="F16", b="F32"), "m")[0]
    assert "makes the whole model float64" in concerns(of(w="F64", b="F32"), "m")[0]
    assert concerns(of(w="F64", b="F64"), "m") == []


@pytest.mark.parametrize(
    ("size", "told"), [(LARGEST, "would fail"), (LARGE, "if that is too much"), (LARGE - 4, None)]
)
def test_the_size_is_a_concern(size, told):
    found = concerns(Layout.of({"w": ((size // 4,), "F32")}), "m")
    assert [told in each for each in found] == ([] if told is None else [True])


def test_only_variances_among_buffers_must_not_be_negative():
    tensors = dict.fromkeys(("a.running_var", "b.running_mean", "running_var"), ((2,), "F32"))
    layout = Layout.of(tensors, ["a.running_var", "b.running_mean"])
    vector = np.array([0, 1, -1, -1, -1, -1], np.float32)
    assert negative_variance(layout, vector) is None
    vector[1] = -0.5
    assert negative_variance(layout, vector) == ("a.running_var", -0.5)


def test_a_policy_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match="no policy for buffers 'mean'; there are average, local"):
        check_policy("mean")
