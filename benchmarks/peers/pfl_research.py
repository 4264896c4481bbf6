"""pfl-research: federated averaging on its simulated backend, with one process or several.

python -m benchmarks.peers.pfl_research W1 150 RESULT.json THREADS
torchrun --standalone --nproc_per_node=2 -m benchmarks.peers.pfl_research W1 150 RESULT.json 1
"""

from __future__ import annotations

import os
from importlib.metadata import version

os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.torch_work import import_lazily, net, params_of, tensors, versions
from benchmarks.workloads import Clock, Held, Workload, asked, held, report


class Model(nn.Module):
    """A module with the loss that pfl asks for."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.inner(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        return {}


class Timing(TrainingProcessCallback):
    """Marks the beginning and every round."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_train_begin(self, *, model: object) -> Metrics:
        self.clock.mark()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: object, model: object, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.clock.mark()
        return False, Metrics()


def main() -> None:
    workload, into, (threads,) = asked()
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - its samplers draw from there
    dealt = held(workload)
    import_lazily()
    clock = Clock()
    trained = run(workload, dealt, clock)
    if get_default_framework_module().distributed.global_rank == 0:
        mine = {**versions(), "pfl": version("pfl")}
        params = params_of(trained)
        report(into, clock, params, local_steps=workload.local_steps, versions=mine)
    if distributed.is_initialized():  # together, or who ends last aborts for want of the other
        distributed.barrier()
        distributed.destroy_process_group()


def run(workload: Workload, dealt: Held, clock: Clock) -> nn.Module:
    model = Model(net(workload, dealt.start))
    users = users_of(workload, dealt)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=workload.rounds,
            train_cohort_size=workload.m,
            val_cohort_size=0,
            evaluation_frequency=10**9,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        PyTorchModel(model, torch.optim.SGD, torch.optim.SGD(model.parameters(), lr=1.0)),
        NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=workload.steps,
            local_learning_rate=workload.lr,
            local_batch_size=workload.batch,
        ),
        NNEvalHyperParams(local_batch_size=None),
        [Timing(clock)],
    )
    return model.inner


def users_of(workload: Workload, dealt: Held) -> FederatedDataset:
    samples = tensors(dealt.parts())
    drawn = workload.steps * workload.batch

    def user(number: int) -> Dataset:
        x, y = samples[number]
        chosen = torch.randint(0, len(y), (drawn,))
        return Dataset([x.index_select(0, chosen), y[chosen]], user_id=str(number))

    return FederatedDataset(user, get_user_sampler("minimize_reuse", list(range(workload.workers))))


if __name__ == "__main__":
    main()
