"""``anarchic.tune``: every rule gets the same number of tries, judged on validation data.

``tune.json`` says what is tuned. ``search`` holds a sweep for each step of the search, ``final`` a
sweep of each rule's best settings with new seeds, which is the first to look at test data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, final, get_args
from zlib import crc32

import numpy as np

from anarchic.core import factory, registry
from anarchic.core.files import write_file
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError, RunError
from anarchic.sim.settings import Settings, data_of
from anarchic.study.conditions import setting
from anarchic.study.findings import Outcome
from anarchic.study.grid import Grid, check_name, said
from anarchic.study.groups import Asked, Group, best_of
from anarchic.study.parts import check_same_parts
from anarchic.study.sweeps import Sweep, computed, grid_of, read_json, run
from anarchic.train.compute import Compute

DEFINITION = "tune.json"
RANGES = {"server_lr": (0.01, 10.0), "local_lr": (0.01, 1.0)}
RANGES_OF = {  # where a rule's rate is another thing
    "fedasync": {"rule_options.mixing": (0.05, 1.0)},
    "fadas": {"server_lr": (0.001, 1.0)},
}
VAL_SHARE = 0.1
EDGE = 0.05  # of a range, on its log scale
STEP = 5  # tries per rule between two looks at the results, with Optuna
Sampler = Literal["random", "optuna"]
Range = tuple[float, float]
Tried = Mapping[str, float]  # settings by name


@final
@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What is tuned: ``budget`` tries per rule, each with every seed of ``seeds``.

    ``ranges`` are by rule and setting; rates are drawn evenly on a log scale. ``draw`` is the seed
    of the search. ``new_seeds`` are those of the final runs.
    """

    rules: Sequence[str]
    base: Mapping[str, Any] = field(default_factory=dict)
    budget: int = 30
    ranges: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    new_seeds: Sequence[int] = (100, 101, 102, 103, 104)
    sampler: Sampler = "random"
    draw: int = 0
    metric: str = "accuracy"
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, get_args(Sampler))
        if self.budget < 1:
            raise ConfigError(f"Tuning needs a budget of at least 1 try, got {self.budget}.")
        if not self.rules or len(set(self.rules)) < len(self.rules):
            raise ConfigError(f"Tuning takes each rule once, got {said(list(self.rules))}.")
        if common := sorted(set(self.seeds) & set(self.new_seeds)):
            raise ConfigError(
                f"The seeds {common} are both searched and final: final runs need new seeds."
            )
        for rule, ranges in self.ranges.items():
            _check_ranges(rule, ranges)

    def record(self) -> dict[str, Any]:
        """As JSON gives it back."""
        record = {"format": 1, **asdict(self)}
        record["compute"] = Grid(compute=self.compute).record()["compute"]
        plain: dict[str, Any] = json.loads(json.dumps(record))
        return plain


@final
@dataclass(frozen=True)
class Tuned:
    """What tuning found: the best settings of each rule, and the final runs."""

    tuning: Tuning
    path: Path
    best: Mapping[str, Outcome]  # of each rule, on validation data
    final: Sweep

    def chosen(self, rule: str) -> dict[str, float]:
        """The rates that were chosen for a rule."""
        return {name: setting(self.best[rule].cell, name) for name in self.tuning.ranges[rule]}

    def at_edge(self, rule: str) -> list[str]:
        """The rates that lie at an end of their range: a wider one may have had better."""
        found = self.chosen(rule)
        return [
            name
            for name, (low, high) in self.tuning.ranges[rule].items()
            for share in [np.log(found[name] / low) / np.log(high / low)]
            if not EDGE < share < 1 - EDGE
        ]


