"""A rule of your own: the coordinate-wise median of m updates instead of their mean."""

from dataclasses import dataclass, field

import numpy as np

import anarchic


@dataclass
class MedianState(anarchic.RuleState):
    waiting: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Median(anarchic.SteppingRule):
    """x_{t+1} = x_t - eta * median_i(eta_L_i * G_i): a few liars cannot move it far."""

    m: int = 5
    server_lr: float = 1.0

    def begin(self, params):
        return MedianState(params)

    def fold(self, state, update):
        state.waiting[str(len(state.waiting))] = update.local_lr * update.direction

    def next_params(self, state):
        median = np.median([*state.waiting.values()], axis=0)
        state.waiting.clear()
        return state.params - self.server_lr * median


if __name__ == "__main__":  # or: anarchic simulate --rule own_rule:Median
    print(anarchic.simulate(anarchic.Settings(rule="own_rule:Median", rounds=60)).accuracy)
