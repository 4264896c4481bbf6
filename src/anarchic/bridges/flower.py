"""A Flower client as it is, as a worker: ``fit`` is a visit, its examples are the samples.

``anarchic work --flower my_app:client_fn`` runs a ``NumPyClient`` (or ``Client``) by its
``client_fn``, of the old signature ``client_fn(cid)`` or the new ``client_fn(context)``, or a
``ClientApp``. Each visit is the message that a Flower server would send for training.
"""

from __future__ import annotations

import inspect
import re
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from anarchic import worker
from anarchic.bridges.visit import Tensors, check_fit, write_first_model
from anarchic.core import registry
from anarchic.core.names import token_owner
from anarchic.core.types import Layout, Snapshot, Vector
from anarchic.errors import ConfigError
from anarchic.worker import Summary, WorkSettings

Config = Mapping[str, Any]
"""Texts, numbers and truth values by name, as Flower passes them about."""

# A client decides these itself.
_CLIENTS_OWN = {
    "task": "--task",
    "local_steps": "--local-steps",
    "time_budget_s": "--time-budget-s",
    "local_lr": "--local-lr",
    "local_rule": "--local-rule",
    "local_options": "--local-option",
}
_DAY_S = 86_400.0  # how long a message may be answered; nobody looks
_PLACE = re.compile(r"\d{4,}")  # the name of an array that a client knows by its place alone
_STATISTICS = re.compile(r"(?:.*[._/])?(?:running_(?:mean|var)|num_batches_tracked)")


def run(settings: WorkSettings, client: str, config: Config | None = None) -> Summary:
    """Be a worker whose training is the Flower client ``module:name``.

    ``config`` is given to the client wherever it looks: as the configuration of the node, of the
    run and of ``fit``. What ``pyproject.toml`` here has for the run of a Flower app comes first.
    """
    return worker.run(*as_task(settings, client, config))


def as_task(
    settings: WorkSettings, client: str, config: Config | None = None
) -> tuple[WorkSettings, FlowerTask]:
    """The settings and the task of a worker whose training is a Flower client: see ``run``."""
    defaults = {field.name: field.default for field in fields(settings)}
    for name, flag in _CLIENTS_OWN.items():
        if getattr(settings, name) not in (defaults[name], {}):
            raise ConfigError(
                f"{flag} has no use with --flower: the client itself says what it trains and how "
                "long. Leave it out."
            )
    owner = settings.name or token_owner(settings.token() or "") or ""
    task = FlowerTask(registry.load(client), config or {}, run_config=app_config(), name=owner)
    return replace(settings, local_steps=1, local_lr=1.0), task


@final
class FlowerTask:
    """The client's whole training as one local step at rate 1, along what it has changed."""

    def __init__(
        self, client: Any, config: Config, *, run_config: Config | None = None, name: str = ""
    ) -> None:
        self._app, self._legacy = _app_of(client)
        self._node, self._run = dict(config), {**(run_config or {}), **config}
        self._context = _context(crc32(name.encode()), self._node, self._run)
        self.layout = Layout.of({})
        self._round = 0

    def begin(self, layout: Layout, snapshot: Snapshot) -> None:
        """A visit begins: Flower counts rounds from 1, a server its versions from 0."""
        if self._legacy and not all(map(_PLACE.fullmatch, layout.names)):
            raise ConfigError(
                f"The server's model has named tensors ({', '.join(layout.names[:3])}, ...), but "
                "this client knows its arrays by their order: start a server with the model that "
                "anarchic init --flower writes."
            )
        self.layout, self._round = layout, snapshot.version + 1

    def gradient(self, params: Vector) -> tuple[Vector, float | None, int]:
        """Train once; gives what the client has changed, its loss if it tells one, its examples."""
        reply = self._ask("train", named_arrays(self.layout, params))
        end = tensors_of(_only(reply.array_records, "arrays"))
        check_fit(self.layout, end)
        after = self.layout.join(end).astype(params.dtype, copy=False)
        moved: Vector = params - after
        moved[self.layout.buffer_places] = after[self.layout.buffer_places]
        told = _told(reply)
        return moved, _loss(told), _examples(told)

    def first_arrays(self) -> dict[str, NDArray[Any]]:
        """What ``get_parameters`` of the client gives."""
        asked = "name a function without arguments that returns the arrays of the first model"
        if not self._legacy:
            raise ConfigError(
                "A ClientApp of messages does not tell its first model, which Flower has in the "
                f"ServerApp: {asked}, such as ArrayRecord(Net().state_dict())."
            )
        found = tensors_of(_only(self._ask("get_parameters").array_records, "arrays"))
        if not found:
            raise ConfigError(f"The client has no get_parameters: {asked}.")
        return found

    def _ask(self, kind: str, arrays: Mapping[str, NDArray[Any]] | None = None) -> Any:
        """The client's answer to a message, as a Flower server would send it."""
        from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, RecordDict

        config = self._run | {"server_round": self._round, "server-round": self._round}
        names = ("fitins.parameters", "fitins.config") if self._legacy else ("arrays", "config")
        content: dict[str, Any] = {names[1]: ConfigRecord(config)}
        if arrays is None:
            content = {"getparametersins.config": ConfigRecord(dict(self._run))}
        else:
            packed = {name: Array(array) for name, array in arrays.items()}
            content[names[0]] = ArrayRecord(packed)
        # Whole, since a message on its own would look for the process of a Flower server.
        metadata = Metadata(
            run_id=self._context.run_id,
            message_id="",
            src_node_id=0,
            dst_node_id=self._context.node_id,
            reply_to_message_id="",
            group_id=str(self._round),
            created_at=time.time(),
            ttl=_DAY_S,
            message_type=kind,
        )
        message = Message(content=RecordDict(content), metadata=metadata)
        reply = self._app(message, self._context)
        if reply.has_error():
            raise ConfigError(f"The Flower client answered with an error: {reply.error}.")
        return reply.content


