"""A real server for a first model, and two workers at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from anarchic.worker import Worker
from tests.chaos.servers import ServerProcess
from tests.waiting import until

INIT = "model.safetensors"


def served(folder: Path, *options: str) -> ServerProcess:
    """A server that begins with the model in the folder."""
    log, store = folder / "log", str(folder / "run.db")
    return ServerProcess(store, folder / INIT, log, "--open-enrolment", *options)


@contextmanager
def two_workers(folder: Path, *options: str) -> Iterator[list[Worker]]:
    """Ann and Bob at one server that steps after two updates."""
    # Either may be faster: nobody waits for the other's update.
    many = ("--m", "2", "--per-worker", "1000")
    with served(folder, *many, *options) as server, ExitStack() as stack:
        url = f"http://127.0.0.1:{server.port}"
        yield [stack.enter_context(Worker(url, name=name)) for name in ("ann", "bob")]


def await_version(worker: Worker, version: int) -> None:
    """Wait until the server has taken this many steps."""
    until(lambda: worker.pull().version >= version)
