"""Evaluation of new versions by a user's function, in a process of its own.

Aggregation never waits for it. While it is busy, newer versions replace the one that waits.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from math import isfinite
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np

from anarchic import wire
from anarchic.core.registry import load
from anarchic.core.types import Layout, Snapshot
from anarchic.errors import ConfigError, StoreError
from anarchic.models.module import make_module, set_tensors
from anarchic.server.callbacks import Callbacks
from anarchic.server.keeping import Keeper, check_metrics
from anarchic.server.log import Log
from anarchic.server.published import PublishedModel
from anarchic.server.runs import FirstModel
from anarchic.server.settings import RunSettings
from anarchic.server.store import Store

JUDGE_S = 10.0  # in which a judge may say of the first model which metrics there are


def shown(version: int, metrics: Mapping[str, float]) -> dict[str, Any]:
    """An evaluation as JSON: numbers that are not finite become null."""
    numbers = {name: value if isfinite(value) else None for name, value in metrics.items()}
    return {**numbers, "version": version}


@final
@dataclass(frozen=True)
class Judging:
    """A function that evaluates, and the module that it is given where it asks for one."""

    judge: str  # MODULE:NAME, as the next
    module: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # with which the module is made
    seed: int = 0  # of what it has and the model has not, as frozen parameters

    def make(self) -> Any:  # Any: a torch module, and PyTorch may be missing
        if self.module is None:
            return None
        return make_module(self.module, self.options, seed=self.seed)


def judging(run: RunSettings, about: Mapping[str, Any], layout: Layout) -> Judging | None:
    """How versions are evaluated; ``about`` says of which module the model was made.

    A module that does not have the model's tensors is refused here, not after the first version.
    """
    if run.evaluate is None:
        if run.model is not None:
            raise ConfigError("--model is for --evaluate: give that too, or leave it out.")
        return None
    asked = parameters_of(load(run.evaluate))
    if sum(not is_module(p) for p in asked) > 1:
        names = ", ".join(parameter.name for parameter in asked)
        raise ConfigError(
            f"{run.evaluate} has the parameters {names}: a judge takes a snapshot, or a torch "
            "module called module, or both."
        )
    if not any(map(is_module, asked)):
        return Judging(run.evaluate)
    if about.get("local_buffers") and (run.best or run.goal):
        raise ConfigError(
            f"{' and '.join(_choosing(run))} cannot choose by {run.evaluate}: workers keep their "
            "own running statistics (buffers local), and the module that it judges has those it "
            "was made with. Leave that out, begin the run with anarchic init --buffers average, or "
            "let the judge take the snapshot and set the statistics itself."
        )
    spec = run.model or about.get("module")
    if spec is None:
        raise ConfigError(
            f"{run.evaluate} asks for a torch module, and the model does not say of which it was "
            "made: give --model MODULE:NAME."
        )
    made: Mapping[str, Any] = {} if run.model else about
    options, seed = made.get("module_options", {}), made.get("module_seed", 0)
    found = Judging(run.evaluate, spec, options, seed)
    zeros = {n: np.zeros(s, np.float32) for n, s in zip(layout.names, layout.shapes, strict=True)}
    set_tensors(found.make(), zeros, spec)
    return found


def _choosing(run: RunSettings) -> list[str]:
    """The options that choose by evaluations."""
    given = {"--keep-best": run.best, "--target": run.goal}
    return [option for option, wanted in given.items() if wanted is not None]


def parameters_of(judge: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a judge that it is given: those without a default, and the module."""
    try:
        found = signature(judge).parameters.values()
    except (TypeError, ValueError):  # of something that is no Python function
        return [Parameter("snapshot", Parameter.POSITIONAL_ONLY)]
    wanted = [p for p in found if is_module(p) or p.default is Parameter.empty]
    return [p for p in wanted if p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]


def is_module(parameter: Parameter) -> bool:
    """Whether a parameter is named ``module``, or annotated as a torch module."""
    hint = parameter.annotation
    told = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
    return parameter.name == "module" or told.rpartition(".")[2] == "Module"


