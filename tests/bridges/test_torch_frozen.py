"""What a visit with a PyTorch module refuses beside buffers: other objects, lost changes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

import anarchic
from anarchic.errors import ConfigError
from tests.bridges.still import StillWorker

visit = anarchic.torch.visit


@pytest.mark.parametrize("moved", [0.5, 0.0])
def test_a_frozen_parameter_that_changes_and_does_not_travel_is_refused(moved):
    model = nn.ModuleDict({"student": nn.Linear(300, 20), "teacher": nn.Linear(300, 20)})
    model["teacher"].requires_grad_(False)
    worker = StillWorker({n: p.detach() for n, p in model.named_parameters() if "student" in n})

    def average(**options):
        with visit(worker, model, **options), torch.no_grad():
            for student, teacher in zip(*(m.parameters() for m in model.values()), strict=True):
                student += 1
                teacher.data.lerp_(student, moved)

    if moved:
        with pytest.raises(ConfigError, match=r"frozen parameter teacher\.weight changed"):
            average()
        assert worker.pushed == []
        average(train=lambda name: "student" in name)  # knowingly
    else:
        average()
    assert len(worker.pushed) == 1


def test_what_is_no_module_is_refused():
    model = nn.Linear(3, 2)
    with pytest.raises(ConfigError, match=r"torch\.nn\.Module, got a Adam"):
        visit(StillWorker.of(model), torch.optim.Adam(model.parameters()))
