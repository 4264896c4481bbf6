"""What one writes without a framework: deep copies, an optimiser, a mean of parameters.

python -m benchmarks.peers.plain W1 150 RESULT.json THREADS
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from benchmarks.peers.torch_work import (
    Samples,
    import_lazily,
    net,
    params_of,
    tensors,
    train,
    versions,
)
from benchmarks.workloads import Clock, Workload, asked, held, report


def main() -> None:
    workload, into, (threads,) = asked()
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    dealt = held(workload)
    import_lazily()
    clock, samples = Clock(), tensors(dealt.parts())
    server = net(workload, dealt.start)
    rounds(server, samples, workload, clock)
    report(into, clock, params_of(server), local_steps=workload.local_steps, versions=versions())


def rounds(server: nn.Module, samples: list[Samples], workload: Workload, clock: Clock) -> None:
    rng = np.random.default_rng(1)
    clock.mark()
    for _ in range(workload.rounds):
        locals_ = []
        for worker in rng.choice(workload.workers, workload.m, replace=False):
            locals_.append(copy.deepcopy(server))
            train(locals_[-1], samples[worker], workload)
        with torch.no_grad():
            everyones = zip(*(module.parameters() for module in locals_), strict=True)
            for mine, theirs in zip(server.parameters(), everyones, strict=True):
                mine.copy_(torch.stack(theirs).mean(0))
        clock.mark()


if __name__ == "__main__":
    main()
