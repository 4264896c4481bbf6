"""Mistakes are said in one sentence before training."""

from __future__ import annotations

import re

import numpy as np
import pytest

from anarchic.data import Dataset, iid
from anarchic.errors import ConfigError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

from anarchic.train.fit import check_fit  # noqa: E402
from anarchic.train.torch_task import TorchTask  # noqa: E402

X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
LABELS = np.arange(20) % 3
FLOATS = X[:, 0] * 2


def task(module, y, x=X, **settings):
    data = Dataset.of(x, y)
    return TorchTask(module, data, iid(len(data.y_train), 2, 0), **settings)


@pytest.mark.parametrize(
    ("module", "y", "settings", "says"),
    [
        (nn.Linear(5, 3), LABELS, {}, r"Linear fails on inputs of shape \(4,\).*cannot be multip"),
        (nn.Linear(4, 2), LABELS, {}, "scores 2 classes, but there are labels up to 2"),
        (nn.Linear(4, 1), FLOATS, {}, r"targets are floats.*loss=torch.nn.functional.mse_loss"),
        (
            nn.Linear(4, 1),
            FLOATS,
            {"loss": f.mse_loss},
            r"outputs of shape \(1,\) for targets of shape \(\).*y.reshape\(-1, 1\)",
        ),
        (
            nn.Linear(4, 2),
            np.stack([LABELS, LABELS, LABELS], 1),
            {},
            r"one score per class in the last dimension, \(3, 'classes'\)",
        ),
        (
            nn.Linear(4, 2),
            np.stack([FLOATS] * 3, 1),
            {"loss": f.mse_loss},
            r"mse_loss: the outputs of shape \(2,\).*targets of shape \(3,\)",
        ),
        (
            nn.Linear(4, 2),
            np.stack([LABELS > 0, LABELS > 1], 1).astype(int),
            {"loss": f.binary_cross_entropy_with_logits},
            r"do not fit .* give the targets as floats, y.astype\('float32'\)",
        ),
        (
            nn.Linear(4, 3),
            LABELS,
            {"loss": lambda out, y: f.cross_entropy(out, y, reduction="none")},
            r"gives \(2,\), not one number.*reduction='mean'",
        ),
        (nn.LSTM(4, 3), LABELS, {}, "forward=|nn.LSTM"),
        (
            nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 1)),
            np.stack([LABELS] * 4, 1).reshape(20, 2, 2),
            {},
            r"\(3, 2, 2\).*loss=torch.nn.functional.cross_entropy, which takes them in the second",
        ),
        (
            nn.Linear(4, 2),
            np.stack([LABELS > 0, LABELS > 1], 1),
            {},
            "The targets are bools, or fl",
        ),
    ],
)
def test_what_does_not_fit_is_said(module, y, settings, says):
    with pytest.raises(ConfigError, match=says):
        task(module, y, **settings)


def test_pixels_taken_for_tokens_are_told():
    pixels = np.ones((20, 4), np.uint8)
    with pytest.raises(ConfigError, match=r"taken for tokens.*/ 255 for pixels"):
        task(nn.Linear(4, 3), LABELS, x=pixels)


def test_ignored_labels_need_a_loss_that_ignores_them():
    y = np.stack([LABELS, np.full(20, -100)], 1)
    module = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)))
    with pytest.raises(ConfigError, match=r"labels -100.*torch.nn.functional.cross_entropy"):
        task(module, y)
    by_torch = task(module, y, loss=lambda out, y: f.cross_entropy(out.mT, y))
    found = by_torch.evaluate(by_torch.init())
    assert found["accuracy"] in {n / 4 for n in range(5)}  # of four labels that count


def test_a_tuple_is_refused_with_what_to_do():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    x, y = torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ConfigError, match="Pair returns a tuple, not a tensor: give forward="):
        check_fit(Pair(4, 3), f.cross_entropy, x, y)
    module = Pair(4, 3)
    check_fit(module, f.cross_entropy, x, y, lambda x: module(x)[0])


def test_trying_changes_nothing():
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.random.get_rng_state()
    check_fit(module, f.cross_entropy, torch.randn(2, 4), torch.tensor([0, 2]))
    torch.random.set_rng_state(state)
    check_fit(module, f.cross_entropy, torch.zeros(2, 4), torch.tensor([0, 2]))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [part.training for part in module] == [True, False, True]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


