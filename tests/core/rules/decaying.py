"""A rule that is deliberately unlike the others, to see what a new rule costs.

It keeps two things of every worker, of different lengths, and a schedule of its own.
"""

from dataclasses import dataclass, field

import numpy as np

from anarchic import RuleState, SteppingRule, WorkerRows
from anarchic.core.arrays import times, zeros


@dataclass
class DecayingState(RuleState):
    """The sum since the last step, what is kept of workers, and the steps of the schedule."""

    total: np.ndarray = field(kw_only=True)
    means: WorkerRows = field(kw_only=True)  # of every worker: a moving mean of eta_L_i * G_i
    visits: WorkerRows = field(kw_only=True)  # of every worker: one number, how often it came
    steps: int = 0


@dataclass(frozen=True)
class Decaying(SteppingRule):
    """Workers weigh less the more often they came, and the server's rate falls with its steps.

        x_{t+1} = x_t - eta / sqrt(1 + t/period) * (1/m) * sum_i max(least, decay^n_i) * v_i

    where v_i = beta * v_i + (1 - beta) * eta_L_i * G_i and n_i is how often worker i came before.
    """

    m: int = 5
    server_lr: float = 1.0
    beta: float = 0.5
    decay: float = 0.9
    least: float = 0.5
    period: int = 1000

    def begin(self, params):
        rows = {"means": WorkerRows(params), "visits": WorkerRows(zeros(params, (1,)))}
        return DecayingState(params, total=zeros(params), **rows)

    def fold(self, state, update):
        worker, mean = update.worker, times(update.direction, update.local_lr, state.params)
        visits = zeros(state.params, (1,))
        if worker in state.means:
            mean = self.beta * state.means[worker] + (1 - self.beta) * mean
            visits = state.visits[worker] + 1
        state.means.put(worker, mean, state.version)
        state.visits.put(worker, visits, state.version)
        state.total += max(self.least, self.decay ** float(visits[0])) * mean

    def next_params(self, state):
        rate = self.server_lr * (1 + state.steps / self.period) ** -0.5
        state.steps += 1
        change = rate / state.count * state.total
        state.total = zeros(state.params)
        return state.params - change
