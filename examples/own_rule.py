"""A rule of one's own: the coordinate-wise median of the last m updates instead of their mean."""

from dataclasses import dataclass, field, replace

import numpy as np

import anarchic


@dataclass
class MedianState:
    params: np.ndarray
    version: int
    waiting: dict[str, np.ndarray] = field(default_factory=dict)
    extras: dict[str, np.ndarray] = field(default_factory=dict)  # nothing beside the model


@dataclass(frozen=True)
class Median:
    """x_{t+1} = x_t - eta * median_i(eta_L_i * G_i): a few liars cannot move it far."""

    m: int
    server_lr: float = 1.0

    def init(self, params):
        return MedianState(params.copy(), 0)

    def receive(self, state, update):
        anarchic.check(update, params=state.params, version=state.version)
        state.waiting[str(len(state.waiting))] = update.local_lr * update.direction
        return self.flush(state) if len(state.waiting) == self.m else state

    def receive_many(self, state, block):
        for row in range(len(block)):
            state = self.receive(state, block.row(row))
        return state

    def scale(self, local_lr, local_steps):
        return local_lr  # what Clip would bound

    def remaining(self, state):
        return self.m - len(state.waiting)

    def flush(self, state):
        if not state.waiting:
            return state
        step = self.server_lr * np.median(list(state.waiting.values()), axis=0)
        return MedianState((state.params - step).astype(state.params.dtype), state.version + 1)


settings = anarchic.Settings(batch=16, rounds=60, max_staleness=4)
experiment = replace(anarchic.build(settings), rule=Median(m=5))
print(f"median of five: accuracy {anarchic.simulate(experiment).accuracy:.3f}")
