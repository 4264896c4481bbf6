"""Batches one after another: here, or in helper processes; what fails is noted and not in the way.

See ``anarchic.study.helper`` for the other side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any, final

from anarchic.core.reading import printable, reason
from anarchic.data import Dataset
from anarchic.errors import AnarchicError, RunError
from anarchic.sim.run import Progress
from anarchic.sim.settings import Settings
from anarchic.study.batch import Watch, data_for, train_batch
from anarchic.study.cell import Cell, Job
from anarchic.study.numbers import READERS
from anarchic.study.results import Result, result_of
from anarchic.train.compute import Compute

FAILED = "failed"  # how a run ended that was not trained to an end
TELL_S = 0.5  # between two lines on the progress of a helper
Batch = Sequence[Job]
Train = Callable[[Batch], list[Result]]
Keep = Callable[[list[Result]], None]


@dataclass
class Trainer:
    """Trains batches in this process; the data of the last one stay in memory for the next."""

    out: Path | None = None
    watch: Watch | None = None
    _held: list[Dataset] = field(default_factory=list)

    def __call__(self, batch: Batch) -> list[Result]:
        self._held = data_for(batch)
        done = train_batch(batch, out=self.out, resume=True, watch=self.watch)
        return [result for _, result in done]


def train_all(batches: Sequence[Batch], keep: Keep, watch: Watch, out: Path | None) -> None:
    """Train batches here, one after another."""
    trainer = Trainer(out, watch)
    for batch in batches:
        for results in attempts(batch, trainer):
            keep(results)


def attempts(batch: Batch, train: Train) -> Iterator[list[Result]]:
    """The results of a batch; where it fails, of each of its jobs alone, failures among them."""
    try:
        yield train(batch)
    except Exception as error:  # models, rules and data of others may raise anything
        if len(batch) > 1:
            for job in batch:
                yield from attempts([job], train)
            return
        told = str(error) if isinstance(error, AnarchicError) else named(error)
        why = {"reason": printable(told, keep="\n", most=2000)}
        yield [result_of(batch[0], why, stopped_at=FAILED)]


def named(error: Exception) -> str:
    return f"{type(error).__name__}: {reason(error)}"


def train_in_processes(
    batches: Sequence[Batch], keep: Keep, watch: Watch, out: Path | None, processes: int
) -> None:
    """Train batches in ``processes`` helper processes; results are kept as they come."""
    todo: Queue[Batch] = Queue()
    for batch in batches:
        todo.put(batch)
    told: Queue[Callable[[], None]] = Queue()  # what this thread is to do
    helpers = [_Helper(out, told, watch) for _ in range(min(processes, len(batches)))]
    with ThreadPoolExecutor(len(helpers)) as threads:
        running = [threads.submit(helper.work, todo, keep) for helper in helpers]
        try:
            while not (all(each.done() for each in running) and told.empty()):
                try:
                    told.get(timeout=0.2)()
                except Empty:
                    continue
        finally:  # also after Ctrl-C
            for helper in helpers:
                helper.end()
    for each in running:
        each.result()


@final
class _Helper:
    """One helper process, started when it is needed and again after it has died."""

    def __init__(self, out: Path | None, told: Queue[Callable[[], None]], watch: Watch) -> None:
        self._out, self._told, self._watch = out, told, watch
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def work(self, todo: Queue[Batch], keep: Keep) -> None:
        """Train until there are no batches left; runs in a thread of its own."""
        try:
            while not self._ended:
                for results in attempts(todo.get_nowait(), self._train):
                    if not self._ended:
                        self._told.put(partial(keep, results))
        except Empty:
            return
        finally:
            self.end()
            self._close()

    def end(self) -> None:
        """Stop at once; what is being computed is lost."""
        self._ended = True
        if self._process is not None:
            self._process.kill()

    def _close(self) -> None:
        """Leave nothing of a process that has ended or was killed."""
        if (process := self._process) is not None:
            with suppress(BrokenPipeError):
                process.communicate()

    def _train(self, batch: Batch) -> list[Result]:
        if self._ended:
            raise RunError("It was interrupted.")
        process = self._process = self._started()
        if self._ended:  # meanwhile
            process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        out = None if self._out is None else str(self._out)
        with suppress(BrokenPipeError):  # it has died; its code says how
            process.stdin.write(json.dumps({"out": out, "jobs": [*map(to_record, batch)]}) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            found = json.loads(line)
            if "results" in found:
                return [Result(**record) for record in found["results"]]
            if "error" in found:
                raise RunError(found["error"])
            self._told.put(partial(self._reached, found))
        raise RunError(
            f"Its process ended with code {process.wait()}; -9 is often a lack of memory: try "
            "fewer jobs, or fewer runs at once."
        )

    def _reached(self, found: Mapping[str, tuple[int, int]]) -> None:
        for name, (done, of) in found.items():
            self._watch(name, Progress(done, of, 0, {}))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._close()
        return subprocess.Popen(
            [sys.executable, "-m", "anarchic.study.helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # Modules of the user's own are found where this process finds them.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
            start_new_session=True,  # Ctrl-C is for this process, which ends its helpers
        )


def to_record(job: Job) -> dict[str, Any]:
    """A job of settings as JSON; what ``read`` keeps is named."""
    reads = next(name for name, read in READERS.items() if read is job.cell.read)
    assert isinstance(job.cell.settings, Settings)
    compute = asdict(job.compute)
    names = {"name": job.cell.name, "task": job.cell.task, "seed": job.seed, "reads": reads}
    return {**names, "settings": asdict(job.cell.settings), "compute": compute}


def from_record(record: Mapping[str, Any]) -> Job:
    settings = Settings.from_record(record["settings"])
    read, how = READERS[record["reads"]], Compute(**record["compute"])
    cell = Cell(name=record["name"], task=record["task"], settings=settings, read=read)
    return Job(cell, record["seed"], how.device, how.precision, how.graphs, how=how)