class Evaluator:
    """Hands the newest version to the process, one at a time.

    ``callbacks`` and ``keeper`` hear what is found.
    """

    def __init__(
        self, judge: str | Judging, store: Store, log: Log,
        callbacks: Callbacks | None = None, keeper: Keeper | None = None,
    ) -> None:  # fmt: skip
        self._judging = Judging(judge) if isinstance(judge, str) else judge
        load(self._judging.judge)  # a wrong name fails now, not after the first version
        self._store, self._log = store, log
        self._callbacks, self._keeper = callbacks, keeper
        self._next: PublishedModel | None = None
        self._wake = threading.Condition()
        self._stopping = False
        before = [shown(*evaluation) for evaluation in store.evaluations(limit=1)]
        self.latest: dict[str, Any] | None = before[0] if before else None
        self._thread = threading.Thread(target=self._run, name="evaluate", daemon=True)
        self._thread.start()

    def offer(self, model: PublishedModel) -> None:
        with self._wake:
            self._next = model
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._serve_one_process()
            except Exception as error:  # it died, or none could be started: try again
                self._log("evaluator_died", reason=repr(error))
            with self._wake:  # a process that dies at once is not restarted at full speed
                self._wake.wait_for(lambda: self._stopping, 1.0)

    def _serve_one_process(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(self._judging, theirs), daemon=True)
        try:
            with theirs:
                process.start()
            self._feed(ours)
        finally:
            ours.close()
            if process.pid is not None:
                process.terminate()
                process.join(5)

    def _feed(self, pipe: Connection) -> None:
        while (model := self._take()) is not None:
            pipe.send_bytes(model.body)
            while not pipe.poll(0.2):
                if self._stopping:
                    return
            answer = json.loads(pipe.recv_bytes())
            if "failed" in answer:
                self._log("evaluation_failed", version=model.version, reason=answer["failed"])
                continue
            found = answer["found"]
            self.latest = shown(model.version, found)
            if self._callbacks is not None:
                self._callbacks.evaluated(model.version, found)
            try:
                self._store.add_evaluation(model.version, found)
            except StoreError as error:
                self._log("store_error", reason=str(error))
            if self._keeper is not None:  # last: whoever ends the run finds the evaluation stored
                self._keeper.evaluated(model, found)

    def _take(self) -> PublishedModel | None:
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._next is not None)
            model, self._next = self._next, None
            return None if self._stopping else model


def check_judge(run: RunSettings, first: FirstModel) -> None:
    """Before a run is begun: a metric that the judge does not return would be missed only later."""
    judge = judging(run, first.about, first.layout)
    if judge is None or not (run.best or run.goal):
        return
    body = wire.encode_snapshot(first.layout, Snapshot(0, first.params), "new")
    found = judge_apart(judge, body, within_s=JUDGE_S)
    if found is not None:  # if it fails or is slow, the log says so later
        check_metrics(run.best, run.goal, found)


def judge_apart(judging: Judging, body: bytes, *, within_s: float) -> dict[str, float] | None:
    """What the judge says of a version, in a process of its own; None if it fails or is slow."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(judging, theirs), daemon=True)
    try:
        with theirs:
            process.start()
        ours.send_bytes(body)
        found = json.loads(ours.recv_bytes()).get("found") if ours.poll(within_s) else None
        return None if found is None else dict(found)
    except (EOFError, OSError):
        return None
    finally:
        ours.close()
        if process.pid is not None:
            process.terminate()
            process.join(5)


def judge_once(judging: Judging, snapshot: Snapshot) -> dict[str, float]:
    """What the judge says of a version, here and now."""
    return _asked(judging, load(judging.judge), judging.make(), snapshot)


def _asked(
    judging: Judging, judge: Callable[..., Any], module: Any, snapshot: Snapshot
) -> dict[str, float]:
    if module is not None:
        set_tensors(module, snapshot.tensors, str(judging.module))
        module.eval()
    return _numbers(_judged(judge, snapshot, module))


def _serve(judging: Judging, pipe: Connection) -> None:
    judge, module = load(judging.judge), judging.make()
    while True:
        try:
            _, snapshot, _ = wire.decode_snapshot(pipe.recv_bytes())
        except (EOFError, OSError):  # the server stopped, or was killed
            return
        try:
            answer: dict[str, Any] = {"found": _asked(judging, judge, module, snapshot)}
        except Exception as error:  # the user's function may do anything
            answer = {"failed": repr(error)}
        try:
            pipe.send_bytes(json.dumps(answer).encode())
        except OSError:
            return


def _judged(judge: Callable[..., Any], snapshot: Snapshot, module: Any) -> object:
    given, named = [], {}
    for parameter in parameters_of(judge):
        value = module if is_module(parameter) else snapshot
        if parameter.kind is Parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            given.append(value)
    return judge(*given, **named)


def _numbers(found: object) -> dict[str, float]:
    if not isinstance(found, Mapping):
        raise TypeError(f"it returned {found!r:.80}, not a dict of numbers such as accuracy")
    return {str(key): float(value) for key, value in found.items()}
