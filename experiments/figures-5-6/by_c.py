"""AFA-CS with every sum of gradients divided by a constant."""

from dataclasses import dataclass, replace

from anarchic.core.rules import AfaCs
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import build
from anarchic.study import Job


@dataclass(frozen=True)
class DividedByC:
    """AFA-CS whose rows are eta_L/c * the sum of a visit's gradients, whatever its own K.

    An update brings the mean over its K steps, so its rate is multiplied by K/c.
    """

    rule: AfaCs
    c: int

    @property
    def m(self):
        return self.rule.m

    def init(self, params):
        return self.rule.init(params)

    def receive(self, state, update):
        rate = update.local_lr * update.local_steps / self.c
        return self.rule.receive(state, replace(update, local_lr=rate))

    def receive_many(self, state, block):
        rates = block.local_lrs * block.local_steps / self.c
        return self.rule.receive_many(state, replace(block, local_lrs=rates))

    def scale(self, local_lr, local_steps):
        return self.rule.scale(local_lr * local_steps / self.c, local_steps)

    def remaining(self, state):
        return self.rule.remaining(state)

    def flush(self, state):
        return self.rule.flush(state)


def train(job: Job) -> Experiment:
    """AFA-CS by the cell's settings, with ``DividedByC`` around it."""
    asked = dict(job.cell.settings)
    c = asked.pop("divided_by")
    made = build(job.settings_of(asked), job.compute)
    return replace(made, rule=DividedByC(made.rule, c), about={**made.about, "divided_by": c})
