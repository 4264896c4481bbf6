"""The flags of an experiment, for ``anarchic reproduce`` and for ``python run.py`` alike."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from anarchic.core.validation import check_choice
from anarchic.errors import AnarchicError, ConfigError
from anarchic.study.find import is_installed
from anarchic.study.study import Study

PRECISIONS = ("ieee", "tf32", "bf16")
HELP = {
    "task": "Only the cells of this task, such as lr, cnn or rnn.",
    "seeds": "Seeds a cell, from 0. By default the experiment's own number.",
    "smoke": "A tiny version on embedded data, in seconds; nothing is written but in --out.",
    "device": "Where training is computed: cpu or cuda.",
    "precision": "How cuda multiplies matrices: ieee, tf32 or bf16. By default the task's own.",
    "graphs": "Let cuda replay local steps from a recording. By default it does.",
    "resume": "Go on: keep the results that there are, and runs in --out from their checkpoints.",
    "out": "Directory of runs and checkpoints. By default runs/reproduce/NAME.",
    "stop_after": "Checkpoint and end after so many seconds; --resume goes on.",
    "only": "Only cells whose name fits the pattern, such as 'p1-*-sync-*'.",
    "at_once": "Runs trained as one batch. By default the experiment's own number.",
    "report": "Train nothing: make tables, pictures and pages of the results that there are.",
}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command line says."""

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

    def out_of(self, study: Study) -> Path:
        kind = "smoke" if self.smoke else "reproduce"
        return self.out or Path("runs") / kind / study.name


@dataclass(frozen=True)
class Places:
    """Where an experiment's files go: runs with checkpoints, raw results, tables and pages.

    Results and pages stand in the experiment's folder, so that they can be committed; those of a
    smoke run, or of an installed package, stay in the working directory.
    """

    work: Path
    results: Path
    pages: Path


def places(study: Study, flags: Flags) -> Places:
    work = flags.out_of(study)
    if flags.smoke or is_installed(study):
        return Places(work, work / "results", work)
    return Places(work, study.results, study.home)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def parser(study: Study) -> argparse.ArgumentParser:
    """The flags of ``python experiments/NAME/run.py``, on a host without Typer."""
    made = argparse.ArgumentParser(prog=f"experiments/{study.name}/run.py", description=study.title)
    kinds = {"seeds": int, "at_once": int, "stop_after": float, "out": Path}
    for known in fields(Flags):
        if isinstance(known.default, bool):
            made.add_argument(flag(known.name), action="store_true", help=HELP[known.name])
        elif known.name == "graphs":
            yes_or_no = argparse.BooleanOptionalAction
            made.add_argument(flag(known.name), action=yes_or_no, help=HELP[known.name])
        else:
            kind = kinds.get(known.name, str)
            made.add_argument(
                flag(known.name), type=kind, default=known.default, help=HELP[known.name]
            )
    return made


def main(study: Study, arguments: Sequence[str] | None = None) -> None:
    """``python experiments/NAME/run.py``."""
    from anarchic.study.reproduce import reproduce

    made = parser(study)
    given = made.parse_args(arguments)
    try:
        reproduce(study, Flags(**vars(given)))
    except ConfigError as error:
        made.exit(2, f"Error: {error}\n")
    except AnarchicError as error:
        made.exit(1, f"Error: {error}\n")
    except KeyboardInterrupt:
        made.exit(130, "Interrupted. To go on, add --resume.\n")