def write_first(
    path: Path | str, client: str, config: Config | None = None, *, average: Iterable[str] = ()
) -> Layout:
    """Write the first model of a Flower app for ``anarchic serve --init``.

    ``client`` is as for ``run``, and then ``get_parameters`` gives the model; or it names a
    function without arguments that returns its arrays: a list, a mapping or an ``ArrayRecord``.
    Running statistics of BatchNorm layers, and what ``average`` names, are averaged by the server.
    """
    found = registry.load(client)
    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        tensors = tensors_of(found())
    else:
        tensors = FlowerTask(found, config or {}, run_config=app_config()).first_arrays()
    return write_first_model(path, tensors, buffers={*average, *statistics(tensors)})


def tensors_of(arrays: Any) -> dict[str, NDArray[Any]]:
    """Arrays by name; those of a list are named by their places, ``0000`` and so on."""
    if isinstance(arrays, Mapping):  # an ArrayRecord, or named arrays
        named = {name: _array(each) for name, each in arrays.items() if name != "_empty"}
        if all(name.isdecimal() for name in named):
            return {f"{int(name):04d}": array for name, array in named.items()}
        return named
    if isinstance(arrays, Sequence) and not isinstance(arrays, str | bytes):
        return {f"{place:04d}": np.asarray(array) for place, array in enumerate(arrays)}
    raise ConfigError(
        f"The first model must be a list of arrays, a mapping or an ArrayRecord, got a "
        f"{type(arrays).__name__}."
    )


def named_arrays(layout: Layout, params: Vector) -> dict[str, NDArray[Any]]:
    """A model as a client is given it: in its order where it has one, counters as whole numbers."""
    found = {}
    for name, array in sorted(layout.split(params).items()):
        counter = name in layout.buffers and array.ndim == 0
        known = np.array(np.rint(array) if counter else array, np.int64 if counter else None)
        found[str(int(name)) if _PLACE.fullmatch(name) else name] = known
    return found


def statistics(tensors: Tensors) -> set[str]:
    """Running statistics of BatchNorm layers: known by name, or in a list by their form.

    PyTorch's state has them as a mean, a variance of the same length, and a whole number.
    """
    found = {name for name in tensors if _STATISTICS.fullmatch(name)}
    names = list(tensors)
    for place, name in enumerate(names):
        counter = np.asarray(tensors[name])
        if counter.ndim == 0 and counter.dtype.kind in "iu" and place >= 2:
            mean, variance = (np.shape(tensors[names[place - back]]) for back in (2, 1))
            if len(mean) == 1 and mean == variance:
                found |= set(names[place - 2 : place + 1])
    return found


def app_config(file: Path = Path("pyproject.toml")) -> dict[str, Any]:
    """What the project file of a Flower app sets for its runs; nothing where there is none."""
    if not file.is_file():
        return {}
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    config = found.get("tool", {}).get("flwr", {}).get("app", {}).get("config", {})
    return dict(_flat(config))


def parse_config(pairs: Iterable[str]) -> dict[str, Any]:
    """``["partition-id=0", "lr=0.1"]`` as Flower's command reads them: numbers, truth, or texts."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not (name and equals):
            raise ConfigError(f"--flower-config takes NAME=VALUE, such as lr=0.1; got {pair!r}.")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("\"'")


def _flat(config: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _app_of(client: Any) -> tuple[Any, bool]:
    """A ``ClientApp``, and whether it stands on a ``client_fn``."""
    try:
        from flwr.clientapp import ClientApp
    except ImportError as error:
        raise ConfigError(
            f"Flower cannot be imported here ({error}): pip install 'flwr>=1.22'."
        ) from error
    if isinstance(client, ClientApp):
        return client, getattr(client, "_call", None) is not None
    if isinstance(client, type) or hasattr(client, "fit"):  # a client, or its class
        return ClientApp(lambda context: _as_client(client)), True
    if not callable(client):
        raise ConfigError(
            f"--flower names a {type(client).__name__}: name a client_fn, a ClientApp or a client."
        )
    try:
        return ClientApp(client), True
    except ValueError as error:  # of its arguments
        raise ConfigError(
            f"--flower names {getattr(client, '__name__', client)!r}, which is no client_fn: it "
            "must take one argument, a context or a client's number."
        ) from error


def _as_client(client: Any) -> Any:
    made = client() if isinstance(client, type) else client
    return made.to_client()


def _context(node: int, node_config: Config, run_config: Config) -> Any:
    from flwr.app import Context, RecordDict

    return Context(
        run_id=0,
        node_id=node,
        node_config=dict(node_config),
        state=RecordDict(),
        run_config=dict(run_config),
    )


def _array(found: Any) -> NDArray[Any]:
    return np.asarray(found.numpy() if hasattr(found, "numpy") else found)


def _only(records: Mapping[str, Any], usual: str) -> Any:
    """The record of that name, or the only one there is."""
    if usual in records or len(records) == 1:
        return records[usual] if usual in records else next(iter(records.values()))
    raise ConfigError(
        f"The Flower client answered with array records {sorted(records)}: it must give the "
        f"trained model back as {usual!r}, or as the only one."
    )


def _told(reply: Any) -> dict[str, Any]:
    records = [*reply.config_records.values(), *reply.metric_records.values()]
    return {name.replace("-", "_"): value for record in records for name, value in record.items()}


def _loss(told: Config) -> float | None:
    for name in ("loss", "train_loss"):
        if isinstance(told.get(name), int | float):
            return float(told[name])
    return None


def _examples(told: Config) -> int:
    return int(told.get("num_examples", 0))
