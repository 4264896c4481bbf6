"""The simulator: AFA-CD with ``server_lr = K``, which is FedAvg when nobody is late.

python -m benchmarks.peers.ours W1 150 RESULT.json
"""

from __future__ import annotations

import numpy as np
import torch

from anarchic import AfaCd, Experiment, LocalWork
from anarchic.core.types import Vector
from anarchic.data import Dataset
from anarchic.models import make
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.engine import Walk
from anarchic.study.machine import software
from anarchic.train.torch_task import TorchTask
from benchmarks.peers.torch_work import import_lazily
from benchmarks.workloads import Clock, Held, Workload, asked, held, report


def main() -> None:
    workload, into, _ = asked()
    what, clock = experiment(workload, held(workload)), Clock()
    import_lazily()
    found = what.task.layout.split(walk(what, clock))
    report(into, clock, found, local_steps=workload.local_steps, versions=software())


def experiment(workload: Workload, dealt: Held) -> Experiment:
    classes = int(dealt.classes)
    data = Dataset(workload.data, dealt.x, dealt.y, dealt.x_test, dealt.y_test, classes)
    module = make(workload.model, data)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in dealt.start.items()})
    parts = np.split(np.arange(len(dealt.y)), dealt.ends[:-1])
    task = TorchTask(module, data, parts)
    torch.set_num_threads(task.fitting_threads)
    return Experiment(
        task=task,
        rule=AfaCd(workload.m, server_lr=workload.steps),
        timetable=Sampler(workload.workers, workload.m, ConstantSteps(workload.steps)).timetable(
            0, workload.rounds
        ),
        work=LocalWork(lr=workload.lr, batch=workload.batch),
    )


def walk(what: Experiment, clock: Clock) -> Vector:
    clock.mark()
    walking = Walk(what)
    while walking.version < what.timetable.rounds:
        walking.next_version()
        clock.mark()
    return walking.state.params


if __name__ == "__main__":
    main()
