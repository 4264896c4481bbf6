"""An experiment by the names of its parts: as the command line takes it and a run records it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from anarchic.core import factory, registry
from anarchic.core.options import says_options
from anarchic.core.reading import shown
from anarchic.core.rule import Rule
from anarchic.core.validation import check_choice, check_kinds
from anarchic.data import Dataset, Parts, by_role, dirichlet, iid, labels, load
from anarchic.data.dataset import check_options
from anarchic.data.validation import set_aside
from anarchic.errors import ConfigError, RunError
from anarchic.participation.coupling import Picks
from anarchic.participation.timetable import Timetable
from anarchic.participation.work import (
    TIME_DISTRIBUTIONS,
    ConstantSteps,
    Epochs,
    StepPolicy,
    UniformSteps,
)
from anarchic.sim.arrivals import (
    CLOCK_ONLY,
    COUPLED,
    PARTICIPATIONS,
    SAMPLER_ONLY,
    check_arrivals,
    drawn,
    is_synchronous,
)
from anarchic.sim.experiment import Experiment, check_schedule
from anarchic.train.compute import BACKENDS, Compute
from anarchic.train.task import BUFFER_POLICIES, BufferPolicy, LocalWork, Task, make_task

WORKERS = 10  # where neither the settings nor the roles of the data say how many
LONG = 25_000  # local steps; in a shorter run, loading Numba takes longer than it saves
COUNTS = (
    *("rounds", "workers", "m", "local_steps", "batch", "max_staleness"),
    *("eval_every", "eval_samples", "epochs"),
)


@says_options
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one run of the simulator learns; ``Compute`` says how it is computed.

    The defaults are the paper's LR settings on the embedded digits. None means the default of the
    part concerned. A setting that the chosen rule or participation does not have is refused, not
    ignored; but fedavg takes ``idle_s`` and the others ``timeout_s``, so that a comparison changes
    the rule alone.
    """

    # data and model
    data: str = "digits"
    data_dir: str | None = None
    data_options: Mapping[str, Any] = field(default_factory=dict)
    val_share: float | None = None  # of the training samples, set aside for validation
    model: str = "logistic"
    workers: int | None = None  # M; WORKERS, or as many as the data set has roles
    labels_per_worker: int | None = None  # p
    dirichlet: float | None = None  # alpha
    augment: bool | None = None
    buffers: BufferPolicy = "refuse"  # what becomes of running statistics
    # server
    rule: str = "afa-cd"
    m: int | None = None  # 5, or what the rule itself has
    server_lr: float | None = None  # eta
    server_opt: str | None = None
    server_options: Mapping[str, Any] = field(default_factory=dict)
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    staleness_power: float | None = None
    clip: float | None = None
    guard: float | None = None  # factor of ``Guard``; the paper has none
    # workers
    local_rule: str = "sgd"
    mu: float | None = None
    local_options: Mapping[str, Any] = field(default_factory=dict)
    local_steps: int = 5  # K, or its half-range c
    epochs: int | None = None  # instead of local steps: passes through the worker's samples
    dynamic_steps: bool = False
    local_lr: float = 0.1  # eta_L
    batch: int = 64
    # participation
    participation: str = "sampler"
    max_staleness: int = 0  # tau, in versions
    replace: bool = False
    arrival_probs: tuple[float, ...] | None = None
    idle_s: float = 1.0  # on average; of diurnal workers while they are awake
    step_s: float = 0.2
    time_distribution: str = "exponential"  # of the time that a visit takes
    slow_share: float = 0.0
    slow_factor: float = 10.0
    lost_share: float = 0.0
    timeout_s: float | None = None
    availability: str | None = None
    speeds: str | None = None
    join: str | None = None  # SHARE@SECONDS
    leave: str | None = None
    # participation that depends on the server
    max_concurrent: int | None = None
    refuse_staleness: int | None = None
    retries: int = 0
    step_every_s: float | None = None
    server_picks: Picks | None = None
    skip_unchanged: bool = False
    # run
    rounds: int = 150  # T; with until_s no bound, unless it is another number
    until_s: float | None = None  # virtual time at which the run ends
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    eval_every: int | None = None
    eval_samples: int | None = None
    last10: bool = False
    metrics: Mapping[str, Any] = field(default_factory=dict)  # name -> module:name
    per_worker: bool = False
    target_accuracy: float | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        for name in COUNTS:
            if (count := getattr(self, name)) is not None and count >= 2**31:
                raise ConfigError(f"{name} must be below 2^31, got {shown(count)}.")
        if self.rounds < 1:
            raise ConfigError(f"A run needs at least one round, got rounds={self.rounds}.")
        if self.until_s is not None and not 0 < self.until_s < np.inf:
            raise ConfigError(
                f"A run ends at a time above 0 and finite, got until_s={self.until_s}."
            )
        if self.seed < 0:
            raise ConfigError(f"The seed must not be negative, got {self.seed}.")
        registry.check_name("rules", self.rule)
        for part in registry.chain(self.local_rule):
            registry.check_name("local_rules", part)
        registry.check_name("server_steps", self.server_opt or "sgd")
        registry.check_name("participation", self.participation)
        check_choice("time distribution", self.time_distribution, TIME_DISTRIBUTIONS)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        check_choice("policy for buffers", self.buffers, BUFFER_POLICIES)
        check_schedule(self.eval_every, self.target_accuracy, self.eval_samples)
        for name, metric in self.metrics.items():
            if not isinstance(metric, str) or ":" not in metric:
                raise ConfigError(
                    f"In Settings the metric {name!r} is named as module:function, got {metric!r}: "
                    "give functions to Experiment, make_task or TorchTask."
                )
        check_options(self.data, self.data_options)
        if self.val_share is not None and not 0 < self.val_share < 1:
            raise ConfigError(f"val_share is above 0 and below 1, got {self.val_share}.")
        if not 0 <= self.slow_share <= 1:
            raise ConfigError(f"slow_share is a probability, 0 to 1, got {self.slow_share}.")
        self._refuse_unused()
        check_arrivals(self)
        if self.epochs is not None and (self.local_steps, self.dynamic_steps) != (
            Settings.local_steps,
            False,
        ):
            raise ConfigError(
                f"A visit takes epochs={self.epochs} or local steps, not both: leave out one."
            )
        if self.labels_per_worker is not None and self.dirichlet is not None:
            raise ConfigError(
                "Partition the data by labels_per_worker or by dirichlet, not by both."
            )

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Settings:
        """The settings of a recorded run, as ``RunDirectory.settings`` reads them."""
        others = ("compute", "fingerprint", "format", "earlier", "callbacks")
        values = {name: value for name, value in record.items() if name not in others}
        strange = sorted(values.keys() - {f.name for f in fields(Settings)})
        if strange or not values:
            raise RunError(
                f"The run was not started from settings of this version "
                f"({', '.join(strange) or 'it has none'}): resume it with the program that "
                "started it."
            )
        if isinstance(values.get("arrival_probs"), list):
            values["arrival_probs"] = tuple(values["arrival_probs"])  # JSON has no tuples
        values.setdefault("last10", True)  # as it was before one could choose
        return Settings(**values)

    def _refuse_unused(self) -> None:
        sampled = self.participation == "sampler"
        others = " or ".join(name for name in PARTICIPATIONS if (name == "sampler") != sampled)
        foreign = (*CLOCK_ONLY, *COUPLED, "until_s") if sampled else SAMPLER_ONLY
        why = f"Participation {self.participation!r}", f"participation {others}"
        unused = dict.fromkeys(foreign, why) if self.participation in PARTICIPATIONS else {}
        if not sampled and self.slow_share == 0:
            unused["slow_factor"] = "A run without slow workers", "a slow_share above 0"
        if is_synchronous(self.rule):
            why = f"The rule {self.rule} is synchronous and", "another rule"
            away = ("max_staleness", "availability", "join", "leave", *COUPLED)
            unused |= dict.fromkeys(away, why)
        for name, (who, instead) in unused.items():
            if (value := getattr(self, name)) != getattr(Settings, name):
                raise ConfigError(
                    f"{who} has no use for {name}={value!r}: leave it out, or use {instead}."
                )


