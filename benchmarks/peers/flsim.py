"""FLSim: its asynchronous trainer with FedBuff, the buffer as large as a round.

python -m benchmarks.peers.flsim W1 150 RESULT.json THREADS
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

import benchmarks.peers.without_torchvision  # noqa: F401 - before what asks for it

# isort: split

import hydra.utils
import numpy as np
import opacus  # noqa: F401 - before dataclasses are changed for FLSim alone
import torch
import torch._dynamo
from omegaconf import OmegaConf
from torch import nn
from torch.nn.functional import cross_entropy

_dataclass = dataclasses.dataclass


def _hashable(cls: Any = None, /, **settings: Any) -> Any:
    """FLSim's defaults are its own dataclasses, which since Python 3.11 have to be hashable."""

    def wrap(cls: Any) -> Any:
        if cls.__module__.startswith("flsim") and not settings.get("frozen"):
            return _dataclass(cls, **{"unsafe_hash": True, **settings})
        return _dataclass(cls, **settings)

    return wrap if cls is None else wrap(cls)


dataclasses.dataclass = _hashable  # type: ignore[assignment]

from flsim.clients.base_client import ClientConfig  # noqa: E402
from flsim.data.data_provider import IFLDataProvider, IFLUserData  # noqa: E402
from flsim.interfaces.metrics_reporter import Channel  # noqa: E402
from flsim.interfaces.model import IFLModel  # noqa: E402
from flsim.metrics_reporter.tensorboard_metrics_reporter import FLMetricsReporter  # noqa: E402
from flsim.optimizers.async_aggregators import FedAvgWithLRFedBuffAggregatorConfig  # noqa: E402
from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig  # noqa: E402
from flsim.trainers.async_trainer import AsyncTrainer, AsyncTrainerConfig  # noqa: E402
from flsim.utils.async_trainer.async_example_weights import EqualExampleWeightConfig  # noqa: E402
from flsim.utils.async_trainer.async_staleness_weights import (  # noqa: E402
    ConstantStalenessWeightConfig,
)
from flsim.utils.async_trainer.async_weights import AsyncWeightConfig  # noqa: E402
from flsim.utils.async_trainer.training_event_generator import (  # noqa: E402
    AsyncTrainingEventGeneratorConfig,
    PoissonAsyncTrainingStartTimeDistrConfig,
)
from flsim.utils.simple_batch_metrics import FLBatchMetrics  # noqa: E402
from flsim.utils.timing.training_duration_distribution import (  # noqa: E402
    PerUserUniformDurationDistributionConfig,
)

dataclasses.dataclass = _dataclass

from benchmarks.peers.torch_work import (  # noqa: E402
    Samples,
    import_lazily,
    net,
    params_of,
    tensors,
    versions,
)
from benchmarks.workloads import Clock, Workload, asked, held, report  # noqa: E402


class User(IFLUserData):
    """A worker: an epoch of it is K batches, drawn with replacement."""

    def __init__(self, samples: Samples, workload: Workload) -> None:
        self.samples, self.steps, self.batch = samples, workload.steps, workload.batch

    def train_data(self) -> Iterator[dict[str, torch.Tensor]]:
        x, y = self.samples
        for _ in range(self.steps):
            chosen = torch.randint(0, len(y), (self.batch,))
            yield {"features": x.index_select(0, chosen), "labels": y[chosen]}

    def eval_data(self) -> Iterator[dict[str, torch.Tensor]]:
        return iter(())

    def num_train_batches(self) -> int:
        return self.steps

    def num_train_examples(self) -> int:
        return self.steps * self.batch

    def num_eval_batches(self) -> int:
        return 0

    def num_eval_examples(self) -> int:
        return 0


