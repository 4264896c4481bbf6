"""The options of ``Settings`` and ``Compute``: one per field, shared by all commands that take it.

A field's type and default stand in its record and nowhere else. An option that was not given is
not passed on, so that the defaults, or the settings of a run that is resumed, hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from anarchic.cli import records
from anarchic.cli.records import Given, Option
from anarchic.cli.values import parse_options, parse_probabilities
from anarchic.core import registry
from anarchic.participation.work import TIME_DISTRIBUTIONS
from anarchic.sim.settings import WORKERS, Settings
from anarchic.train.compute import BACKENDS, PRECISIONS, Compute


def _one_of(group: str, help: str, known: Iterable[str], stands_for: str | None = None) -> Option:
    """An option that takes a name. The names are in the sentence: beside the flag is no room."""
    return Option(group, f"{help}: {', '.join(known)}.", "NAME", stands_for)


def _part(group: str, help: str, kind: str, stands_for: str | None = None) -> Option:
    """A part by name, or one of your own."""
    return _one_of(group, help, (*registry.names(kind), "or MODULE:NAME"), stands_for)


_DATA, _SERVER, _WORKERS = "Data and model", "Server", "Workers"
_PARTICIPATION, _TIME = "Participation", "Participation in continuous time"
_RUN, _COMPUTE = "Run", "Compute"

OPTIONS: Mapping[str, Option] = {
    "data": _part(_DATA, "The data set", "datasets"),
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
    "model": _part(_DATA, "The model", "models"),
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
    "rule": _part(_SERVER, "How updates become steps", "rules"),
    "m": Option(_SERVER, "Updates per server step (m).", None, "5, for rules that have it"),
    "server_lr": Option(
        _SERVER,
        "Server learning rate (eta). AFA steps along the mean of eta_L * G, FedAvg K times as far.",
        None,
        "1.0, for rules that have it",
    ),
    "server_opt": _part(_SERVER, "How a mean becomes a step", "server_steps", "sgd"),
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
    "local_rule": _part(_WORKERS, "What a local step does", "local_rules"),
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
    "participation": _part(
        _PARTICIPATION,
        "Who reports when: the paper's sampler, which has no clock, or continuous time, where "
        "fedavg runs in synchronous rounds that wait for the slowest worker",
        "participation",
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

__all__ = ["ALL", "OPTIONS", "Given", "Option", "compute_from", "settings_from", "takes"]
ALL = tuple(OPTIONS)


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these settings; it gets the given ones as ``given``."""
    return records.takes({name: OPTIONS[name] for name in names}, Settings, Compute)


def settings_from(given: Given, base: Settings | None = None) -> Settings:
    """The settings that were given; ``base``, or else the defaults, for the rest."""
    base = base or Settings()
    values = records.chosen(Settings, given)
    if "arrival_probs" in given:
        values["arrival_probs"] = parse_probabilities(given["arrival_probs"])
    choices = (
        ("data_options", "--data-option", "data", "datasets"),
        ("server_options", "--server-option", "server_opt", "server_steps"),
        ("rule_options", "--rule-option", "rule", "rules"),
        ("local_options", "--local-option", "local_rule", "local_rules"),
    )
    for name, flag, chooser, kind in choices:
        if name in given:
            chosen = given.get(chooser, getattr(base, chooser)) or "sgd"  # of server_opt alone
            values[name] = parse_options(flag, given[name], registry.find(kind, chosen))
    return replace(base, **values)


def compute_from(given: Given, base: Compute | None = None) -> Compute:
    """How to compute, as it was given; ``base``, or else the defaults, for the rest."""
    return replace(base or Compute(), **records.chosen(Compute, given))