def build(
    settings: Settings, compute: Compute | None = None, timetable: Timetable | None = None
) -> Experiment:
    """The experiment that the settings name, to be computed as ``compute`` says.

    A ``timetable`` takes the place of the one that the settings of participation would draw.
    """
    compute = compute or Compute()
    if compute.precision != "ieee" and settings.dtype == "float64":
        raise ConfigError(
            f"precision={compute.precision!r} is for dtype float32, got {settings.dtype!r}: leave "
            "it out."
        )
    data, parts = partition(settings)
    if timetable is None:
        timetable = make_table(settings, len(parts))
    return Experiment(
        task=_task(settings, compute, data, parts, int(timetable.local_steps.sum())),
        rule=make_rule(settings, len(parts), staleness=int(timetable.staleness.max())),
        timetable=timetable,
        work=_local_work(settings),
        seed=_seed(settings, "training"),
        backend=BACKENDS[compute.backend](),
        eval_every=settings.eval_every,
        eval_samples=settings.eval_samples,
        last10=settings.last10,
        target_accuracy=settings.target_accuracy,
        lookahead=compute.lookahead,
        threads=compute.threads,
        about={**asdict(settings), "compute": asdict(compute)},
    )


def partition(settings: Settings) -> tuple[Dataset, Parts]:
    """The data of a run, and the training samples of each of its workers."""
    data = data_of(settings)
    if data.roles and _by_nature(settings):
        return data, _by_role(settings, data)
    workers = WORKERS if settings.workers is None else settings.workers
    seed = _seed(settings, "partition")
    if settings.labels_per_worker is not None:
        return data, labels(data.y_train, workers, settings.labels_per_worker, seed)
    if settings.dirichlet is not None:
        return data, dirichlet(data.y_train, workers, settings.dirichlet, seed)
    return data, iid(data.y_train, workers, seed)