class Weighted(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, outputs, y):
        return f.cross_entropy(outputs, y) * self.log_scale.exp() - self.log_scale


def penalised(module):
    return lambda out, y: f.cross_entropy(out, y) + 0.1 * module.weight.square().sum()


@pytest.mark.parametrize("make_loss", [penalised, lambda _: Weighted()])
def test_a_loss_that_reads_parameters_is_refused(make_loss):
    module = nn.Linear(4, 3)
    loss = make_loss(module)
    with pytest.raises(ConfigError, match=r"not reached through the outputs.*weight_decay"):
        task(module, LABELS, loss=loss)
    module.requires_grad_(False)
    if isinstance(loss, nn.Module):
        loss.requires_grad_(False)  # it is a constant then
    task(nn.Linear(4, 3), LABELS, loss=loss)


def scripted():
    return torch.jit.script(nn.Linear(4, 3))


def nan():
    module = nn.Linear(4, 3)
    module.weight.data[0, 1] = float("nan")
    return module


@pytest.mark.parametrize(
    ("make", "settings", "says"),
    [
        (lambda: nn.Linear, {}, r"Linear is a class: give a module, Linear\(\.\.\.\)"),
        (lambda: f.relu, {}, "trains a torch.nn.Module, got a function"),
        (lambda: nn.DataParallel(nn.Linear(4, 3)), {}, "is a DataParallel.*its .module"),
        (lambda: nn.Sequential(scripted()), {}, "Module '0' is compiled by torch.jit"),
        (lambda: nn.Linear(4, 3, device="meta"), {}, "'weight' of Linear is on the meta device"),
        (nan, {}, "'weight' of Linear holds NaN or infinity in 1 of 12 places"),
        (lambda: nn.Linear(4, 3), {"loss": "cross_entropy"}, "functional.cross_entropy"),
        (lambda: nn.Linear(4, 3), {"loss": nn.CrossEntropyLoss}, r"give a loss, CrossEntropyLoss"),
        (lambda: nn.Linear(4, 3), {"loss": 3}, "The loss is a int: give a function"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_is_no_module_or_loss_is_said_with_what_to_give(make, settings, says):
    with pytest.raises(ConfigError, match=says):
        task(make(), LABELS, **settings)


@pytest.mark.parametrize("settings", [{}, {"loss": f.cross_entropy}])
def test_labels_in_a_column_are_told_to_be_ravelled(settings):
    with pytest.raises(ConfigError, match=r"shape \(1,\).*give one label per sample, y.ravel\(\)"):
        task(nn.Linear(4, 3), LABELS[:, None], **settings)


PAIRS = FLOATS.reshape(-1, 1) * [1, 2]
BOTH = (LABELS > 0).astype(int)


@pytest.mark.parametrize(
    ("module", "y", "loss", "remedies"),
    [
        (nn.Identity(), FLOATS, f.mse_loss, ["forward", "Flatten", "y"]),
        (nn.Flatten(0), FLOATS[:, None], f.mse_loss, ["forward", "y"]),
        (nn.Unflatten(1, (1, 2)), PAIRS, f.mse_loss, ["forward", "y"]),
        (nn.Identity(), BOTH, f.binary_cross_entropy_with_logits, ["y"]),
    ],
)
def test_the_remedies_for_shapes_that_differ_work(module, y, loss, remedies):
    module = nn.Sequential(nn.Linear(4, 2 if y is PAIRS else 1), module)
    with pytest.raises(ConfigError) as error:
        task(module, y, loss=loss)
    (told,) = error.value.args
    for remedy in remedies:
        layers, targets, options = [module], y, {}
        if remedy == "forward":
            options["forward"] = eval(re.search(r"forward=(lambda .*?\))[,:]", told).group(1))
        elif remedy == "Flatten":
            layers.append(eval(re.search(r"nn\.Flatten\(0\)", told).group(0)))
        else:
            targets = eval(re.search(r"y\.(astype\('float32'\)\.)?reshape\(.*?\)", told).group(0))
        made = task(nn.Sequential(*layers), targets, loss=loss, **options)
        assert np.isfinite(made.evaluate(made.init())["loss"])
