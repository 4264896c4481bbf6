"""Flower: its simulation runtime on Ray, one actor a core, with FedAvg of its new API.

python -m benchmarks.peers.flower W1 150 RESULT.json
"""

from __future__ import annotations

import os
import time
from functools import cache
from importlib.metadata import version

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.torch_work import Samples, import_lazily, net, tensors, train, versions
from benchmarks.workloads import WORKLOADS, Array, Clock, Held, Workload, asked, held, report

client_app = ClientApp()


def main() -> None:
    workload, into, _ = asked()
    torch.set_num_threads(1)
    clock, found = Clock(), dict[str, Array]()
    run_simulation(
        server(workload, clock, found),
        client_app,
        num_supernodes=workload.workers,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    mine = {**versions(), "flwr": version("flwr"), "ray": version("ray")}
    report(into, clock, found, local_steps=workload.local_steps, versions=mine)


def server(workload: Workload, clock: Clock, found: dict[str, Array]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        first = ArrayRecord(net(workload, held(workload).start).state_dict())
        warm_up(grid, workload)

        def after_round(number: int, arrays: ArrayRecord) -> MetricRecord:
            clock.mark()
            if number == workload.rounds:
                found.update({k: v.numpy() for k, v in arrays.to_torch_state_dict().items()})
            return MetricRecord({"round": number})

        FedAvg(
            fraction_train=workload.m / workload.workers,
            fraction_evaluate=0.0,
            min_train_nodes=workload.m,
            min_available_nodes=workload.workers,
        ).start(
            grid=grid,
            initial_arrays=first,
            num_rounds=workload.rounds,
            train_config=ConfigRecord({"workload": workload.name}),
            evaluate_fn=after_round,
        )

    return app


def warm_up(grid: Grid, workload: Workload) -> None:
    """Have both actors import and load, before the clock runs."""
    while len(nodes := list(grid.get_node_ids())) < workload.workers:
        time.sleep(0.01)
    config = ConfigRecord({"workload": workload.name})
    asking = [Message(RecordDict({"config": config}), n, MessageType.QUERY) for n in nodes[:6]]
    list(grid.send_and_receive(asking, timeout=300))


@client_app.query()
def query(message: Message, context: Context) -> Message:
    import_lazily()
    in_actor(str(message.content["config"]["workload"]))
    time.sleep(0.5)  # so that the other actor gets some of these messages too
    return Message(RecordDict({"metrics": MetricRecord({"ready": 1})}), reply_to=message)


@client_app.train()
def local_work(message: Message, context: Context) -> Message:
    workload = WORKLOADS[str(message.content["config"]["workload"])]
    dealt, samples = in_actor(workload.name)
    module = net(workload, dealt.start)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(module, samples[int(context.node_config["partition-id"])], workload)
    arrays = ArrayRecord(module.state_dict())
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@cache
def in_actor(name: str) -> tuple[Held, list[Samples]]:
    """The data, once in every actor."""
    torch.set_num_threads(1)
    dealt = held(WORKLOADS[name])
    return dealt, tensors(dealt.parts())


if __name__ == "__main__":
    # Ray sends what it finds in __main__ by value and with it the cache: by its name it is shared.
    from benchmarks.peers import flower

    flower.main()