def data_of(settings: Settings) -> Dataset:
    """The data set of a run; as long as somebody keeps it, others get the same one."""
    options = data_options(settings)
    return _loaded(settings.data, settings.data_dir, options, settings.val_share)


def data_options(settings: Settings) -> dict[str, Any]:
    """What the loader of the data is given."""
    options = dict(settings.data_options)
    if settings.data == "synthetic" and _by_nature(settings) and settings.workers is not None:
        options.setdefault("workers", settings.workers)  # no other data are made for a number
    return options


def _by_nature(settings: Settings) -> bool:
    """Whether roles may decide who holds what."""
    return settings.labels_per_worker is None and settings.dirichlet is None


_IN_USE: WeakValueDictionary[str, Dataset] = WeakValueDictionary()


def _loaded(
    name: str, data_dir: str | None, options: Mapping[str, Any], val_share: float | None
) -> Dataset:
    """The data set, read once for all runs that use it at the same time."""
    key = repr((name, data_dir, os.environ.get("ANARCHIC_DATA"), options, val_share))
    data = _IN_USE.get(key)
    if data is None:
        data = load(name, data_dir, **options)
        data = _IN_USE[key] = data if val_share is None else set_aside(data, val_share)
    return data


def make_rule(settings: Settings, workers: int, *, staleness: int = 0) -> Rule[Any]:
    """The rule by name, for updates that are at most ``staleness`` versions late.

    What a server would have to guess, the simulator knows: AFA-CS divides by the number of
    workers, as printed, and FedAsync remembers as many versions as anybody starts from.
    """
    names = (f.name for f in fields(factory.RuleSettings))
    given = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
    chosen = factory.RuleSettings(**given | {"workers": workers})
    return factory.make_rule(chosen, {"population": workers, "history": staleness + 1})


def make_table(settings: Settings, workers: int) -> Timetable:
    """Who reports when: by the paper's sampler, in continuous time, or in synchronous rounds.

    With the same seed, that of more rounds or of a later ``until_s`` begins with it.
    """
    m = make_rule(settings, workers).m
    seeds = _seed(settings, "timetable"), _seed(settings, "presence")
    table = drawn(settings, workers, m, _steps(settings), seeds)
    if not table.rounds:
        raise ConfigError(
            f"No round ends before until_s={settings.until_s}: end later, or make rounds shorter "
            "with a smaller m, idle_s or step_s."
        )
    return table


def _by_role(settings: Settings, data: Dataset) -> Parts:
    if settings.workers not in (None, len(data.roles)):
        raise ConfigError(
            f"{data.name} is partitioned by role to {len(data.roles)} workers, got workers="
            f"{settings.workers}: leave it out, or partition by labels_per_worker or dirichlet."
        )
    return by_role(data)


def _local_work(settings: Settings) -> LocalWork:
    mu = {} if settings.mu is None else {"mu": settings.mu}
    rule = factory.make_local_rule(settings.local_rule, {**mu, **settings.local_options})
    shuffle = settings.epochs is not None
    return LocalWork(rule, settings.local_lr, settings.batch, shuffle=shuffle)


def _steps(settings: Settings) -> StepPolicy:
    """How many local steps visits take."""
    if settings.epochs is not None:
        samples = [len(part) for part in partition(settings)[1]]
        return Epochs(settings.epochs, settings.batch, samples)
    c = settings.local_steps
    return UniformSteps(1, 2 * c) if settings.dynamic_steps else ConstantSteps(c)


def _task(
    settings: Settings, compute: Compute, data: Dataset, parts: Parts, local_steps: int
) -> Task:
    return make_task(
        settings.model,
        data,
        parts,
        seed=_seed(settings, "model"),
        device=compute.device,
        dtype=settings.dtype,
        augment=settings.augment,
        buffers=settings.buffers,
        compiled=local_steps >= LONG if compute.compiled is None else compute.compiled,
        precision=compute.precision,
        graphs=compute.graphs,
        metrics=settings.metrics,
        per_worker=settings.per_worker,
    )


def _seed(settings: Settings, role: str) -> int:
    """The random seed of one part of a run; a change in one part leaves the others alone."""
    roles = ("partition", "model", "timetable", "training", "presence")
    state = np.random.SeedSequence([settings.seed, roles.index(role)]).generate_state(1, np.uint64)
    return int(state[0]) >> 1