def tune(
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    rule: Sequence[str],
    out: str | Path,
    budget: int = 30,
    ranges: Mapping[str, Range] | None = None,
    seed: int | Sequence[int] = 0,
    new_seed: Sequence[int] = (100, 101, 102, 103, 104),
    sampler: Sampler = "random",
    draw: int = 0,
    metric: str = "accuracy",
    compute: Compute | None = None,
    jobs: int = 1,
    at_once: int | None = None,
    retry: bool = False,
    **fixed: Any,
) -> Tuned:
    """Try ``budget`` settings of each rule on validation data; run the best again on test data.

    ``ranges`` are (lowest, highest) by setting, or by ``rule/setting`` for one rule alone; the
    defaults are ``RANGES`` and ``RANGES_OF``. Every rule gets the same budget, and where rules have
    the same setting and range, the same values. A data set without validation data has a tenth of
    its training samples set aside. Called again, it goes on with what is missing, and with
    ``retry`` it runs failed runs again.
    """
    base = _base(settings, fixed)
    tuning = Tuning(
        rules=list(rule), base=base, budget=budget,
        ranges={each: ranges_of(each, ranges) for each in rule},
        seeds=[seed] if isinstance(seed, int) else list(seed), new_seeds=list(new_seed),
        sampler=sampler, draw=draw, metric=metric, compute=computed(compute),
    )  # fmt: skip
    how = {"jobs": jobs, "at_once": at_once, "retry": retry}
    return run_tuning(tuning, Path(out), **how)


def run_tuning(tuning: Tuning, path: Path, **how: Any) -> Tuned:
    """Search, choose, and run the best again, in a directory that is or will be its own.

    ``how`` are jobs, at_once and retry, as ``sweep`` takes them.
    """
    _open(tuning, path)
    swept: list[Sweep] = []

    def swept_in(place: Path, grid: Grid) -> Sweep:
        swept.append(run(grid, place, **how))
        check_same_parts({str(each.path): each.parts() for each in swept})
        return swept[-1]

    outcomes: list[Outcome] = []
    steps = SAMPLERS[tuning.sampler](tuning)
    for number, tried in enumerate(steps.steps()):
        cases = [{"rule": rule, **each} for rule in tuning.rules for each in tried[rule]]
        grid = _grid(tuning, cases, tuning.seeds, "validation")
        found = swept_in(path / "search" / f"{number:03}", grid).findings()
        outcomes += found
        steps.tell(list(found))
    best = {rule: _best(rule, outcomes, tuning.metric) for rule in tuning.rules}
    cases = [
        {"rule": rule, **{name: setting(best[rule].cell, name) for name in tuning.ranges[rule]}}
        for rule in tuning.rules
    ]
    grid = _grid(tuning, cases, tuning.new_seeds, "all")
    return Tuned(tuning, path, best, swept_in(path / "final", grid))


def _grid(
    tuning: Tuning, cases: Sequence[Mapping[str, Any]], seeds: Sequence[int], reads: str
) -> Grid:
    return Grid(base=tuning.base, cases=cases, seeds=seeds, compute=tuning.compute, reads=reads)


def _best(rule: str, outcomes: Sequence[Outcome], metric: str) -> Outcome:
    own = [outcome for outcome in outcomes if outcome.get("rule") == rule]
    best = best_of(own, metric)
    if not Group(rule, best.results).finished:
        why = next((r.numbers.get("reason", "") for r in best.results), "it has no results.")
        raise RunError(f"No setting of {rule} could be run to its end: {why}")
    return best


