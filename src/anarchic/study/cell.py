"""One number of a table, and how it is computed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anarchic.errors import ConfigError
from anarchic.sim.settings import Settings
from anarchic.train.compute import Compute

if TYPE_CHECKING:
    from anarchic.sim.experiment import Experiment
    from anarchic.sim.run import Run

# Settings that a result of a cell may have chosen otherwise, as anything of ``Compute``, of which
# only the precision must be the same for all results of a cell. The last ten rounds are always
# evaluated: their mean is the paper's measure.
WHERE = ("data_dir", "seed", "last10")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a table.

    ``settings`` hold everything that the number depends on and are recorded with each result; a
    result with other settings is not one of this cell. ``train`` makes of a job the ``Experiment``
    that is trained in place of ``Settings``; ``measure`` returns the numbers itself. ``value``
    names the number that the table shows as ours; ``read`` takes the numbers from a finished run.
    ``columns`` say where the cell is in the table, ``paper`` is the paper's number. Cells with a
    lower ``turn`` are run first.
    """

    name: str
    task: str
    settings: Settings | Mapping[str, Any]
    columns: Mapping[str, Any] = field(default_factory=dict)
    paper: float | None = None
    value: str = "last10"
    train: Callable[[Job], Experiment] | None = None
    measure: Callable[[Job], Mapping[str, Any]] | None = None
    read: Callable[[Run], Mapping[str, Any]] | None = None
    turn: int = 0

    def __post_init__(self) -> None:
        name = repr(self.name)
        if not re.fullmatch(r"[\w.=+-]+", self.name):
            raise ConfigError(
                f"A cell's name needs letters, digits and . = + - _ only, got {name}."
            )
        if self.measure and (self.train or self.read):
            raise ConfigError(f"Cell {name} has measure and train or read: give one of the two.")
        if not isinstance(self.settings, Settings) and not (self.train or self.measure):
            raise ConfigError(f"Cell {name} has no Settings: give train or measure as well.")

    @property
    def asked(self) -> dict[str, Any]:
        """The settings as they are recorded, without those that say where a run is computed."""
        if not isinstance(self.settings, Settings):
            return dict(self.settings)
        return {name: v for name, v in asdict(self.settings).items() if name not in WHERE}

    def smoke(self) -> Cell:
        """Its tiny version; other settings keep its results apart from those of the cell."""
        if isinstance(self.settings, Settings):
            return replace(self, settings=tiny(self.settings))
        return replace(self, settings={**self.settings, "smoke": True})

    def answered_by(self, recorded: Mapping[str, Any]) -> bool:
        """Whether a result with these settings is one of this cell.

        A setting that did not exist yet when the result was recorded had its default.
        """
        asked: dict[str, Any] = _plain(self.asked)
        return {**{n: v for n, v in _DEFAULTS.items() if n in asked}, **recorded} == asked


@dataclass(frozen=True)
class Job:
    """One cell and one seed, with the device and precision to compute it with."""

    cell: Cell
    seed: int
    device: str = "cpu"
    precision: str = "ieee"
    graphs: bool | None = None
    smoke: bool = False
    out: Path | None = None  # for files of a measurement's own; it may not exist yet
    how: Compute | None = None  # all of how it is computed, not only the above

    @property
    def name(self) -> str:
        return f"{self.cell.name}.seed{self.seed}"

    def experiment(self) -> Settings | Experiment:
        """What is trained."""
        train = self.cell.train
        if train is None:
            return self.settings_of(self.cell.settings)
        return replace(train(self), last10=True)

    @property
    def compute(self) -> Compute:
        """How the job is computed; compiled, as a run is short, but one of many."""
        if self.how is not None:
            return self.how
        where: dict[str, Any] = {"device": self.device, "precision": self.precision}
        return Compute(**where, graphs=self.graphs, compiled=True)

    def settings_of(self, asked: Settings | Mapping[str, Any]) -> Settings:
        """These settings with this job's seed; tiny in a smoke run."""
        if not isinstance(asked, Settings):
            asked = Settings.from_record({n: v for n, v in asked.items() if n != "smoke"})
        return replace(tiny(asked) if self.smoke else asked, seed=self.seed, last10=True)


def tiny(settings: Settings) -> Settings:
    """The same rule and the same workers for three rounds on the embedded digits."""
    return replace(
        settings,
        data="digits",
        data_dir=None,
        data_options={},
        model="logistic",
        augment=None,
        rounds=3,
        local_steps=2,
        batch=8,
        eval_every=1,
        server_lr=None if settings.server_lr is None else 1.0,
        local_lr=0.1,
    )


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))


_DEFAULTS: dict[str, Any] = _plain({n: v for n, v in asdict(Settings()).items() if n not in WHERE})
