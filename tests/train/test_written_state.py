"""State that a forward pass writes to is seen, whatever the values in the trial step."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from anarchic.data import iid  # noqa: E402
from anarchic.errors import ConfigError  # noqa: E402
from anarchic.train.backends import Batched, Loop  # noqa: E402
from anarchic.train.torch_task import TorchTask  # noqa: E402
from tests.train.kinds import digits  # noqa: E402
from tests.train.test_modules import difference, walked  # noqa: E402


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
