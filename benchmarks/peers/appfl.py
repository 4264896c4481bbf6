"""APPFL: the synchronous driver of its virtual-time simulator, with FedAvg.

python -m benchmarks.peers.appfl W1 150 RESULT.json THREADS
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from typing import Any

import benchmarks.peers.without_torchvision  # noqa: F401 - before what asks for it

# isort: split

import numpy as np
import torch
from appfl.agent import ClientAgent, ServerAgent
from appfl.config import ClientAgentConfig, ServerAgentConfig
from appfl.vsim import ClientProfile, SyncSimDriver
from omegaconf import OmegaConf
from torch.utils.data import TensorDataset

from benchmarks.peers.torch_work import Samples, import_lazily, net, tensors, versions
from benchmarks.workloads import Array, Clock, Held, Workload, asked, held, report

FAST = {"optimize_memory": False}  # or it collects garbage several times an update


class Timed(SyncSimDriver):
    """The driver with a mark after every round."""

    clock: Clock

    def _run_round(self) -> Any:
        done = super()._run_round()
        self.clock.mark()
        return done


def main() -> None:
    workload, into, (threads,) = asked()
    torch.set_num_threads(int(threads))
    dealt = held(workload)
    import_lazily()
    clock = Clock()
    with tempfile.TemporaryDirectory() as logs:
        server = make_server(workload, dealt, logs)
        clients = [
            make_client(workload, dealt, logs, number, samples)
            for number, samples in enumerate(tensors(dealt.parts()))
        ]
        driver = Timed(
            server,
            clients,
            {client.get_id(): ClientProfile() for client in clients},
            participants_per_round=workload.m,
            logger=server.logger,
            target_rounds=workload.rounds,
        )
        driver.clock = clock
        clock.mark()
        driver.run()
    trained = server.get_parameters(serial_run=True)
    params = {name: value.numpy() for name, value in trained.items()}
    mine = {**versions(), "appfl": version("appfl")}
    report(into, clock, params, local_steps=workload.local_steps, versions=mine)


def make_server(workload: Workload, dealt: Held, logs: str) -> ServerAgent:
    class Server(ServerAgent):
        def _load_model(self) -> None:
            self.model = net(workload, dealt.start)

    settings = {
        "num_clients": workload.workers,
        "num_global_epochs": workload.rounds,
        "scheduler": "SyncScheduler",
        "scheduler_kwargs": dict(FAST),
        "aggregator": "FedAvgAggregator",
        "aggregator_kwargs": {"client_weights_mode": "equal", **FAST},
        "logging_output_dirname": logs,
        **FAST,
    }
    return Server(ServerAgentConfig(server_configs=OmegaConf.create(settings)))


def make_client(
    workload: Workload, dealt: Held, logs: str, number: int, samples: Samples
) -> ClientAgent:
    class Client(ClientAgent):
        def _load_model(self) -> None:
            self.model = net(workload, dealt.start)

        def _load_data(self) -> None:
            self.train_dataset, self.val_dataset = TensorDataset(*samples), None

        def _load_metric(self) -> None:
            self.metric = accuracy

    training = {
        "trainer": "VanillaTrainer",
        "mode": "step",
        "num_local_steps": workload.steps,
        "train_batch_size": workload.batch,
        "optim": "SGD",
        "optim_args": {"lr": workload.lr},
        "loss_fn": "CrossEntropyLoss",
        "device": "cpu",
        "logging_output_dirname": logs,
        **FAST,
    }
    config: Any = ClientAgentConfig(train_configs=OmegaConf.create(training))
    config.client_id, config.optimize_memory = f"worker{number}", False
    return Client(config)


def accuracy(y: Array, outputs: Array) -> float:
    return float(np.mean(outputs.argmax(1) == y))


if __name__ == "__main__":
    main()
