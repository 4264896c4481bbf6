"""Every combination of some settings, as cells over seeds: the definition of a sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import product
from typing import Any

from anarchic.core.reading import shown
from anarchic.core.validation import did_you_mean
from anarchic.errors import AnarchicError, ConfigError
from anarchic.sim.settings import Settings
from anarchic.study.cell import Cell, Job
from anarchic.study.numbers import READERS
from anarchic.train.compute import Compute

MOST = 100_000  # runs
NAMES = {f.name for f in fields(Settings)}
MAPPINGS = ("data_options", "server_options", "rule_options", "local_options", "metrics")
UNCOMPARED = ("threads", "graphs")  # of Compute: they change no result


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every combination of ``varied``, for each of ``cases``, with each of ``seeds``.

    ``base`` are the settings that all have, ``cases`` further settings that go together, such as
    each rule with its own rate. An entry of a mapping is named with a dot, as in
    ``server_options.beta``. ``reads`` says what is kept of a run, see ``READERS``.
    """

    base: Mapping[str, Any] = field(default_factory=dict)
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    cases: Sequence[Mapping[str, Any]] = ({},)
    seeds: Sequence[int] = (0,)
    compute: Compute = field(default_factory=Compute)
    reads: str = "all"

    def __post_init__(self) -> None:
        for name in [*self.base, *self.varied, *(name for case in self.cases for name in case)]:
            check_name(name)
        if not self.cases:
            raise ConfigError("A sweep needs cases, got none: leave them out, or give one.")
        for name, values in {**self.varied, "seed": self.seeds}.items():
            _check_values(name, values)
        if strange := [seed for seed in self.seeds if type(seed) is not int or seed < 0]:
            raise ConfigError(f"Seeds are whole numbers from 0 on, got {shown(strange[0])}.")
        if self.size > MOST:
            raise ConfigError(f"A sweep has at most {MOST:,} runs, got {self.size:,}.")

    @property
    def size(self) -> int:
        """How many runs it has."""
        count = len(self.cases) * len(self.seeds)
        for values in self.varied.values():
            count *= len(values)
        return count

    @property
    def names(self) -> list[str]:
        """The settings that differ between cells."""
        return list(dict.fromkeys([*(n for case in self.cases for n in case), *self.varied]))

    def cells(self) -> list[Cell]:
        """One per combination, in order; one whose settings are refused fails when it is run."""
        read = READERS[self.reads]
        found: dict[str, Cell] = {}
        refused: list[AnarchicError] = []
        for columns in self._combinations():
            name = _free(_cell_name(columns), found)
            try:
                settings = _settings({**self.base, **columns})
            except AnarchicError as error:
                refused.append(error)
                asked = {**self.base, **columns}
                found[name] = Cell(
                    name=name, task="refused", settings=asked, columns=columns,
                    measure=partial(_refuse, str(error)),
                )  # fmt: skip
                continue
            task = re.sub(r"[^\w.=+-]+", "-", f"{settings.data}-{settings.model}")
            found[name] = Cell(name=name, task=task, settings=settings, columns=columns, read=read)
        if len(refused) == len(found):
            raise refused[0]
        return list(found.values())

    def jobs(self) -> list[Job]:
        """The runs: the first seed of every cell before the second."""
        how = self.compute
        return [
            Job(cell, seed, how.device, how.precision, how.graphs, how=how)
            for cells in [self.cells()]
            for seed in self.seeds
            for cell in cells
        ]

    def record(self) -> dict[str, Any]:
        """What tells it from another sweep, as JSON gives it back."""
        compute = {n: v for n, v in asdict(self.compute).items() if n not in UNCOMPARED}
        found: dict[str, Any] = {
            "format": 1,
            "base": dict(self.base),
            "varied": {name: list(values) for name, values in self.varied.items()},
            "cases": [dict(case) for case in self.cases],
            "seeds": list(self.seeds),
            "compute": compute,
            "reads": self.reads,
        }
        for part in (found["base"], found["varied"], *found["cases"]):
            for name, value in part.items():
                _check_plain(name, value)
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Grid:
        names = ("base", "varied", "cases", "seeds", "reads")
        return Grid(**{name: record[name] for name in names}, compute=Compute(**record["compute"]))

    def _combinations(self) -> Iterator[dict[str, Any]]:
        for case in self.cases:
            for values in product(*self.varied.values()):
                yield {**case, **dict(zip(self.varied, values, strict=True))}


def check_name(name: str) -> None:
    """Refuse a name that is no setting, nor an entry of one that is a mapping."""
    head, dot, rest = name.partition(".")
    if head == "seed":
        raise ConfigError("Seeds are not a setting of a cell: give them as seed.")
    if head not in NAMES or (dot and (head not in MAPPINGS or not rest)):
        raise ConfigError(f"There is no setting {name!r}.{did_you_mean(head, NAMES)}")


def _check_plain(name: str, value: Any) -> None:
    try:
        json.dumps(value)
    except TypeError as error:
        raise ConfigError(
            f"A sweep writes its settings down as JSON, which {name} is not ({error}). Data, "
            "models and rules of your own have a name: put what makes them into a module, and "
            f'give {name}="my_module:my_{name}".'
        ) from error


def _check_values(name: str, values: Sequence[Any]) -> None:
    if not values:
        raise ConfigError(f"A sweep needs values of {name}, got none.")
    seen: set[str] = set()
    for value in values:
        text = json.dumps(value, sort_keys=True, default=str)
        if text in seen:
            raise ConfigError(f"{name} has the value {text} twice: give each value once.")
        seen.add(text)


def _settings(values: Mapping[str, Any]) -> Settings:
    """Settings with the entries of mappings in their places."""
    whole: dict[str, Any] = {}
    for name, value in values.items():
        head, dot, entry = name.partition(".")
        whole[head] = {**whole.get(head, {}), entry: value} if dot else value
    if isinstance(whole.get("arrival_probs"), list):
        whole["arrival_probs"] = tuple(whole["arrival_probs"])  # JSON has no tuples
    return Settings(**whole)


def _cell_name(columns: Mapping[str, Any]) -> str:
    text = "+".join(f"{name}={said(value)}" for name, value in columns.items())
    return re.sub(r"[^\w.=+-]+", "-", text)[:150] or "run"


def said(value: Any) -> str:
    """A value of a setting as people write it."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={said(each)}" for name, each in value.items()) or "none"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _free(name: str, taken: Mapping[str, Cell]) -> str:
    """The name, with a number where it is taken."""
    numbered = (f"{name}.{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _refuse(reason: str, job: Job) -> Mapping[str, Any]:
    raise ConfigError(reason)
