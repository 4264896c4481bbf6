"""Flower under load: a SuperLink and two SuperNodes as shipped, and rounds of FedAvg among them.

python -m benchmarks.peers.load_flower FOLDER

Flower has no asynchronous rule: a round asks both nodes, and takes two updates. This file is also
the app that they run; what a node sends back differs from what it was sent, since contents that
the SuperLink knows already are not sent again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

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

APP = """\
[project]
name = "load"
version = "1.0.0"
description = "Updates as fast as they are taken"
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "benchmarks"

[tool.flwr.app.components]
serverapp = "app:server_app"
clientapp = "app:client_app"
"""
CONFIG = """\
[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:{port}"
insecure = true
"""
COMMANDS = Path(sys.executable).parent
LOCAL = ("--insecure", "--host", "127.0.0.1")
FOLDER = "LOAD_FOLDER"  # tells the app where the turns are

server_app = ServerApp()
client_app = ClientApp()


class Counted(FedAvg):
    """FedAvg that knows how many updates its last round took."""

    taken = 0

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        kept = list(replies)
        self.taken = sum(reply.has_content() for reply in kept)
        return super().aggregate_train(server_round, kept)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    turns = Turns(Path(os.environ[FOLDER]))
    strategy = Counted(fraction_evaluate=0.0, min_train_nodes=WORKERS, min_available_nodes=WORKERS)

    def between_rounds(number: int, arrays: ArrayRecord) -> None:
        if number:
            turns.count(strategy.taken)
        else:
            turns.arrive()
        turns.wait()

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(NUMBERS, np.float32)]),
        num_rounds=10**6,
        evaluate_fn=between_rounds,
    )


@client_app.train()
def work(message: Message, context: Context) -> Message:
    (params,) = message.content["arrays"].to_numpy_ndarrays()
    changed = params + np.float32(1e-3 * np.random.default_rng().random())
    content = {"arrays": ArrayRecord([changed]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)


@dataclass
class Link:
    """A SuperLink, the app that it is to run, and what runs around it."""

    folder: Path
    port: int
    variables: dict[str, str]
    processes: list[Running] = field(default_factory=list)

    def run(self, name: str, command: str, *arguments: str) -> None:
        log = self.folder / f"{name}.log"
        self.processes.append(Running([str(COMMANDS / command), *arguments], log, self.variables))

    def submit(self) -> None:
        """Hand over the app; its server's part is started by the SuperLink."""
        done = subprocess.run(
            [str(COMMANDS / "flwr"), "run", str(self.folder / "load"), "here"],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            raise RuntimeError(f"flwr run: {done.stdout} {done.stderr}")


@contextmanager
def superlink(folder: Path, app: Path) -> Iterator[Link]:
    home, port = folder / "home", free_port()
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(port=port))
    (folder / "load").mkdir()
    (folder / "load" / "pyproject.toml").write_text(APP)
    shutil.copy(app, folder / "load" / "app.py")
    variables = {
        FOLDER: str(folder),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # all is there, and no index may be
        "PATH": os.pathsep.join([str(COMMANDS), os.environ["PATH"]]),
    }
    link = Link(folder, port, variables)
    with ended(link.processes):
        link.run("superlink", "flower-superlink", *LOCAL, "--port", str(port))
        wait_for(port, 60.0)
        yield link


def main(folder: Path) -> None:
    with superlink(folder, Path(__file__)) as link:
        to = ("--superlink", f"127.0.0.1:{link.port}")
        for number in range(WORKERS):
            own = ("--port", str(free_port()))
            link.run(f"supernode{number}", "flower-supernode", *LOCAL, *to, *own)
        link.submit()
        lead(folder, 1, link.processes, {"flwr": version("flwr")})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
