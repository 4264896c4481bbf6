"""The model with which a run begins, as ``anarchic init`` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from shlex import quote
from typing import Any, final

import numpy as np

from anarchic import wire
from anarchic.core.inspection import (
    Policy,
    dtype_concerns,
    needs_policy,
    size_concerns,
    some,
)
from anarchic.core.reading import shown
from anarchic.core.types import Layout, Vector
from anarchic.data import load
from anarchic.errors import ConfigError
from anarchic.models import make
from anarchic.models.module import Choice, FirstTensors, first_tensors, make_module
from anarchic.models.softmax import softmax_layout
from anarchic.worker.task import FromTask, digits_task, is_digits, made_task

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")  # how they begin


@final
@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """What a run begins with: one of ``model``, ``task`` and ``source``.

    ``model`` is one of the package, for ``data``. ``source`` is a safetensors file, or the
    ``module:Name`` of a torch module, class or function, which is called with ``options``.
    ``train`` and ``buffer_names`` are patterns: which parameters are trained, which buffers change.
    """

    model: str | None = None
    data: str = "digits"
    task: str | None = None
    source: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    train: str | None = None
    buffers: Policy | None = None
    buffer_names: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if [self.model, self.task, self.source].count(None) != 2:
            raise ConfigError(
                "Give --model, --task or --from: one of the three says what to write."
            )
        if self.seed < 0:
            raise ConfigError(f"A seed must be at least 0, got {self.seed}.")
        if self.task is not None and (self.train is not None or self.buffers is not None):
            raise ConfigError(
                "A task says itself what it trains and what becomes of buffers: leave out --train "
                "and --buffers."
            )
        if self.source is None and (self.options or self.buffer_names is not None):
            raise ConfigError(
                "--buffer-names and --from-option are for --from: give that, or leave them out."
            )


def write_initial_model(out: Path, initial: InitialModel) -> FirstTensors:
    """Write an initial model to a new file; what its user should know of it is in ``notes``."""
    if out.exists():
        raise ConfigError(f"{out} exists already: remove it, or write to another file.")
    if not out.parent.is_dir():
        raise ConfigError(f"There is no directory {out.parent} to write {out.name} to.")
    first, metadata = _first(initial)
    if first.buffers is not None:
        metadata |= wire.buffers_metadata(*first.buffers)
    wire.save_model(out, first.layout, first.params, **metadata)
    first.notes.extend(size_concerns(first.layout))
    return first


def _first(initial: InitialModel) -> tuple[FirstTensors, dict[str, str]]:
    choice = Choice(initial.train, initial.buffers, initial.buffer_names)
    if initial.model is not None:
        return initial_model(initial.model, initial.data, initial.seed, choice), {}
    if initial.task is not None:
        return initial_of_task(initial.task), {}
    source = str(initial.source)
    if _is_file(source):
        if initial.options:
            raise ConfigError(f"{source} is a file, which takes no options: leave them out.")
        return initial_of_file(Path(source), choice), {}
    module = make_module(source, initial.options, seed=initial.seed)
    known = {"module": source, "module_seed": str(initial.seed)}
    if initial.options:
        known["module_options"] = json.dumps(dict(initial.options))
    return first_tensors(module, choice, source), known


def _is_file(source: str) -> bool:
    path = Path(source)
    return ":" not in source or path.exists() or path.suffix in (".safetensors", *PICKLES)


def initial_model(model: str, data: str, seed: int, choice: Choice) -> FirstTensors:
    """A model by name for a data set, on which a training step shows which buffers change."""
    loaded = load(data)
    plain = choice == Choice()
    if plain and model == "logistic" and loaded.x_train.dtype.kind == "f":  # needs no torch
        classes = loaded.need_classes("Model 'logistic'")
        layout = softmax_layout(prod(loaded.x_train.shape[1:]), classes)
        return FirstTensors(layout, np.zeros(layout.dim, np.float32))
    module = make(model, loaded, seed=seed)
    from anarchic.train.torch_task import TorchTask

    policy, train = choice.buffers or "refuse", None if plain else choice.trains
    task = TorchTask(module, loaded, [np.arange(1)], train=train, buffers=policy)
    return _of_live(FromTask(task, 0))


def _of_live(task: Any) -> FirstTensors:
    """What travels of a task that was made; its policy is that of the run."""
    kept = tuple(getattr(task, "local_buffers", ()))
    policy = "average" if task.layout.buffers else "local" if kept else None
    return FirstTensors(task.layout, task.init(), policy, kept)


def initial_of_task(spec: str) -> FirstTensors:
    """The parameters that ``init()`` of the task ``module:name`` gives."""
    task: Any = digits_task(spec) if is_digits(spec) else made_task(spec, "layout", "init")
    if task.init is None:
        raise ConfigError(f"{spec} has no init(), which gives the initial parameters.")
    if getattr(task, "keeps_buffers", False):  # of the simulator, whose vector holds them
        task = FromTask(task, 0)
    layout: Layout = task.layout
    params: Vector = np.asarray(task.init())
    if params.shape != (layout.dim,) or not np.isfinite(params).all():
        raise ConfigError(
            f"{spec}: init() must give {layout.dim} finite numbers in one dimension, got shape "
            f"{params.shape}."
        )
    params = params if params.dtype == np.float64 else params.astype(np.float32)
    return replace(_of_live(task), params=params)


def initial_of_file(path: Path, choice: Choice) -> FirstTensors:
    """What travels of the tensors in a safetensors file, such as a state dict."""
    _check_readable(path)
    found, metadata = wire.load_tensors(path)
    known_policy, known = wire.buffers_of(metadata)
    policy = choice.buffers or known_policy
    changing = [n for n in found if n in known or choice.changes(n)]
    if changing and policy in (None, "refuse"):
        raise ConfigError(needs_policy(str(path), changing))
    whole = [n for n, (_, d) in found.items() if d[0] not in "FB" or d == "BOOL"]
    constant = [n for n in whole if n not in changing]
    plain = [n for n in found if n not in changing and n not in constant]
    trained = [n for n in plain if choice.trains(n)]
    if not trained:
        raise ConfigError(
            f"No tensor of {path} is trained"
            f"{f' with --train {choice.train!r}' if choice.train else ''}: it has "
            f"{some(list(found)) or 'none'}."
        )
    averaged = changing if policy == "average" else []
    tensors = {n: found[n][0] for n in [*trained, *averaged]}
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise ConfigError(f"{shown(name)} has numbers that are not finite: save a model again.")
    layout = Layout.of(
        {n: (t.shape, "F64" if t.dtype == np.float64 else "F32") for n, t in tensors.items()},
        averaged,
    )
    notes = dtype_concerns(Layout.of({n: ((), found[n][1]) for n in trained}))
    if constant:
        notes.append(f"{some(constant)} hold whole numbers, which no step changes: left out.")
    if rest := [n for n in plain if n not in trained]:
        notes.append(f"{len(rest)} tensors ({some(rest)}) are left out: every worker has its own.")
    kept = tuple(sorted({*known, *changing})) if policy == "local" else ()
    return FirstTensors(
        layout, layout.join(tensors), policy if changing or kept else None, kept, notes
    )


def _check_readable(path: Path) -> None:
    """A pickle can run any program when it is read, so it is not read at all."""
    if not path.is_file():
        raise ConfigError(
            f"--from takes MODULE:NAME or a safetensors file, and there is no file {path}."
        )
    try:
        with path.open("rb") as file:
            pickled = path.suffix in PICKLES or file.read(4).startswith(_PICKLED)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    if pickled:
        out = path.with_name(f"{path.stem}-converted.safetensors")
        raise ConfigError(
            f"{path} is a pickle, which can run any program when it is read. If you trust it, "
            'convert it: python -c "import sys, torch; from safetensors.torch import save_file; '
            "s = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
            "s = s.get('state_dict', s); "
            'save_file({k: v.clone().contiguous() for k, v in s.items()}, sys.argv[2])" '
            f"{quote(str(path))} {quote(str(out))}; then say --from {quote(str(out))}."
        )
