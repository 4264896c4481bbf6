"""The options of ``Settings`` and ``Compute``: one per field, shared by all commands that take it.

A field's type and default stand in its record and nowhere else. An option that was not given is
not passed on, so that the defaults, or the settings of a run that is resumed, hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from anarchic.cli.help import option
from anarchic.cli.values import parse_options, parse_probabilities
from anarchic.core.local import LOCAL_RULES
from anarchic.core.rules import RULES
from anarchic.core.steps import STEPS
from anarchic.data import DATASETS
from anarchic.models import MODELS
from anarchic.sim.settings import PARTICIPATIONS, TIME_DISTRIBUTIONS, WORKERS, Settings
from anarchic.train.compute import BACKENDS, PRECISIONS, Compute

Given = dict[str, Any]
"""The settings that were given on the command line, by the name of their field, still as typed."""


@dataclass(frozen=True)
class Option:
    """One option: its help, and the group in which it is listed."""

    group: str
    help: str
    metavar: str | None = None
    stands_for: str | None = None  # the default in words, where the record has None
    flag: str | None = None  # where it is not the field's name


def _one_of(group: str, help: str, known: Iterable[str], stands_for: str | None = None) -> Option:
    """An option that takes a name. The names are in the sentence: beside the flag is no room."""
    return Option(group, f"{help}: {', '.join(known)}.", "NAME", stands_for)


_DATA, _SERVER, _WORKERS = "Data and model", "Server", "Workers"
_PARTICIPATION, _TIME = "Participation", "Participation in continuous time"
_RUN, _COMPUTE = "Run", "Compute"

OPTIONS: Mapping[str, Option] = {
    "data": _one_of(_DATA, "The data set", DATASETS),
    "data_dir": Option(
        _DATA, "Directory to search first for data files.", "DIR", "ANARCHIC_DATA, then the cache"
    ),
    "data_options": Option(
        _DATA,
        "A setting of the data set, such as roles=50 of shakespeare; may be repeated.",
        "NAME=VALUE",
        "the data set's own",
        flag="--data-option",
    ),
    "model": _one_of(_DATA, "The model", MODELS),
    "workers": Option(_DATA, "Number of workers (M).", None, f"{WORKERS}, or one per role"),
    "labels_per_worker": Option(
        _DATA, "Each worker holds samples of N classes (p).", None, "all classes, at random"
    ),
    "dirichlet": Option(
        _DATA,
        "Split each class in Dirichlet(alpha) proportions; small alpha is uneven.",
        "ALPHA",
        "all classes, at random",
    ),
    "augment": Option(
        _DATA, "Crop and mirror training images.", None, "as is usual for the data set"
    ),
    "rule": _one_of(_SERVER, "How updates become steps", RULES),
    "m": Option(_SERVER, "Updates per server step (m).", None, "5, for rules that have it"),
    "server_lr": Option(
        _SERVER,
        "Server learning rate (eta). AFA steps along the mean of eta_L * G, FedAvg K times as far.",
        None,
        "1.0, for rules that have it",
    ),
    "server_opt": _one_of(_SERVER, "How a mean becomes a step", STEPS, "sgd"),
    "server_options": Option(
        _SERVER,
        "A setting of the server step, such as epsilon=1e-5 of adam; may be repeated.",
        "NAME=VALUE",
        "the step's own",
        flag="--server-option",
    ),
    "rule_options": Option(
        _SERVER,
        "Another setting of the rule, such as power=0.5 of fedbuff; may be repeated.",
        "NAME=VALUE",
        "the rule's own",
        flag="--rule-option",
    ),
    "staleness_power": Option(
        _SERVER,
        "Weigh each update by (1 + tau) ** -P, where tau is its staleness.",
        "P",
        "equal weights",
    ),
    "clip": Option(
        _SERVER,
        "Bound eta_L * ||G|| of each update (times K where the rule counts it).",
        "C",
        "no bound",
    ),
    "local_rule": _one_of(_WORKERS, "What a local step does", LOCAL_RULES),
    "mu": Option(_WORKERS, "Pull of prox towards the pulled model (mu).", None, "0.1, for prox"),
    "local_options": Option(
        _WORKERS,
        "Another setting of the local rule, such as beta=0.9 of momentum; may be repeated.",
        "NAME=VALUE",
        "the rule's own",
        flag="--local-option",
    ),
    "local_steps": Option(_WORKERS, "Local steps per visit (K)."),
    "dynamic_steps": Option(_WORKERS, "Draw K for each visit uniformly from 1 .. 2*local-steps."),
    "local_lr": Option(_WORKERS, "Local learning rate (eta_L)."),
    "batch": Option(_WORKERS, "Samples per local step."),
    "participation": _one_of(
        _PARTICIPATION,
        "Who reports when: the paper's sampler, which has no clock, or continuous time, where "
        "fedavg runs in synchronous rounds that wait for the slowest worker",
        PARTICIPATIONS,
    ),
    "max_staleness": Option(
        _PARTICIPATION, "Sampler: updates start at most N versions back (tau); 0 is never late."
    ),
    "replace": Option(_PARTICIPATION, "Sampler: a worker may report more than once per round."),
    "arrival_probs": Option(
        _PARTICIPATION, "Sampler: probability of each worker to report.", "P1,P2,...", "equal"
    ),
    "idle_s": Option(
        _TIME,
        "Mean idle time before a visit, in virtual seconds; of diurnal workers while they are "
        "awake, 8 hours per day.",
    ),
    "step_s": Option(_TIME, "Mean time of one local step; slow workers take longer."),
    "time_distribution": _one_of(
        _TIME, "Distribution of the time that a visit takes", TIME_DISTRIBUTIONS
    ),
    "slow_share": Option(_TIME, "Probability that a worker is slow."),
    "slow_factor": Option(_TIME, "Slow workers take this many times longer."),
    "lost_share": Option(_TIME, "Probability that a worker drops out during a visit."),
    "timeout_s": Option(
        _TIME,
        "Seconds after which synchronous fedavg replaces a silent worker.",
        None,
        "never; needed with --lost-share",
    ),
    "availability": Option(
        _TIME, "CSV file worker,from_s,until_s: when workers are available.", "FILE", "always"
    ),
    "rounds": Option(_RUN, "Number of server steps (T)."),
    "seed": Option(_RUN, "Random seed."),
    "dtype": _one_of(_RUN, "Type of parameters", ("float32", "float64")),
    "eval_every": Option(
        _RUN,
        "Rounds between evaluations; the last ten rounds are evaluated.",
        None,
        "about 50 in all",
    ),
    "target_accuracy": Option(
        _RUN,
        "End the run when this share of test samples is classified correctly.",
        None,
        "run all rounds",
    ),
    "device": _one_of(_COMPUTE, "Where training is computed", ("cpu", "cuda")),
    "precision": _one_of(_COMPUTE, "How cuda multiplies matrices", PRECISIONS),
    "threads": Option(
        _COMPUTE,
        "Threads that train and fold updates.",
        None,
        "torch's choice; 1 for logistic, but up to 4 in compiled loops and folds of large models",
    ),
    "backend": _one_of(
        _COMPUTE,
        "Compute one visit at a time, many together, or many on a Ray cluster",
        BACKENDS,
    ),
    "graphs": Option(
        _COMPUTE, "Let cuda replay local steps from a recording.", stands_for="on, with cuda"
    ),
    "compiled": Option(
        _COMPUTE, "Use loops compiled by Numba, if there are any.", stands_for="in a long run"
    ),
    "lookahead": Option(_COMPUTE, "Compute up to N updates ahead of the next step.", "N"),
}

ALL = tuple(OPTIONS)


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings; it gets the given ones as ``given``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name != "given"
        ]

        @wraps(command)
        def with_options(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in names}
            command(given={n: v for n, v in given.items() if v not in (None, [])}, **arguments)

        parameters = [*(_parameter(name) for name in names), *own]
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by Typer
        with_options.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_options

    return decorate


def settings_from(given: Given, base: Settings | None = None) -> Settings:
    """The settings that were given; ``base``, or else the defaults, for the rest."""
    base = base or Settings()
    values = {name: value for name, value in given.items() if name not in _COMPUTE_TYPES}
    if "arrival_probs" in given:
        values["arrival_probs"] = parse_probabilities(given["arrival_probs"])
    choices: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
        ("data_options", "--data-option", "data", DATASETS),
        ("server_options", "--server-option", "server_opt", STEPS),
        ("rule_options", "--rule-option", "rule", RULES),
        ("local_options", "--local-option", "local_rule", LOCAL_RULES),
    )
    for name, flag, chooser, kinds in choices:
        if name in given:
            kind = kinds.get(given.get(chooser, getattr(base, chooser)) or "")
            values[name] = parse_options(flag, given[name], kind)
    return replace(base, **values)


def compute_from(given: Given, base: Compute | None = None) -> Compute:
    """How to compute, as it was given; ``base``, or else the defaults, for the rest."""
    values = {name: value for name, value in given.items() if name in _COMPUTE_TYPES}
    return replace(base or Compute(), **values)


_COMPUTE_TYPES = get_type_hints(Compute)
_TYPES = get_type_hints(Settings) | _COMPUTE_TYPES
_DEFAULTS = {f.name: f.default for record in (Settings, Compute) for f in fields(record)}


def _parameter(name: str) -> inspect.Parameter:
    known, default = OPTIONS[name], _DEFAULTS[name]
    flag = known.flag or "--" + name.replace("_", "-")
    kind = _typed(_TYPES[name])
    shown = default if isinstance(default, str | int | float) else known.stands_for
    if default is False:  # giving it is all that it takes
        shown = None
    elif kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
    metavar = "" if kind is bool else known.metavar
    info = option(known.help, shown, flag=flag, metavar=metavar, rich_help_panel=known.group)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, info],
    )


def _typed(hint: Any) -> Any:
    """What the command line reads for a field: a mapping as pairs, a tuple as one text."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Mapping:
        return list[str]
    return hint if hint in (int, float, bool, str) else str
