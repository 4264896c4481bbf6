"""AFA-CS with every sum of gradients divided by a constant."""

from dataclasses import dataclass, replace
from typing import Any

from anarchic.core.wrappers import Wrapper
from anarchic.sim.experiment import Experiment
from anarchic.sim.settings import build
from anarchic.study import Job


@dataclass(frozen=True)
class DividedByC(Wrapper[Any]):
    """AFA-CS whose rows are eta_L/c * the sum of a visit's gradients, whatever its own K.

    An update brings the mean over its K steps, so its rate is multiplied by K/c.
    """

    c: int

    def receive(self, state, update):
        rate = update.local_lr * update.local_steps / self.c
        return self.rule.receive(state, replace(update, local_lr=rate))

    def receive_many(self, state, block):
        rates = block.local_lrs * block.local_steps / self.c
        return self.rule.receive_many(state, replace(block, local_lrs=rates))

    def scale(self, local_lr, local_steps):
        return self.rule.scale(local_lr * local_steps / self.c, local_steps)

    def folded_scale(self, local_lr, local_steps, staleness, norm):
        rate = local_lr * local_steps / self.c
        return self.rule.folded_scale(rate, local_steps, staleness, norm)


def train(job: Job) -> Experiment:
    """AFA-CS by the cell's settings, with ``DividedByC`` around it."""
    asked = dict(job.cell.settings)
    c = asked.pop("divided_by")
    made = build(job.settings_of(asked), job.compute)
    return replace(made, rule=DividedByC(made.rule, c), about={**made.about, "divided_by": c})