class Users(IFLDataProvider):
    def __init__(self, users: list[User]) -> None:
        self.users = users

    def train_user_ids(self) -> list[int]:
        return list(range(len(self.users)))

    def num_train_users(self) -> int:
        return len(self.users)

    def get_train_user(self, user_index: int) -> User:
        return self.users[user_index]

    def train_users(self) -> Iterable[User]:
        return self.users

    def eval_users(self) -> Iterable[User]:
        return []

    def test_users(self) -> Iterable[User]:
        return []


class Model(IFLModel):
    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def fl_forward(self, batch: dict[str, torch.Tensor]) -> FLBatchMetrics:
        outputs, y = self.module(batch["features"]), batch["labels"]
        return FLBatchMetrics(
            loss=cross_entropy(outputs, y),
            num_examples=len(y),
            predictions=outputs.detach(),
            targets=y,
            model_inputs=[],
        )

    def fl_create_training_batch(self, **batch: Any) -> Any:
        return batch

    def fl_get_module(self) -> nn.Module:
        return self.module

    def fl_cuda(self) -> None:
        pass

    def get_eval_metrics(self, batch: Any) -> FLBatchMetrics:
        with torch.no_grad():
            return self.fl_forward(batch)

    def get_num_examples(self, batch: Any) -> int:
        return len(batch["labels"])


class Quiet(FLMetricsReporter):
    def __init__(self) -> None:
        super().__init__([Channel.STDOUT])

    def compare_metrics(self, eval_metrics: Any, best_metrics: Any) -> bool:
        return True

    def compute_scores(self) -> dict[str, float]:
        return {}

    def create_eval_metrics(self, scores: Any, total_loss: float, **_: Any) -> dict[str, float]:
        return {}


def settings(workload: Workload) -> AsyncTrainerConfig:
    return AsyncTrainerConfig(
        # Whole ones, in each of which every worker comes once on average.
        epochs=max(1, round(workload.rounds * workload.m / workload.workers)),
        do_eval=False,
        always_keep_trained_model=True,
        report_train_metrics=False,
        client=ClientConfig(
            epochs=1, optimizer=LocalOptimizerSGDConfig(lr=workload.lr, momentum=0.0)
        ),
        aggregator=FedAvgWithLRFedBuffAggregatorConfig(
            lr=1.0 / workload.m, momentum=0.0, buffer_size=workload.m
        ),
        training_event_generator=AsyncTrainingEventGeneratorConfig(
            training_start_time_distribution=PoissonAsyncTrainingStartTimeDistrConfig(
                training_rate=float(workload.m)
            ),
            duration_distribution_generator=PerUserUniformDurationDistributionConfig(
                training_duration_mean=1.0, training_duration_min=0.5
            ),
        ),
        async_weight=AsyncWeightConfig(
            staleness_weight=ConstantStalenessWeightConfig(avg_staleness=0),
            example_weight=EqualExampleWeightConfig(
                avg_num_examples=workload.steps * workload.batch
            ),
        ),
    )


def main() -> None:
    workload, into, (threads,) = asked()
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - its event generator draws from there
    dealt, updates = held(workload), [0]
    import_lazily()
    clock = Clock()
    users = Users([User(samples, workload) for samples in tensors(dealt.parts())])
    trainer: AsyncTrainer = hydra.utils.instantiate(
        OmegaConf.structured(settings(workload)),
        model=Model(net(workload, dealt.start)),
        cuda_enabled=False,
    )
    one_update = trainer.train_and_update_global_model

    def counted(client: Any) -> None:
        one_update(client)
        updates[0] += 1
        if updates[0] % workload.m == 0:
            clock.mark()

    trainer.train_and_update_global_model = counted
    clock.mark()
    trainer.train(users, Quiet(), num_total_users=workload.workers, distributed_world_size=1)
    clock.mark()
    params = params_of(trainer.global_model().fl_get_module())
    mine = {**versions(), "flsim": version("flsim")}
    report(into, clock, params, local_steps=updates[0] * workload.steps, versions=mine)


if __name__ == "__main__":
    main()
