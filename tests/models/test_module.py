"""A module of one's own: what travels of it, and what is refused."""

import numpy as np
import pytest

from anarchic.errors import ConfigError
from anarchic.models.module import Choice, first_tensors, make_module, set_tensors

torch = pytest.importorskip("torch")
HERE = "tests.models.own_modules"


def first(name="Normed", options=None, **choice):
    module = make_module(f"{HERE}:{name}", options)
    return first_tensors(module, Choice(**choice), name)


def test_a_class_a_function_and_an_instance_are_modules():
    assert first("plain").layout.names == ("bias", "weight")
    assert first("instance", buffers="local").layout.dim == 2 * 3 + 2 + 2 * 2 + 2 * 2 + 2
    wide = first(options={"width": 7, "bias": False}, buffers="local")
    assert "first.bias" not in wide.layout.names
    assert wide.layout.slices["bn.weight"].stop - wide.layout.slices["bn.weight"].start == 7


def test_the_seed_says_the_numbers_and_leaves_the_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = (make_module(f"{HERE}:plain", seed=seed).weight for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_averaged_buffers_are_tensors_of_the_model():
    found = first(buffers="average")
    buffers = ("bn.num_batches_tracked", "bn.running_mean", "bn.running_var")
    assert found.layout.buffers == buffers
    assert found.buffers == ("average", buffers)
    tensors = found.layout.split(found.params)
    assert tensors["bn.running_var"].tolist() == [1.0] * 4
    assert tensors["bn.num_batches_tracked"].shape == ()
    assert "mask" not in tensors
    assert any("mask" in note and "--buffer-names" in note for note in found.notes)


def test_buffers_of_another_name_can_be_chosen():
    assert first(buffers="average", buffer_names="mask|running").layout.buffers == (
        "bn.running_mean",
        "bn.running_var",
        "mask",
    )


def test_local_buffers_stay_with_the_workers():
    found = first(buffers="local")
    assert found.layout.buffers == ()
    assert not any("running" in name for name in found.layout.names)
    assert found.buffers is not None
    assert (found.buffers[0], len(found.buffers[1])) == ("local", 3)


def test_statistics_of_a_part_in_eval_mode_need_no_policy():
    from tests.train.kinds import backbone

    found = first_tensors(backbone(), Choice(), "a backbone")
    assert found.layout.names == ("1.bias", "1.weight")
    assert found.policy is None
    with pytest.raises(ConfigError, match="has running statistics"):
        first_tensors(backbone().train(), Choice(), "a backbone")


def test_frozen_and_unchosen_parameters_do_not_travel():
    assert first("frozen").layout.names == ("1.bias", "1.weight")
    assert "0.weight" in first("frozen").notes[0]
    assert first(buffers="local", train=r"^last\.").layout.names == ("last.bias", "last.weight")


def test_half_precision_becomes_float32_with_a_note():
    found = first("half")
    assert found.params.dtype == np.float32
    assert "half precision" in found.notes[0]


def test_numbers_are_put_into_a_module():
    module = make_module(f"{HERE}:Normed")
    found = first_tensors(module, Choice(buffers="average"), "Normed")
    vector = np.arange(found.layout.dim, dtype=np.float32)
    tensors = found.layout.split(vector)
    tensors["bn.num_batches_tracked"] = np.array(6.7, np.float32)
    set_tensors(module, tensors, "Normed")
    assert module.bn.num_batches_tracked.item() == 7
    assert module.bn.num_batches_tracked.dtype == torch.int64
    assert module.bn.running_var.tolist() == tensors["bn.running_var"].tolist()
    assert module.mask.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("name", "choice", "told"),
    [
        ("Normed", {}, "has running statistics .*--buffers average.*--buffers local"),
        ("Normed", {"buffers": "refuse"}, "has running statistics"),
        ("Normed", {"buffers": "mean"}, "no policy for buffers 'mean'"),
        ("Normed", {"buffers": "local", "train": "nope"}, "matches --train 'nope'"),
        ("plain", {"train": "["}, "no regular expression"),
        ("lazy", {}, "has no numbers yet"),
        ("number", {}, "is of type int, and no torch.nn.Module"),
        ("none", {}, "gave a value of type NoneType"),
        ("failing", {}, "ValueError: no data here"),
    ],
)
def test_what_cannot_be_taken_is_refused(name, choice, told):
    with pytest.raises(ConfigError, match=told):
        first(name, **choice)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("Normed", {"depth": 3}, "unexpected keyword argument 'depth'.*--from-option"),
        ("instance", {"width": 3}, "is a module already"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, told):
    with pytest.raises(ConfigError, match=told):
        make_module(f"{HERE}:{name}", options)


def test_tensors_of_another_model_are_refused():
    module = make_module(f"{HERE}:plain")
    with pytest.raises(ConfigError, match="has no other"):
        set_tensors(module, {"other": np.zeros(1)}, "plain")
    with pytest.raises(ConfigError, match=r"has bias of shape \(2,\), the model \(3,\)"):
        set_tensors(module, {"bias": np.zeros(3)}, "plain")


def test_layers_in_a_plain_list_are_noted():
    class Listed(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.layers = {"more": [torch.nn.Linear(2, 2)]}

    (note,) = first_tensors(Listed(), Choice(), "Listed").notes
    assert "plain attributes layers" in note
    assert "nn.ModuleList" in note
