"""Rules fold torch tensors as they fold NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anarchic.core.rule import Rule
from anarchic.core.rules import AfaCd, AfaCs, FedAsync, FedAvg, FedBuff
from anarchic.core.saving import pack, unpack
from anarchic.core.steps import AdamStep, MomentumStep, YogiStep
from anarchic.core.types import Updates
from anarchic.core.wrappers import Clip, SharedVectors, StalenessDiscount
from anarchic.errors import ConfigError, MalformedUpdate, NotFinite

torch = pytest.importorskip("torch")

DIM = 7
RULES: dict[str, Rule[Any]] = {
    "afa-cd": AfaCd(3),
    "momentum": AfaCd(3, step=MomentumStep()),
    "adam": AfaCd(3, step=AdamStep()),
    "yogi": AfaCd(3, step=YogiStep()),
    "afa-cs": AfaCs(3, population=5),
    "afa-cs, expiring": AfaCs(3, expire_after=1),
    "fedbuff": FedBuff(3),
    "fedavg": FedAvg(3),
    "fedasync": FedAsync(),
    "clip": Clip(AfaCd(3), 0.5),
    "discount": StalenessDiscount(AfaCs(3)),
    "carry": SharedVectors(AfaCd(3), ("control",), 5),
}


def block(rule: str, version: int, turn: int, kind: Any) -> Updates:
    rng = np.random.default_rng(turn)
    directions = rng.standard_normal((3, DIM)).astype(np.float32)
    extras = {"control": kind(directions + 1)} if rule == "carry" else {}
    late = 0 if rule in ("fedavg", "fedasync") else min(version, 1)
    return Updates(
        [str(w) for w in rng.integers(0, 5, 3)],
        np.full(3, version - late),
        np.array([1, 2, 3]),
        np.full(3, 0.1),
        kind(directions),
        np.ones(3, np.int64),
        extras,
    )


def folded(name: str, kind: Any) -> Any:
    rule = RULES[name]
    state = rule.init(kind(np.arange(DIM, dtype=np.float32)))
    for turn in range(6):
        state = rule.receive_many(state, block(name, state.version, turn, kind))
        template = rule.init(kind(np.zeros(DIM, np.float32)))
        state = unpack(template, *pack(state))  # a checkpoint a round changes nothing
    return state


@pytest.mark.parametrize("name", RULES)
def test_a_rule_folds_tensors_as_arrays(name: str) -> None:
    arrays, tensors = folded(name, np.array), folded(name, torch.tensor)
    assert isinstance(tensors.params, torch.Tensor)
    assert tensors.version == arrays.version
    np.testing.assert_allclose(tensors.params.numpy(), arrays.params, rtol=2e-6, atol=1e-6)
    for extra, vector in arrays.extras.items():
        np.testing.assert_allclose(tensors.extras[extra].numpy(), vector, rtol=2e-6, atol=1e-6)


def test_a_step_leaves_published_tensors_alone() -> None:
    rule = AfaCd(3)
    state = rule.init(torch.zeros(DIM))
    published = state.params
    state = rule.receive_many(state, block("afa-cd", 0, 0, torch.tensor))
    assert state.version == 1
    assert not published.any()
    assert state.params.any()


def test_tensors_are_checked_like_arrays() -> None:
    rule = AfaCd(3)
    state = rule.init(torch.zeros(DIM))
    bad = block("afa-cd", 0, 0, torch.tensor)
    bad.directions[1, 2] = float("nan")
    with pytest.raises(NotFinite, match="direction of worker"):
        rule.receive_many(state, bad)
    with pytest.raises(MalformedUpdate, match="dtype"):
        rule.receive_many(state, block("afa-cd", 0, 0, lambda a: torch.tensor(a).double()))
    with pytest.raises(ConfigError, match="not all finite"):
        rule.init(torch.full((DIM,), float("inf")))
    assert state.count == 0
    assert not state.total.any()
