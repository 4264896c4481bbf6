"""The flags of an experiment, for ``anarchic reproduce`` and for ``python run.py`` alike."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from anarchic.core.validation import check_choice
from anarchic.errors import AnarchicError, ConfigError
from anarchic.study.find import PACKAGE
from anarchic.study.results import FILE
from anarchic.study.study import Study

PRECISIONS = ("ieee", "tf32", "bf16")


class Flag(NamedTuple):
    """What a parser prints of a flag; ``shown`` is its default in words."""

    help: str
    shown: str | None = None
    metavar: str | None = None


FLAGS = {
    "task": Flag("Only the cells of this task, such as lr, cnn or rnn.", "all tasks"),
    "seeds": Flag("Seeds per cell, from 0. By default the experiment's own number."),
    "smoke": Flag("A tiny version on embedded data, in seconds; files are written to --out only."),
    "device": Flag("Where training is computed: cpu or cuda.", "cpu"),
    "precision": Flag(
        "How cuda multiplies matrices: ieee, tf32 or bf16. By default the task's own."
    ),
    "graphs": Flag("Let cuda replay local steps from a recording. By default it does."),
    "resume": Flag(
        "Go on: keep existing results, and continue runs in --out from their checkpoints."
    ),
    "out": Flag("Directory of runs and checkpoints. By default runs/reproduce/NAME.", None, "DIR"),
    "stop_after": Flag(
        "Checkpoint and end after this many seconds; --resume goes on.",
        "go on to the end",
        "SECONDS",
    ),
    "only": Flag(
        "Only cells whose name fits the pattern, such as 'p1-*-sync-*'.", "all cells", "PATTERN"
    ),
    "at_once": Flag("Runs trained as one batch. By default the experiment's own number."),
    "report": Flag("Train nothing: make tables, pictures and pages of the existing results."),
}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command line says; ``FLAGS`` has the help of each field."""

    task: str | None = None
    seeds: int | None = None
    smoke: bool = False
    device: str = "cpu"
    precision: str | None = None
    graphs: bool | None = None
    resume: bool = False
    out: Path | None = None
    stop_after: float | None = None
    only: str | None = None
    at_once: int | None = None
    report: bool = False

    def __post_init__(self) -> None:
        if self.precision is not None:
            check_choice("precision", self.precision, PRECISIONS)
        for name in ("seeds", "at_once"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{flag(name)} must be at least 1, got {value}.")
        if self.stop_after is not None and self.stop_after <= 0:
            raise ConfigError(f"--stop-after needs seconds above 0, got {self.stop_after}.")
        if self.smoke and self.report:
            raise ConfigError("A smoke run makes its own report: leave --report out.")

    def out_of(self, name: str) -> Path:
        """The directory of runs and checkpoints of an experiment."""
        return self.out or Path("runs") / ("smoke" if self.smoke else "reproduce") / name


@dataclass(frozen=True)
class Paths:
    """Where an experiment's files are: runs with checkpoints, raw results, tables and pages.

    In a clone, results and pages are in the experiment's folder, to be committed. A smoke run and
    an installed package write to the working directory. ``shipped`` are the results that came with
    an installed package: pages show them as long as no results were written.
    """

    work: Path
    results: Path
    pages: Path
    shipped: Path | None = None

    @property
    def shown(self) -> Path:
        """The results that pages are made of."""
        return self.results if self.shipped is None or self.results.exists() else self.shipped


def paths(study: Study, flags: Flags) -> Paths:
    work = flags.out_of(study.name)
    if flags.smoke:
        return Paths(work, work / FILE, work)
    if PACKAGE not in study.folder.parents:  # where it is installed, nothing is written
        return Paths(work, study.results, study.folder)
    of = work if study.results_of is None else Flags().out_of(study.results_of)
    return Paths(work, of / FILE, work, shipped=study.results)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def flag_types() -> dict[str, type]:
    """The type of each flag's value, without the None behind it that stands for the default."""
    hints = get_type_hints(Flags).items()
    return {name: (get_args(hint) or (hint,))[0] for name, hint in hints}


def parser(study: Study) -> argparse.ArgumentParser:
    """The flags of ``python experiments/NAME/run.py``, on a host without Typer."""
    made = argparse.ArgumentParser(prog=f"experiments/{study.name}/run.py", description=study.title)
    types = flag_types()
    for known in fields(Flags):
        told = FLAGS[known.name]
        more: dict[str, Any] = {"type": types[known.name], "metavar": told.metavar}
        if known.default is False:
            more = {"action": "store_true"}
        elif types[known.name] is bool:
            more = {"action": argparse.BooleanOptionalAction}
        made.add_argument(flag(known.name), default=known.default, help=told.help, **more)
    return made


def main(study: Study, arguments: Sequence[str] | None = None) -> None:
    """``python experiments/NAME/run.py``."""
    from anarchic.study.reproduce import reproduce

    made = parser(study)
    given = made.parse_args(arguments)
    try:
        reproduce(study, Flags(**vars(given)))
    except AnarchicError as error:
        made.exit(2 if isinstance(error, ConfigError) else 1, f"Error: {error}\n")
    except KeyboardInterrupt:
        made.exit(130, "Interrupted. To go on, add --resume.\n")
