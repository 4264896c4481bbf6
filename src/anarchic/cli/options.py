"""The options that name ``Settings``: one each, shared by all commands that take it.

A field's type and default stand in ``Settings`` and nowhere else. An option that was not given is
not passed on, so that the defaults, or the settings of a run that is resumed, hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from anarchic.cli import records
from anarchic.cli.records import Given, Option
from anarchic.cli.values import parse_options, parse_probabilities
from anarchic.core.local import LOCAL_RULES
from anarchic.core.rules import RULES
from anarchic.core.steps import STEPS
from anarchic.data import DATASETS
from anarchic.models import MODELS
from anarchic.sim.settings import BACKENDS, HABITS, TIME_DISTRIBUTIONS, WORKERS, Settings


def _one_of(group: str, help: str, known: Iterable[str], stands_for: str | None = None) -> Option:
    """The names stand in the sentence: beside the flag they would leave no room for it."""
    return Option(group, f"{help}: {', '.join(known)}.", "NAME", stands_for)


_DATA, _SERVER, _WORKERS = "Data and model", "Server", "Workers"
_TURNOUT, _TIME, _RUN = "Participation", "Participation in continuous time", "Run"

OPTIONS: Mapping[str, Option] = {
    "data": _one_of(_DATA, "The data set", DATASETS),
    "data_dir": Option(
        _DATA, "Where data files are looked for first.", "DIR", "ANARCHIC_DATA, then the cache"
    ),
    "data_options": Option(
        _DATA,
        "A setting of the data set, such as roles=50 of shakespeare; may be repeated.",
        "NAME=VALUE",
        "the data set's own",
        flag="--data-option",
    ),
    "model": _one_of(_DATA, "The model", MODELS),
    "workers": Option(_DATA, "Number of workers, M.", None, f"{WORKERS}, or one a role"),
    "labels_per_worker": Option(
        _DATA, "Each worker holds samples of this many classes, p.", None, "all classes, at random"
    ),
    "dirichlet": Option(
        _DATA,
        "Each class is split in Dirichlet(alpha) proportions; small is uneven.",
        "ALPHA",
        "all classes, at random",
    ),
    "augment": Option(
        _DATA, "Crop and mirror training images.", None, "as the data set is used to"
    ),
    "rule": _one_of(_SERVER, "How updates become steps", RULES),
    "m": Option(_SERVER, "Updates a round, m.", None, "5, for rules that have it"),
    "server_lr": Option(
        _SERVER,
        "Server learning rate, eta. AFA steps along the mean of eta_L * G, FedAvg by K times that.",
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
        _SERVER, "Weigh an update by (1 + tau) ** -P, tau its staleness.", "P", "all alike"
    ),
    "clip": Option(
        _SERVER,
        "Bound eta_L * ||G|| of each update (times K where the rule counts it).",
        "C",
        "no bound",
    ),
    "local_rule": _one_of(_WORKERS, "What a local step does", LOCAL_RULES),
    "mu": Option(_WORKERS, "Pull of prox towards the pulled model, mu.", None, "0.1, for prox"),
    "local_options": Option(
        _WORKERS,
        "Another setting of the local rule, such as beta=0.9 of momentum; may be repeated.",
        "NAME=VALUE",
        "the rule's own",
        flag="--local-option",
    ),
    "local_steps": Option(_WORKERS, "Local steps a visit, K."),
    "dynamic_steps": Option(_WORKERS, "Draw K of each visit uniformly from 1 .. 2*local-steps."),
    "local_lr": Option(_WORKERS, "Local learning rate, eta_L."),
    "batch": Option(_WORKERS, "Samples a local step."),
    "participation": _one_of(
        _TURNOUT,
        "Who turns up when, by the paper's sampler, without a clock, or by habits in continuous "
        "time, where fedavg runs in synchronous rounds that wait for the slowest",
        HABITS,
    ),
    "max_staleness": Option(
        _TURNOUT, "Sampler: updates start at most N versions back (tau); 0 is never late."
    ),
    "replace": Option(_TURNOUT, "Sampler: a worker may turn up more than once a round."),
    "arrival_probs": Option(
        _TURNOUT, "Sampler: how likely each worker is to turn up.", "P1,P2,...", "all alike"
    ),
    "idle_s": Option(
        _TIME,
        "Mean idle time before a visit, in virtual seconds; of diurnal workers while they are "
        "awake, 8 hours a day.",
    ),
    "step_s": Option(_TIME, "Mean time of one local step; slow workers take longer."),
    "time_distribution": _one_of(
        _TIME, "Distribution of the time that a visit takes", TIME_DISTRIBUTIONS
    ),
    "slow_share": Option(_TIME, "Probability that a worker is slow."),
    "slow_factor": Option(_TIME, "How many times longer slow workers take."),
    "lost_share": Option(_TIME, "Probability that a visit is lost in mid-work."),
    "timeout_s": Option(
        _TIME,
        "When synchronous fedavg replaces a silent worker.",
        None,
        "never; needed with --lost-share",
    ),
    "availability": Option(
        _TIME, "CSV file worker,from_s,until_s: when workers are there.", "FILE", "always"
    ),
    "rounds": Option(_RUN, "Rounds, that is steps of the server, T."),
    "seed": Option(_RUN, "Of all that is drawn at random."),
    "backend": _one_of(
        _RUN, "One visit at a time, all that can be computed, or these on a Ray cluster", BACKENDS
    ),
    "device": _one_of(_RUN, "Where training is computed", ("cpu", "cuda")),
    "dtype": _one_of(_RUN, "Precision of parameters", ("float32", "float64")),
    "precision": _one_of(_RUN, "How cuda multiplies matrices", ("ieee", "tf32", "bf16")),
    "graphs": Option(
        _RUN, "Let cuda replay local steps from a recording.", stands_for="it does, on cuda"
    ),
    "compiled": Option(
        _RUN, "Use loops compiled by Numba, if there are any.", stands_for="in a long run"
    ),
    "threads": Option(
        _RUN,
        "Threads that train and fold updates.",
        None,
        "torch's choice; 1 for logistic, but up to 4 in compiled loops and folds of large models",
    ),
    "eval_every": Option(
        _RUN, "Rounds between evaluations; the last ten are evaluated.", None, "about 50 in all"
    ),
    "target_accuracy": Option(
        _RUN, "End the run once this share of test samples is right.", None, "run all rounds"
    ),
    "lookahead": Option(_RUN, "Updates that may be computed ahead, with those that are due."),
}

__all__ = ["ALL", "OPTIONS", "Given", "Option", "settings_from", "takes"]
ALL = tuple(OPTIONS)


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings; it gets the given ones as ``given``."""
    return records.takes({name: OPTIONS[name] for name in names}, Settings)


def settings_from(given: Given, base: Settings | None = None) -> Settings:
    """The settings that were given; ``base``, or else the defaults, for the others."""
    base = base or Settings()
    values = dict(given)
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
