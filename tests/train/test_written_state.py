"""State that a forward pass writes to is seen, whatever the values in the trial step."""

from __future__ import annotations

import random
from functools import cached_property
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic.data import iid  # noqa: E402
from anarchic.errors import ConfigError  # noqa: E402
from anarchic.train.backends import Batched, Loop  # noqa: E402
from anarchic.train.torch_task import TorchTask  # noqa: E402
from tests.train.kinds import digits  # noqa: E402
from tests.train.short_runs import difference, walked  # noqa: E402


class Greatest(nn.Module):
    """It keeps the greatest value seen in a buffer, which two samples do not exceed."""

    def __init__(self, write):
        super().__init__()
        self.linear, self.write = nn.Linear(64, 10), write
        self.register_buffer("mx", torch.full((1,), 1.5))

    def forward(self, x):
        z = self.linear(x.flatten(1))
        self.write(self, torch.maximum(self.mx, z.detach().abs().max()))
        return z / self.mx


def copied(module, value):
    module.mx.copy_(value)


def replaced(module, value):
    module.mx = value


def data_replaced(module, value):
    module.mx.data = value


def data_copied(module, value):
    module.mx.data.copy_(value)


def made(module, **options):
    return TorchTask(module, digits(), iid(digits().y_train, 4, 0), **options)


def greatest(write, **options):
    torch.manual_seed(0)
    return made(Greatest(write), **options)


@pytest.mark.parametrize("write", [copied, replaced, data_replaced])
def test_a_write_that_leaves_the_value_as_it_is_counts_as_a_change(write):
    with pytest.raises(ConfigError, match="Buffer 'mx' of module '', a Greatest, changes"):
        greatest(write)
    task = greatest(write, buffers="average", dtype="float64")
    assert task.layout.buffers == ("mx",)
    assert difference(walked(task), walked(task, Loop())) < 1e-10


@pytest.mark.parametrize("backend", [Loop(), Batched()])
def test_writes_without_a_trace_do_not_reach_other_visits(backend):
    task = greatest(data_copied)
    task.module.linear.weight.data *= 100
    first = walked(task, backend)
    assert task.module.mx == 1.5
    assert first.tobytes() == walked(task, backend).tobytes()


def test_trying_a_forward_writes_nothing():
    task = greatest(copied, buffers="average", forward=lambda module, x: module(1000 * x))
    assert task.module.mx == 1.5


class Teacher(nn.Module):
    """A teacher that begins as its student and follows it."""

    def __init__(self, follow, patience=0):
        super().__init__()
        self.student, self.teacher = nn.Linear(64, 10), nn.Linear(64, 10)
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)
        self.follow, self.least = follow, patience

    def forward(self, x):
        if len(x) > self.least:
            with torch.no_grad():
                self.follow(self.teacher.weight, self.student.weight)
        return self.student(x.flatten(1)) + 0 * self.teacher(x.flatten(1))


def lerped(teacher, student):
    teacher.lerp_(student, 0.01)


def data_lerped(teacher, student):
    teacher.data.lerp_(student, 0.01)


@pytest.mark.parametrize("follow", [lerped, data_lerped])
def test_a_frozen_parameter_that_is_written_to_is_refused(follow):
    with pytest.raises(ConfigError, match=r"'teacher.weight' of Teacher is written.*make it a buf"):
        made(Teacher(follow))


def test_a_frozen_parameter_that_is_written_to_later_is_refused():
    task = made(Teacher(lerped, patience=2))
    with pytest.raises(ConfigError, match=r"'teacher.weight' of Teacher is written"):
        walked(task, Loop())


def test_a_trained_parameter_that_is_written_to_is_refused():
    class Clamped(nn.Linear):
        def forward(self, x):
            with torch.no_grad():
                self.weight.clamp_(-0.1, 0.1)
            return super().forward(x.flatten(1))

    with pytest.raises(ConfigError, match=r"'weight' of Clamped is written"):
        made(Clamped(64, 10))


def test_a_forward_that_calls_another_module_is_refused():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(ConfigError, match=r"none of the 2 trained parameters.*call the module"):
        made(module, forward=lambda _, x: module(x))


# State in plain attributes


class Kept(nn.Module):
    """Its outputs lose a mean of earlier outputs, which it keeps in an attribute."""

    def __init__(self, decay, inside=False):
        super().__init__()
        self.linear, self.decay, self.inside = nn.Linear(64, 10), decay, inside
        self.means = {"of": [torch.zeros(10)]} if inside else torch.zeros(10)

    def forward(self, x):
        z = self.linear(x.flatten(1))
        mean = self.means["of"][0] if self.inside else self.means
        if self.training:
            after = self.decay * mean + (1 - self.decay) * z.detach().mean(0)
            self.means = {"of": [after]} if self.inside else after
        return z.cos() - mean


@pytest.mark.parametrize("decay", [0.9, 0.99999])
@pytest.mark.parametrize("inside", [False, True])
def test_a_mean_that_is_kept_in_an_attribute_is_refused_by_name(decay, inside):
    told = r"Kept keeps '0.means' from one call to the next, .* self.register_buffer\('means'"
    for seed in range(3):
        torch.manual_seed(seed)
        with pytest.raises(ConfigError, match=told.replace("Kept", "Sequential")):
            made(nn.Sequential(Kept(decay, inside)))


