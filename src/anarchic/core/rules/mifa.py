"""MIFA and ACE: the mean of every worker's last update, once all were heard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from anarchic.core.rules.table import TableRule, TableState
from anarchic.core.types import Vector


@final
class Names:
    """Names of workers, in a state."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = set(names)

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {"names": sorted(self.names)}

    def unpack(self, arrays: Mapping[str, Any], numbers: Mapping[str, Any]) -> Names:
        return Names(numbers["names"])


@dataclass(slots=True)
class WaitingState(TableState):
    """A table that knows whether somebody was not heard yet."""

    waiting: bool = False
    gone: Names = field(default_factory=Names)  # forgotten meanwhile: nobody waits for them


@dataclass(frozen=True)
class WaitingRule(TableRule):
    """The model stays as it is until each of the ``population`` workers was heard once.

    Who was forgotten, as on revocation, counts as heard: it may never come again. Who is forgotten
    later counts as zero, as M stays.
    """

    wait: bool = True  # without a population there is nobody to wait for

    @property
    def waits(self) -> str | None:
        if not self.wait or self.population is None:
            return None
        return (
            f"{type(self).__name__} makes no step until each of {self.population} workers was "
            "heard once: begin the run with --rule-option wait=false to count those that were not "
            "as zero."
        )

    def begin(self, params: Vector) -> WaitingState:
        waiting = self.wait and self.population is not None
        return WaitingState(**self._first(params), waiting=waiting)

    def forget(self, state: Any, worker: str) -> bool:
        known = super().forget(state, worker)
        if not state.waiting or worker in state.gone.names:
            return known
        state.gone.names.add(worker)
        return True

    def next_params(self, state: Any) -> Vector:
        if state.waiting:
            self._expire(state)
            absent = sum(worker not in state.rows for worker in state.gone.names)
            if len(state.rows) + absent < (self.population or 0):
                params: Vector = state.params
                return params
            state.waiting, state.gone = False, Names()
        return super().next_params(state)


@final
@dataclass(frozen=True)
class Mifa(WaitingRule):
    """Memory-augmented impatient federated averaging.

        x_{t+1} = x_t - eta * (1/M) * sum_{i in [M]} K_i * eta_L_i * G_i

    The server remembers the whole displacement of every worker and steps along the mean of all.
    With K local steps each it is ``AfaCs`` with ``server_lr = K``. ``wait`` keeps the first model
    until all M were heard; ``wait=False`` counts those that were not as zero.
    Symbols: ``m`` is how many updates make a round, ``server_lr`` is eta, ``population`` is M.
    Reference: Gu, Huang, Zhang, Huang, "Fast Federated Learning in the Presence of Arbitrary Device
    Unavailability", NeurIPS 2021, arXiv:2106.04159. Known from the authors' program; the first
    round from FedVARP's paper. Departs from it in: a round is ``m`` updates; a row keeps the rate
    with which it was computed, where theirs is multiplied by the current one: the same unless rates
    change; without ``population`` the mean is over the workers heard so far.
    """

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps


@final
@dataclass(frozen=True)
class Ace(WaitingRule):
    """All-client engagement: every arrival steps along the mean of the newest of all workers.

        u_{t+1} = u_t + (1/M) * (eta_L_j * G_j - what was kept of j)
        x_{t+1} = x_t - eta * u_{t+1}

    Once all were heard it is ``AfaCs(m=1)``.
    Symbols: ``server_lr`` is eta, ``population`` is M.
    Reference: Chang et al., 2025, arXiv:2511.19066, ACE. Known from the authors' program. Departs
    from it in: the local rate is in the rows; workers may take several local steps; ``m`` updates
    may be taken before a step; without ``population`` nobody is waited for.
    """

    m: int = 1
