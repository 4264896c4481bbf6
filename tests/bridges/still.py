"""A worker whose server is one model in memory, and keeps what is pushed."""

from __future__ import annotations

from typing import Any

import numpy as np

from anarchic import Layout, Snapshot
from anarchic.core.types import Terms
from anarchic.worker import Answer, Connection


class StillWorker:
    """What a visit uses of a ``Worker``, without a server: the model stays as it is."""

    name, spool, connection = "ann", None, Connection()

    def __init__(self, tensors: dict[str, Any], **terms: Any) -> None:
        arrays = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
        names = terms.get("buffer_names", ()) if terms.get("buffers") == "average" else ()
        shapes = {name: (array.shape, "F32") for name, array in arrays.items()}
        self.layout = Layout.of(shapes, names)
        self.snapshot = Snapshot(3, self.layout.join(arrays), terms=Terms(**terms))
        self.snapshot.params.flags.writeable = False
        self.pushed: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}

    @classmethod
    def of(cls, module: Any, **terms: Any) -> StillWorker:
        """The parameters of a module, and those of its buffers that are averaged."""
        tensors = dict(module.named_parameters())
        if terms.get("buffers") == "average":
            tensors |= dict(module.named_buffers())
            terms["buffer_names"] = tuple(name for name, _ in module.named_buffers())
        return cls({name: each.detach().float() for name, each in tensors.items()}, **terms)

    @property
    def last(self) -> dict[str, np.ndarray]:
        """The direction that was pushed last, by name."""
        return self.layout.split(self.pushed[-1]["direction"])

    def pull(self, *, retry: Any = None, own: bool = False) -> Snapshot:
        return self.snapshot

    def local_state(self) -> dict[str, Any]:
        return self.state

    def push(self, direction: np.ndarray, *, local_state: Any, retry: Any, **facts: Any) -> Answer:
        self.pushed.append({"direction": direction, **facts})
        self.state = dict(local_state) or self.state
        return Answer("accepted", 4, 0)