def _base(
    settings: Settings | Mapping[str, Any] | None, fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of all runs, with validation data where the data set has none."""
    base = dict(grid_of(settings, **fixed).base)
    if "rule" in base:
        raise ConfigError("The rules to tune are given as rule, not among the settings.")
    asked = Settings(**{name: v for name, v in base.items() if name in _OF_DATA})
    if asked.val_share is None and data_of(asked).x_val is None:
        base["val_share"] = VAL_SHARE
    return base


_OF_DATA = ("data", "data_dir", "data_options", "val_share")


def ranges_of(rule: str, given: Mapping[str, Range] | None) -> dict[str, Range]:
    """The settings of a rule that are tuned, with their ranges.

    A ``server_lr`` is left out for a rule that has none.
    """
    registry.check_name("rules", rule)
    has = factory.setting_names(registry.find("rules", rule))
    found = {n: r for n, r in (RANGES if given is None else given).items() if "/" not in n}
    own = {} if given is not None else RANGES_OF.get(rule, {})
    for name, bounds in (given or {}).items():
        of, slash, rest = name.rpartition("/")
        if slash and of == rule:
            own = {**own, rest: bounds}
    if "server_lr" not in has:
        found.pop("server_lr", None)
    found |= own
    if not found:
        raise ConfigError(
            f"There is nothing to tune of {rule}: give the range of a setting; ranges that are "
            "given replace all defaults."
        )
    return found


def _check_ranges(rule: str, ranges: Mapping[str, Range]) -> None:
    for name, (low, high) in ranges.items():
        check_name(name)
        if not 0 < low < high < np.inf:
            raise ConfigError(
                f"The range of {name} of {rule} is from a number above 0 to a higher one, got "
                f"{low:g} to {high:g}."
            )


class Search(Protocol):
    """A search: tries for each rule, step by step, and what it is told of them."""

    def steps(self) -> Iterator[Mapping[str, Sequence[Tried]]]: ...
    def tell(self, outcomes: Sequence[Outcome]) -> None: ...


@final
class RandomSearch:
    """All tries at once, drawn evenly on log scales; equal settings get equal values."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning

    def steps(self) -> Iterator[Mapping[str, Sequence[Tried]]]:
        yield {rule: self._tries(ranges) for rule, ranges in self._tuning.ranges.items()}

    def _tries(self, ranges: Mapping[str, Range]) -> list[Tried]:
        drawn = {name: self._drawn(name, *bounds) for name, bounds in ranges.items()}
        columns = zip(*drawn.values(), strict=True)
        return [dict(zip(drawn, values, strict=True)) for values in columns]

    def _drawn(self, name: str, low: float, high: float) -> list[float]:
        rng = np.random.default_rng([self._tuning.draw, crc32(name.encode())])
        places = rng.random(self._tuning.budget)
        return [rounded(low * (high / low) ** place) for place in places.tolist()]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What was found changes nothing."""


@final
class OptunaSearch:
    """Optuna's sampler (TPE), a study per rule, asked for a few tries at a time."""

    def __init__(self, tuning: Tuning) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ConfigError(
                "The sampler optuna needs Optuna: pip install optuna, or take random."
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._tuning, self._asked = tuning, Asked(f"val_{tuning.metric}")
        direction: Any = "minimize" if self._asked.lower else "maximize"
        self._studies: dict[str, Any] = {
            rule: optuna.create_study(
                direction=direction, sampler=optuna.samplers.TPESampler(seed=tuning.draw)
            )
            for rule in tuning.rules
        }
        self._trials: dict[tuple[str, str], Any] = {}

    def steps(self) -> Iterator[Mapping[str, Sequence[Tried]]]:
        for first in range(0, self._tuning.budget, STEP):
            count = min(STEP, self._tuning.budget - first)
            self._trials = {}
            yield {rule: self._tries(rule, count) for rule in self._tuning.rules}

    def _tries(self, rule: str, count: int) -> list[Tried]:
        found: list[Tried] = []
        while len(found) < count:
            trial = self._studies[rule].ask()
            ranges = self._tuning.ranges[rule].items()
            tried = {n: rounded(trial.suggest_float(n, *bounds, log=True)) for n, bounds in ranges}
            self._trials[rule, repr(tried)] = trial
            found.append(tried)
        return found

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            rule = str(outcome.get("rule"))
            tried = {name: setting(outcome.cell, name) for name in self._tuning.ranges[rule]}
            trial, group = self._trials[rule, repr(tried)], Group(rule, outcome.results)
            values = [self._asked.value(run, "final") for run in group.finished]
            known = [value for value in values if value is not None]
            worst = np.inf if self._asked.lower else -np.inf
            lost = bool(group.lost) or not known
            self._studies[rule].tell(trial, float(worst if lost else np.mean(known)))


SAMPLERS: Mapping[str, Callable[[Tuning], Search]] = {
    "random": RandomSearch,
    "optuna": OptunaSearch,
}


def rounded(value: float) -> float:
    """To four digits, as people write it."""
    return float(f"{value:.4g}")


def _open(tuning: Tuning, path: Path) -> None:
    """Make the directory, or see that it is of the same definition."""
    record, file = tuning.record(), path / DEFINITION
    if not file.exists():
        if path.exists() and any(path.iterdir()):
            raise RunError(f"{path} is not empty and holds no tuning: choose another directory.")
        path.mkdir(parents=True, exist_ok=True)
        write_file(file, (json.dumps(record, indent=2) + "\n").encode())
    there = read_json(file)
    for each in (there, record):  # where data lie changes no result
        each["base"] = {n: v for n, v in dict(each.get("base") or {}).items() if n != "data_dir"}
    other = [n for n in dict.fromkeys([*there, *record]) if there.get(n) != record.get(n)]
    if other:
        differ = "; ".join(
            f"{n} is {said(there.get(n))} there, {said(record.get(n))} here" for n in other
        )
        raise RunError(f"{path} holds another tuning: {differ}. Choose another directory.")
