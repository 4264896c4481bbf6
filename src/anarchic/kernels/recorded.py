"""GPU work recorded once and replayed, so that the host starts dozens of kernels at once.

A local step is dozens of small kernels, and starting them takes the host longer than a GPU needs to
run them for a few lanes. A CUDA graph starts them all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import torch
from torch import Tensor

from anarchic.errors import ConfigError

Tensors = dict[str, Tensor]
Function = Callable[[Tensors], Tensor]
Replay = Callable[[], None]
Record = Callable[[Function, Tensors], tuple[Replay, Tensor]]

STEPS = 16  # how many numbers of lanes there are from one power of two to the next


@final
class OnCuda:
    """Records CUDA graphs that share their memory: a replay may write over what another left.

    A result itself is safe, since it is alive while the others are recorded. The memory is given
    back with the last of the graphs, and only new graphs may then be recorded by a new recorder.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Function, inputs: Tensors) -> tuple[Replay, Tensor]:
        """``function(inputs)`` as a graph over these very tensors, and where its result lies."""
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # compiles kernels, which a recording cannot
            function(inputs)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                output = function(inputs)
        except RuntimeError as error:
            raise ConfigError(
                f"A local step of this model cannot be recorded as a CUDA graph ({error}): perhaps "
                "it waits for the host. Set graphs=False (--no-graphs)."
            ) from error
        return graph.replay, output


@final
class Recorded:
    """A function of tensors whose first axis is lanes, replayed from a recording.

    There is one recording per number of lanes, large numbers rounded up to one of a few: the rows
    beyond are computed from what was there before, and not read. A result is valid until the next
    call.
    """

    def __init__(self, function: Function, recorder: Callable[[], Record] = OnCuda) -> None:
        self._function, self._recorder = function, recorder
        self._clear()

    def _clear(self) -> None:
        self._record = self._recorder()
        self._recordings: dict[int, tuple[Tensors, Replay, Tensor]] = {}
        self._inputs: Tensors = {}

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        lanes = len(next(iter(inputs.values())))
        if not self._fits(inputs):
            self._clear()
        rounded = _rounded(lanes)
        if rounded not in self._recordings:
            self._recordings[rounded] = self._new(inputs, rounded)
        fixed, replay, output = self._recordings[rounded]
        for name, tensor in inputs.items():
            fixed[name][:lanes].copy_(tensor)
        replay()
        return output[:lanes]

    def _fits(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether the inputs have the shapes that were recorded, such as the batch size."""
        return all(
            name in self._inputs and self._inputs[name].shape[1:] == tensor.shape[1:]
            for name, tensor in inputs.items()
        )

    def _new(self, inputs: Mapping[str, Tensor], lanes: int) -> tuple[Tensors, Replay, Tensor]:
        for name, tensor in inputs.items():
            if name not in self._inputs or len(self._inputs[name]) < lanes:
                # Filled with a lane that exists: every row must be one that can be computed.
                self._inputs[name] = tensor[:1].expand(lanes, *tensor.shape[1:]).clone()
        fixed = {name: self._inputs[name][:lanes] for name in inputs}
        return fixed, *self._record(self._function, fixed)


def _rounded(lanes: int) -> int:
    """Up to the next of ``STEPS`` numbers between powers of two.

    >>> [_rounded(n) for n in (1, 16, 31, 33, 40, 63, 65, 864)]
    [1, 16, 31, 34, 40, 64, 68, 864]
    """
    step = max(1, (1 << (lanes.bit_length() - 1)) // STEPS)
    return -(-lanes // step) * step