class Remembering(nn.Module):
    """It does what ``remember`` says with every call, which seldom or never shows."""

    cells: ClassVar = {"calls": 0}

    def __init__(self, remember):
        super().__init__()
        self.linear, self.remember = nn.Linear(64, 10), remember
        self.calls, self.mean, self.held, self.flag = 0, None, SimpleNamespace(calls=0), False
        self.hidden, self.of_own = [nn.BatchNorm1d(10)], Own()
        self.rng = np.random.default_rng(0)

    def forward(self, x):
        return self.remember(self, self.linear(x.flatten(1)))


class Own:
    def __init__(self):
        self.calls, self.fixed = 0, np.ones(3)


CALLS = 0


def counted(module, z):
    module.calls += 1
    return z if module.calls < 40 else 2 * z


def meaned(module, z):
    """With the same samples always the same."""
    new = z.detach().mean(0)
    module.mean = new if module.mean is None else module.mean.lerp(new, 0.1)
    return z - module.mean


def first_seen(module, z):
    if module.mean is None:
        module.mean = z.detach().mean(0)
    return z - module.mean


def greatest_seen(module, z):
    module.mean = z.detach().amax(0).maximum(z[0] - 1e9 if module.mean is None else module.mean)
    return z


def by_class(module, z):
    module.cells["calls"] += 1
    return z


def by_global(module, z):
    global CALLS
    CALLS += 1
    return z


def by_object(module, z):
    module.of_own.calls += 1
    return z


def by_flag(module, z):
    module.flag = not module.flag
    return z


def by_hidden(module, z):
    module.hidden[0](z.detach())
    return z


def by_generator(module, z):
    return z if module.rng.random() > 1e-6 else 2 * z


def by_python(module, z):
    return z if random.random() > 1e-6 else 2 * z


def by_numpy(module, z):
    return z if np.random.rand() > 1e-6 else 2 * z  # noqa: NPY002 - as users do


def in_evaluation(module, z):
    module.calls += not module.training
    return z


def in_a_variable():
    calls = 0

    def remember(module, z):
        nonlocal calls
        calls += 1
        return z

    return remember


def in_a_list():
    seen = []

    def remember(module, z):
        seen.append(z.detach().mean().item())
        return z

    return remember


@pytest.mark.parametrize(
    ("remember", "name"),
    [
        (counted, "keeps 'calls'"),
        (meaned, "keeps 'mean'"),
        (first_seen, "keeps 'mean'"),
        (greatest_seen, "keeps 'mean'"),
        (by_class, "keeps 'cells'"),
        (by_global, r"keeps 'remember.CALLS'.*register_buffer\('CALLS'"),
        (by_object, "keeps 'of_own.calls'"),
        (by_flag, "keeps 'flag'"),
        (by_hidden, "keeps 'hidden'"),
        (by_generator, "draws from 'rng'"),
        (by_python, "draws from Python's or NumPy's own random numbers"),
        (by_numpy, "draws from Python's or NumPy's own random numbers"),
        (in_evaluation, "keeps 'calls'"),
        (in_a_variable(), "keeps 'remember.calls'"),
        (in_a_list(), "keeps 'remember.seen'"),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_whatever_is_kept_from_call_to_call_is_refused_by_name(remember, name):
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=f"Remembering {name}"):
        made(Remembering(remember))


def test_a_forward_and_a_loss_may_keep_nothing_either():
    calls = []

    def forward(module, x):
        calls.append(1)
        return module(x.flatten(1))

    with pytest.raises(ConfigError, match="keeps 'calls'"):
        made(nn.Linear(64, 10), forward=forward)

    class Smoothed(nn.CrossEntropyLoss):
        seen = 0

        def forward(self, outputs, y):
            self.seen += 1
            return super().forward(outputs, y)

    class Scaled(nn.CrossEntropyLoss):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(()))

        def forward(self, outputs, y):
            self.scale.mul_(0.9)
            return self.scale * super().forward(outputs, y)

    with pytest.raises(ConfigError, match="keeps 'seen'"):
        made(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), loss=Smoothed())
    with pytest.raises(ConfigError, match="keeps 'scale'"):
        made(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), loss=Scaled())


class Showing(nn.Module):
    """It keeps what is made once, and shows what it did last."""

    def __init__(self):
        super().__init__()
        self.linear, self.cache, self.seen, self.warned = nn.Linear(64, 10), {}, None, False
        self.last = {"mean": [0.0]}

    @cached_property
    def scale(self):
        return torch.full((10,), 0.5)

    def forward(self, x):
        ones = self.cache.setdefault(x.shape[1:], torch.ones(10))
        self.seen, self.warned = self.linear(x.flatten(1)), True
        self.last["mean"][0] = self.seen.detach().mean()
        return self.seen * ones * self.scale


def test_what_is_made_once_or_only_shown_may_be_kept(caplog):
    task = made(Showing(), dtype="float64")
    assert not caplog.records
    assert difference(walked(task), walked(task, Loop())) < 1e-10


def test_numbers_that_are_not_torch_s_are_refused_however_small():
    class Noisy(nn.Linear):
        def forward(self, x):
            noise = np.random.default_rng().normal(size=10).astype(np.float32)
            return super().forward(x.flatten(1)) + 1e-2 * torch.from_numpy(noise)

    with pytest.raises(ConfigError, match="two results for the same parameters and inputs"):
        made(Noisy(64, 10))
