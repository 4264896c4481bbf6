"""Flower's server alone under load: a SuperLink, an app that never sleeps, and two bare nodes.

python -m benchmarks.peers.load_flower_alone FOLDER

Most of the time of Flower as shipped is spent waiting and starting a process for every message.
Here nothing waits: the app asks a node again as soon as it has answered, and mixes its update in as
FedAsync does, and the nodes speak the SuperNode's own protocol without a SuperNode around it.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supernode.fleet_http_connection import http_request_response

from benchmarks.peers.load_flower import FOLDER, client_app, superlink, work
from benchmarks.peers.load_turns import NUMBERS, WORKERS, Turns, lead

MIXED = 0.5  # how much of an update goes into the model
PAUSE_S = 0.01

server_app = ServerApp()
__all__ = ["client_app", "server_app"]  # what an app consists of


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    turns = Turns(Path(os.environ[FOLDER]))
    params = np.zeros(NUMBERS, np.float32)
    while len(nodes := list(grid.get_node_ids())) < WORKERS:
        time.sleep(0.1)

    def ask(node: int) -> str:
        content = RecordDict({"arrays": ArrayRecord([params])})
        (asked,) = grid.push_messages([Message(content, node, MessageType.TRAIN)])
        return asked

    for _ in nodes:
        turns.arrive()
    waiting: dict[str, int] = {}
    while True:
        if not waiting:
            turns.wait()
            waiting = {ask(node): node for node in nodes}
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id)
            (update,) = reply.content["arrays"].to_numpy_ndarrays()
            params = params + np.float32(MIXED) * (update - params)
            turns.count(1)
            if turns.on:
                waiting[ask(node)] = node
        time.sleep(PAUSE_S)


def visit(folder: Path, port: str) -> None:
    """A node: it answers whatever it is asked."""
    turns = Turns(folder)
    with http_request_response(f"127.0.0.1:{port}", insecure=True) as link:
        _, receive, send, _, _, pull_object, push_object, confirm = link
        while True:
            received = receive()
            if received is None:
                time.sleep(PAUSE_S if turns.on else 0.2)
                continue
            head, tree = received
            run = head.metadata.run_id
            message = pull_and_inflate_object_from_tree(
                tree,
                lambda name, run=run: pull_object(run, name),
                lambda name, run=run: confirm(run, name),
                return_type=Message,
            )
            message.metadata.__dict__["_message_id"] = tree.object_id
            reply = work(message, None)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            with no_object_id_recompute():
                wanted, session = send(reply, get_object_tree(reply), 0.0)
                push_objects(
                    get_all_nested_objects(reply),
                    lambda name, content, run=run, session=session: push_object(
                        run, session, name, content
                    ),
                    object_ids_to_push=wanted,
                )


def main(folder: Path) -> None:
    with superlink(folder, Path(__file__)) as link:
        module = ("-m", "benchmarks.peers.load_flower_alone")
        for number in range(WORKERS):
            link.run(f"node{number}", "python", *module, str(folder), str(link.port))
        link.submit()
        lead(folder, WORKERS, link.processes, {"flwr": version("flwr")})


if __name__ == "__main__":
    where, *rest = sys.argv[1:]
    if rest:
        visit(Path(where), *rest)
    else:
        main(Path(where))
