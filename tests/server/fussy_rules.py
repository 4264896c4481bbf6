"""Rules of somebody else's that fail on updates which are nothing unusual."""

from dataclasses import dataclass

from anarchic.core.rules.fedbuff import FedBuff


class FailsOnFold(FedBuff):
    """Fails when it takes an update of three local steps."""

    def fold(self, state, update):
        if update.local_steps == 3:
            raise ZeroDivisionError("three steps")
        super().fold(state, update)


@dataclass(frozen=True)
class FailsOnStep(FedBuff):
    """Fails when it steps with a sum that is far too long."""

    def next_params(self, state):
        if abs(state.total).max() > 100:
            raise ZeroDivisionError("too far")
        return super().next_params(state)


class FailsAlways(FedBuff):
    def fold(self, state, update):
        raise ZeroDivisionError("always")
