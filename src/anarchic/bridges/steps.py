"""Hears of the steps of all optimisers of a process, whichever thread takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

Hear = Callable[[Optimizer, object, object], None]

_lock = threading.Lock()
_listeners: tuple[
    StepListener, ...
] = ()  # replaced, never changed: another thread may go through it
_registered = False


@final
class StepListener:
    """Is called after every step until it is removed."""

    def __init__(self, hear: Hear) -> None:
        self.hear = hear

    def remove(self) -> None:
        global _listeners
        with _lock:
            _listeners = tuple(each for each in _listeners if each is not self)


def listen(hear: Hear) -> StepListener:
    """Call ``hear`` after every step.

    torch is told once and for all: whoever takes a step goes through torch's own list of hooks,
    which no other thread may change meanwhile.
    """
    global _listeners, _registered
    made = StepListener(hear)
    with _lock:
        _listeners = (*_listeners, made)
        if not _registered:
            register_optimizer_step_post_hook(_tell)
            _registered = True
    return made


def _tell(optimizer: Optimizer, args: object, kwargs: object) -> None:
    for listener in _listeners:
        listener.hear(optimizer, args, kwargs)
