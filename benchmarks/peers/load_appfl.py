"""APPFL under load: its gRPC server with FedAsync, and two of its gRPC communicators.

python -m benchmarks.peers.load_appfl FOLDER [lean]

Every update makes a new model, which is the answer to it. ``lean`` turns off ``optimize_memory``
everywhere: as shipped it is on, and collects garbage many times an update.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.load_turns import (
    NUMBERS,
    WORKERS,
    Running,
    Turns,
    ended,
    free_port,
    lead,
    wait_for,
)

SIDE = 1_000  # the model is a square


def main(folder: Path, *settings: str) -> None:
    processes: list[Running] = []
    port = str(free_port())

    def run(name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.load_appfl", str(folder), *settings]
        processes.append(Running([*command, *arguments], folder / f"{name}.log"))

    with ended(processes):
        run("server", "serve", port)
        wait_for(int(port), 60.0)
        for number in range(WORKERS):
            run(f"worker{number}", "work", port, str(number))
        names = ("appfl", "grpcio")
        lead(folder, WORKERS, processes, {name: version(name) for name in names})


def serve(folder: Path, memory: dict[str, bool], port: str) -> None:
    import benchmarks.peers.without_torchvision  # noqa: F401, I001 - before what asks for it
    from appfl.agent import ServerAgent
    from appfl.comm.grpc import GRPCServerCommunicator
    from appfl.comm.grpc import serve as listen
    from appfl.config import ServerAgentConfig
    from omegaconf import OmegaConf
    from torch import nn

    class Server(ServerAgent):
        def _load_model(self) -> None:
            self.model = nn.Linear(SIDE, SIDE, bias=False)
            assert self.model.weight.numel() == NUMBERS

    settings = {
        "num_clients": WORKERS,
        "num_global_epochs": 10**9,
        "scheduler": "AsyncScheduler",
        "scheduler_kwargs": dict(memory),
        "aggregator": "FedAsyncAggregator",
        "aggregator_kwargs": {"client_weights_mode": "equal", **memory},
        "logging_output_dirname": str(folder / "logs"),
        **memory,
    }
    agent = Server(ServerAgentConfig(server_configs=OmegaConf.create(settings)))
    servicer = GRPCServerCommunicator(agent, logger=agent.logger, **memory)
    listen(servicer, server_uri=f"127.0.0.1:{port}")


def work(folder: Path, memory: dict[str, bool], port: str, number: str) -> None:
    import benchmarks.peers.without_torchvision  # noqa: F401, I001 - before what asks for it
    from appfl.comm.grpc import GRPCClientCommunicator

    turns = Turns(folder)
    link = GRPCClientCommunicator(f"worker{number}", server_uri=f"127.0.0.1:{port}", **memory)
    model: Any = link.get_global_model(init_model=True)
    turns.arrive()
    while True:
        turns.wait()
        model["weight"] += 1e-6
        model, _ = link.update_global_model(model)
        turns.count(1)


if __name__ == "__main__":
    where, *rest = sys.argv[1:]
    memory = {"optimize_memory": False} if "lean" in rest else {}
    match [word for word in rest if word != "lean"]:
        case ["serve", port]:
            serve(Path(where), memory, port)
        case ["work", port, number]:
            work(Path(where), memory, port, number)
        case _:
            main(Path(where), *rest)
