"""Every rule that the conformance suite runs over.

A new one joins by being listed in ``anarchic.core.registry``; a line in ``RULES`` here says more
about the circumstances under which it reaches the optimum.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from anarchic import (
    AdamStep,
    AfaCd,
    AfaCs,
    Clip,
    FedAsync,
    FedAvg,
    FedBuff,
    Guard,
    MimeLite,
    MomentumStep,
    Scaffold,
    Sgd,
    SharedVectors,
    StalenessDiscount,
    Update,
    YogiStep,
)
from anarchic.core import registry
from anarchic.core.buffers import AverageBuffers
from anarchic.core.rules import (
    Ace,
    Aced,
    Area,
    AsyncSgd,
    Ca2fl,
    Fadas,
    FedDyn,
    FedNova,
    FedStale,
    FedVarp,
    GeneralizedAsyncSgd,
    Malenia,
    Mifa,
    Rennala,
    Ringleader,
)  # fmt: skip

from .decaying import Decaying

WORKERS = ("ann", "bob", "cleo", "dan")
DIM = 5
SGD = Sgd()


@dataclass(frozen=True)
class Case:
    """A rule and the circumstances under which it is known to reach the optimum."""

    name: str
    rule: Any
    fresh: bool = False  # it only takes updates that start from the current version
    shared_optimum: bool = False  # it weighs workers unequally, so they must agree on the goal
    local: Any = SGD
    local_steps: int = 1
    names: tuple[str, ...] = ()  # extras that its updates carry
    within: float = 1e-6  # of the optimum
    visits: int = 400  # of each worker, after which it is that near


ADAM, YOGI = AdamStep(epsilon=0.1), YogiStep(epsilon=0.1)
CONTROL = {"names": ("control",), "local": Scaffold(), "local_steps": 3}

RULES = [
    Case("afa_cd", AfaCd(m=4)),
    Case("afa_cd one", AfaCd(m=1, server_lr=0.5), shared_optimum=True),
    Case("afa_cd momentum", AfaCd(m=4, server_lr=0.3, step=MomentumStep(0.8))),
    Case("afa_cd adam", AfaCd(m=4, server_lr=0.1, step=ADAM), visits=1000),
    Case("afa_cd yogi", AfaCd(m=4, server_lr=0.1, step=YOGI), visits=1000),
    Case("afa_cs", AfaCs(m=3)),
    Case("afa_cs population", AfaCs(m=2, population=4)),
    Case("afa_cs expiry", AfaCs(m=2, expire_after=3, cap=4)),
    Case("afa_cs momentum", AfaCs(m=3, server_lr=0.3, step=MomentumStep(0.8))),
    Case("afa_cs adam", AfaCs(m=3, server_lr=0.1, step=ADAM), visits=1000),
    Case("afa_cs yogi", AfaCs(m=3, server_lr=0.1, step=YOGI), visits=1000),
    Case("decaying", Decaying(m=4), shared_optimum=True),
    Case("clip decaying", Clip(Decaying(m=4), max_norm=1.0), shared_optimum=True),
    Case("discount decaying", StalenessDiscount(Decaying(m=3)), shared_optimum=True),
    Case("fedavg", FedAvg(m=4), fresh=True),
    Case("fedavg by samples", FedAvg(m=4, by_samples=True), fresh=True),
    Case("fedavg momentum", FedAvg(m=4, server_lr=0.3, step=MomentumStep(0.8)), fresh=True),
    Case("fedavg adam", FedAvg(m=4, server_lr=0.1, step=ADAM), fresh=True, visits=1000),
    Case("fedavg yogi", FedAvg(m=4, server_lr=0.1, step=YOGI), fresh=True, visits=1000),
    Case("fedbuff", FedBuff(m=4), shared_optimum=True),
    Case("fedbuff equal", FedBuff(m=4, power=0.0)),
    Case("fedbuff momentum", FedBuff(m=4, server_lr=0.3, step=MomentumStep(0.8), power=0.0)),
    Case("fedbuff adam", FedBuff(m=4, server_lr=0.1, step=ADAM, power=0.0), visits=1000),
    Case("fedbuff yogi", FedBuff(m=4, server_lr=0.1, step=YOGI, power=0.0), visits=1000),
    Case("fedasync", FedAsync(mixing=0.6, history=4), shared_optimum=True),
    Case("discount afa_cd", StalenessDiscount(AfaCd(m=4)), shared_optimum=True),
    Case("discount afa_cs", StalenessDiscount(AfaCs(m=3), power=1.0), shared_optimum=True),
    Case("discount fedasync", StalenessDiscount(FedAsync(history=4)), shared_optimum=True),
    Case("clip afa_cd", Clip(AfaCd(m=4), max_norm=1.0)),
    Case("clip afa_cs", Clip(AfaCs(m=3), max_norm=1.0)),
    Case("clip fedavg", Clip(FedAvg(m=4), max_norm=1.0), fresh=True),
    Case("clip fedbuff", Clip(FedBuff(m=4), max_norm=1.0), shared_optimum=True),
    Case("clip fedasync", Clip(FedAsync(history=4), max_norm=1.0), shared_optimum=True),
    Case("guard afa_cd", Guard(AfaCd(m=4))),
    Case("guard afa_cs", Guard(AfaCs(m=3), factor=2.0)),
    Case("guard fedavg", Guard(FedAvg(m=4)), fresh=True),
    Case("guard fedbuff", Guard(FedBuff(m=4)), shared_optimum=True),
    Case("guard fedasync", Guard(FedAsync(history=4), factor=1.0), shared_optimum=True),
    Case("guard decaying", Guard(Decaying(m=4)), shared_optimum=True),
    Case(
        "guard clip discount",
        Guard(Clip(StalenessDiscount(AfaCd(m=4)), 1.0), factor=1.0),
        shared_optimum=True,
    ),
    Case("clip discount", Clip(StalenessDiscount(AfaCd(m=4)), 1.0), shared_optimum=True),
    Case(
        "carry afa_cd", SharedVectors(AfaCd(m=4), ("control",), population=4), fresh=True, **CONTROL
    ),
    Case(
        "carry afa_cs", SharedVectors(AfaCs(m=4), ("control",), population=4), fresh=True, **CONTROL
    ),
    Case(
        "carry fedavg",
        SharedVectors(FedAvg(m=4), ("control",), population=4),
        fresh=True,
        **CONTROL,
    ),
    Case(
        "carry decaying",
        SharedVectors(Decaying(m=4), ("control",), population=4),
        fresh=True,
        shared_optimum=True,
        **CONTROL,
    ),
    Case(
        "carry clip",
        SharedVectors(Clip(AfaCd(m=4), 1.0), ("control",), population=4),
        True,
        **CONTROL,
    ),
    Case(
        "clip carry",
        Clip(SharedVectors(AfaCd(m=4), ("control",), population=4), 1.0),
        True,
        **CONTROL,
    ),
]

RULES += [
    Case(
        "guard carry",
        Guard(SharedVectors(AfaCd(m=4), ("control",), population=4)),
        fresh=True,
        **CONTROL,
    ),
    Case(
        "tight guard carry",
        Guard(SharedVectors(AfaCs(m=4), ("control",), population=4), factor=1.0),
        fresh=True,
        within=3.0,  # what is clipped of a control never reaches the server
        **CONTROL,
    ),
]
RULES += [
    Case("buffers afa_cd", AverageBuffers(AfaCd(m=4), (1, 3))),
    Case("buffers clip afa_cs", AverageBuffers(Clip(AfaCs(m=4), max_norm=1.0), (0, 4))),
    Case("buffers guard fedbuff", AverageBuffers(Guard(FedBuff(m=4, power=0.0)), (2,))),
    Case("buffers fedasync", AverageBuffers(FedAsync(history=4), (1,)), shared_optimum=True),
    Case(
        "buffers carry",
        AverageBuffers(SharedVectors(AfaCd(m=4), ("control",), population=4), (1, 3)),
        fresh=True,
        shared_optimum=True,
        **CONTROL,
    ),
]
RULES += [
    Case("ca2fl", Ca2fl(m=3, population=4)),
    Case("ca2fl expiry", Ca2fl(m=2, expire_after=3, cap=4), shared_optimum=True),
    Case("ca2fl guard", Guard(Ca2fl(m=3))),
    Case("fedvarp", FedVarp(m=4, population=4), fresh=True),
    Case("fedstale", FedStale(m=4, population=4), fresh=True),
    Case("mifa", Mifa(m=3, population=4, wait=False)),
    Case("mifa heard", Mifa(m=3)),
    Case("mifa waiting", Mifa(m=3, population=4)),
    Case("ace", Ace(server_lr=0.3)),
    Case("fadas", Fadas(m=4, server_lr=0.05, threshold=1), within=0.2, visits=1000),
    Case(
        "fadas code",
        Fadas(m=4, server_lr=0.1, threshold=1, form="code"),  # halved by a delay of 2
        within=0.2,
        visits=1000,
    ),
    Case("async_sgd", AsyncSgd(limit=2, server_lr=0.5), shared_optimum=True),
    Case("async_sgd ratio", AsyncSgd(limit=2, server_lr=0.5, form="ratio"), shared_optimum=True),
    Case("fednova", FedNova(m=4)),
    Case("fednova by samples", FedNova(m=4, by_samples=True), shared_optimum=True),
    Case("fednova proximal", FedNova(m=4, mu=0.5), shared_optimum=True),
    Case("fednova momentum", FedNova(m=4, momentum=0.5), shared_optimum=True),
    Case("feddyn", FedDyn(m=4, server_lr=0.3, population=4), fresh=True, visits=1000),
    Case("area", Area(m=3, population=4, history=4)),
    Case("area heard", Area(server_lr=0.5, history=4)),
    Case(
        "mimelite",
        SharedVectors(AfaCd(m=4), ("momentum",), population=4),
        names=("momentum",),
        local=MimeLite(beta=0.5),
    ),
    Case("aced", Aced(server_lr=0.3), shared_optimum=True),
    Case("aced limit", Aced(server_lr=0.3, limit=2), shared_optimum=True),
    Case("aced waiting", Aced(server_lr=0.3, limit=3, population=4), shared_optimum=True),
    Case("rennala", Rennala(batch=1, server_lr=0.5), shared_optimum=True),
    Case("rennala batch", Rennala(batch=2, server_lr=0.5), shared_optimum=True),
    Case("malenia", Malenia(batch=1)),
    Case("malenia population", Malenia(batch=6, population=4), visits=2000),
    Case("malenia expiry", Malenia(batch=1, expire_after=12)),
    Case("ringleader", Ringleader(server_lr=0.3)),
    Case("ringleader population", Ringleader(server_lr=0.3, population=4)),
    Case("ringleader expiry", Ringleader(server_lr=0.3, population=4, expire_after=12)),
    Case(
        "generalized",
        GeneralizedAsyncSgd(server_lr=0.3, probabilities="ann:.4,bob:.2"),
        shared_optimum=True,
    ),
    Case("fedasync hinge", FedAsync(history=4, discount="hinge"), shared_optimum=True),
]
LISTED = {type(case.rule) for case in RULES}
RULES += [
    Case(name, kind(m=4) if "m" in {f.name for f in fields(kind)} else kind(), shared_optimum=True)
    for name in registry.KINDS["rules"].built_in
    if (kind := registry.find("rules", name)) not in LISTED
]


def stream(case, updates, seed=0, dtype=np.float32):
    """Valid updates of every shape and size, in the order in which they are folded."""
    rng = np.random.default_rng(seed)
    found = []
    for index in range(updates):
        version = index // case.rule.m
        oldest = version if case.fresh else max(0, version - 3)
        found.append(
            Update(
                worker=str(rng.choice(WORKERS)),
                base_version=int(rng.integers(oldest, version + 1)),
                local_steps=int(rng.integers(1, 5)),
                local_lr=float(rng.uniform(0.05, 0.5)),
                direction=rng.normal(size=DIM).astype(dtype),
                samples=int(rng.integers(1, 9)),
                extras={name: rng.normal(size=DIM).astype(dtype) for name in case.names},
            )
        )
    return found


def with_m(rule, m):
    """The same rule, stepping every ``m`` updates."""
    inner = getattr(rule, "rule", None)
    return replace(rule, m=m) if inner is None else replace(rule, rule=with_m(inner, m))
