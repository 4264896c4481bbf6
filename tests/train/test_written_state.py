"""State that a forward pass writes to is seen, whatever the values in the trial step."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic.data import iid  # noqa: E402
from anarchic.errors import ConfigError  # noqa: E402
from anarchic.train import probe  # noqa: E402
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


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls, self.seen, self.cache = nn.Linear(64, 10), 0, None, {}

    def forward(self, x):
        self.calls += 1
        self.cache.setdefault("ones", torch.ones(10))  # made once
        self.seen = self.linear(x.flatten(1))  # the same for the same inputs
        return self.seen * self.cache["ones"]


def test_what_is_kept_and_does_not_matter_is_told_in_one_line(caplog):
    probe._say.cache_clear()
    made(Counting())
    (told,) = [each.message for each in caplog.records if "attribute" in each.message]
    assert told.startswith("Counting changes its attribute 'calls' with every call")


def test_numbers_that_are_not_torch_s_are_refused_however_small():
    class Noisy(nn.Linear):
        def forward(self, x):
            noise = np.random.default_rng().normal(size=10).astype(np.float32)
            return super().forward(x.flatten(1)) + 1e-2 * torch.from_numpy(noise)

    with pytest.raises(ConfigError, match="two results for the same parameters and inputs"):
        made(Noisy(64, 10))
