"""Parts by name: built in, from other packages (entry points), or ``module:Name``.

A package that offers a rule says so in its ``pyproject.toml``; the other groups are listed in
``KINDS``:

    [project.entry-points."anarchic.rules"]
    median = "their_package.rules:Median"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from anarchic.core.reading import shown
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError


class Kind(NamedTuple):
    """A kind of part: what it is called, and those that come with the package."""

    called: str
    built_in: Mapping[str, str]  # name -> module:Name


def _in(module: str, *classes: str) -> dict[str, str]:
    """Classes of one module under their own names, in small letters and without ``Step``."""
    return {each.removesuffix("Step").lower(): f"anarchic.{module}:{each}" for each in classes}


KINDS: Mapping[str, Kind] = {
    "rules": Kind(
        "rule",
        {
            "afa-cd": "anarchic.core.rules.afa_cd:AfaCd",
            "afa-cs": "anarchic.core.rules.afa_cs:AfaCs",
            "fedavg": "anarchic.core.rules.fedavg:FedAvg",
            "fedasync": "anarchic.core.rules.fedasync:FedAsync",
            "fedbuff": "anarchic.core.rules.fedbuff:FedBuff",
            "ca2fl": "anarchic.core.rules.calibrated:Ca2fl",
            "fedvarp": "anarchic.core.rules.calibrated:FedVarp",
            "fedstale": "anarchic.core.rules.calibrated:FedStale",
            "mifa": "anarchic.core.rules.mifa:Mifa",
            "ace": "anarchic.core.rules.mifa:Ace",
            "fadas": "anarchic.core.rules.fadas:Fadas",
            "async-sgd": "anarchic.core.rules.async_sgd:AsyncSgd",
            "fednova": "anarchic.core.rules.fednova:FedNova",
            "feddyn": "anarchic.core.rules.feddyn:FedDyn",
            "area": "anarchic.core.rules.area:Area",
            "aced": "anarchic.core.rules.aced:Aced",
            "rennala": "anarchic.core.rules.rennala:Rennala",
            "malenia": "anarchic.core.rules.malenia:Malenia",
            "ringleader": "anarchic.core.rules.ringleader:Ringleader",
            "generalized-async-sgd": "anarchic.core.rules.generalized:GeneralizedAsyncSgd",
        },
    ),
    "local_rules": Kind(
        "local rule",
        _in("core.local", "Sgd", "Prox", "Scaffold", "Momentum", "Adam")
        | _in("core.local_dyn", "Dyn")
        | _in("core.local_mime", "MimeLite")
        | _in("core.local_wrappers", "ClipNorm", "Decay")
        | _in("core.local_schedules", "WarmUp", "Cosine", "Milestones", "Schedule"),
    ),
    "server_steps": Kind(
        "server optimiser",
        _in("core.steps", "SgdStep", "MomentumStep", "AdamStep", "YogiStep", "AmsGradStep"),
    ),
    "participation": Kind(
        "participation",
        _in("participation.sampler", "Sampler")
        | _in("participation.idle", "Exponential", "LogNormal", "Diurnal", "Unequal"),
    ),
    "datasets": Kind(
        "data set",
        {
            "digits": "anarchic.data.digits:load_digits",
            "mnist": "anarchic.data.mnist:load_mnist",
            "fashion-mnist": "anarchic.data.mnist:load_fashion_mnist",
            "cifar10": "anarchic.data.cifar10:load_cifar10",
            "cifar100": "anarchic.data.cifar100:load_cifar100",
            "shakespeare": "anarchic.data.shakespeare:load_shakespeare",
            "synthetic": "anarchic.data.synthetic:load_synthetic",
            "femnist": "anarchic.data.leaf:load_femnist",
            "leaf-shakespeare": "anarchic.data.leaf:load_leaf_shakespeare",
            "csv": "anarchic.data.csv_file:load_csv",
            "huggingface": "anarchic.data.huggingface:load_huggingface",
        },
    ),
    "models": Kind(
        "model",
        {
            "logistic": "anarchic.models.logistic:Logistic",
            "mlp": "anarchic.models.mlp:Mlp",
            "cnn": "anarchic.models.cnn:Cnn",
            "lstm": "anarchic.models.lstm:Lstm",
        },
    ),
    "tasks": Kind("task", {"digits": "anarchic.worker.task:digits_task"}),
    "callbacks": Kind(
        "callback",
        {
            "tensorboard": "anarchic.callbacks.loggers:TensorBoard",
            "mlflow": "anarchic.callbacks.loggers:MLflow",
            "wandb": "anarchic.callbacks.loggers:WandB",
            "keep-best": "anarchic.callbacks.best:KeepBest",
            "early-stop": "anarchic.callbacks.best:EarlyStop",
        },
    ),
}


class Part(NamedTuple):
    """Something installed, and the package that it comes from."""

    name: str
    spec: str  # module:Name
    package: str
    rivals: tuple[str, ...] = ()  # other packages that offer something by this name


def load(spec: str) -> Any:
    """The object that ``module:Name`` names."""
    module, colon, name = spec.partition(":")
    if not (module and colon and name) or module.startswith("."):
        raise ConfigError(f"Expected module:name, such as my_module:MyRule, got {spec!r}.")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"There is no module {module!r} here, which {spec} names.") from error
        raise _not_importable(module, error) from error
    except (Exception, SystemExit) as error:  # whatever a module of somebody else does
        raise _not_importable(module, error) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"Module {module!r} has no {name!r}.")
        found = getattr(found, part)
    return found


def _not_importable(module: str, error: BaseException) -> ConfigError:
    return ConfigError(
        f"Module {module!r} cannot be imported ({type(error).__name__}: {error}): mend it."
    )


def find(kind: str, name: str) -> Any:
    """The part of that name, or that ``module:Name`` names; a name that nobody knows is refused."""
    check_name(kind, name)
    if ":" in name and _REFUSING:
        raise ConfigError(
            f"The run names the {KINDS[kind].called} {shown(name)}, which is code from outside of "
            "the installed packages; looking at a run executes none. If you know who wrote the "
            "run, add --trust."
        )
    part = Part(name, name, "") if ":" in name else _parts(kind)[name]
    if part.rivals:
        raise ConfigError(
            f"The {KINDS[kind].called} {name!r} is offered by {part.package} and by "
            f"{', '.join(part.rivals)}: remove all but one of these packages."
        )
    found = load(part.spec)
    if kind != "tasks" and not callable(found):  # a task may be there as it is
        raise ConfigError(
            f"{part.spec} is a {type(found).__name__}, not a {KINDS[kind].called}: name a class or "
            "a function that makes one."
        )
    return found


def spec(kind: str, name: str) -> str:
    """The ``module:Name`` of a part; nothing is imported."""
    check_name(kind, name)
    return name if ":" in name else _parts(kind)[name].spec


_REFUSING: list[None] = []  # an entry for each ``installed_only`` that holds


@contextmanager
def installed_only(trusted: bool = False) -> Iterator[None]:
    """Refuse ``module:Name`` in this process while it lasts: such a name may run any program.

    For commands that look at what somebody else may have written. It holds in all threads.
    """
    if trusted:
        yield
        return
    _REFUSING.append(None)
    try:
        yield
    finally:
        _REFUSING.pop()


def check_name(kind: str, name: str) -> None:
    """Refuse a name that nobody knows; nothing is imported."""
    if ":" not in name:
        check_choice(KINDS[kind].called, name, names(kind))


def chain(name: str) -> list[str]:
    """The names in ``clipnorm+decay+adam``: wrappers, the outermost first, and what they wrap."""
    return name.split("+")


def names(kind: str) -> tuple[str, ...]:
    """All that is installed, the built-in ones first."""
    return tuple(_parts(kind))


def parts(kind: str) -> tuple[Part, ...]:
    """All that is installed, with the packages that it comes from."""
    return tuple(_parts(kind).values())


def refresh() -> None:
    """Look again for what is installed, after a package was installed or removed."""
    _parts.cache_clear()


@cache
def _parts(kind: str) -> dict[str, Part]:
    found = {n: Part(n, spec, "anarchic") for n, spec in KINDS[kind].built_in.items()}
    for entry in sorted(entry_points(group=f"anarchic.{kind}"), key=lambda entry: entry.name):
        part = Part(entry.name, f"{entry.module}:{entry.attr}", _package(entry))
        if ":" in part.name:  # it would be taken for module:Name
            continue
        known = found.setdefault(part.name, part)
        if known.spec != part.spec:
            found[part.name] = known._replace(rivals=(*known.rivals, part.package))
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def first_line(spec: str) -> str:
    """The first line of the docstring of what ``module:Name`` names, without importing it.

    Some parts need PyTorch, which is heavy or not there.
    """
    module, _, name = spec.partition(":")
    try:
        found = find_spec(module)
        text = Path(found.origin).read_text(encoding="utf-8") if found and found.origin else ""
        tree = ast.parse(text)
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""
