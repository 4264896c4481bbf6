"""A run directory: settings, timetable, metrics, checkpoint, model and summary, in open formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any, Self

from anarchic import wire
from anarchic.core.files import write_file
from anarchic.core.reading import parse_json, printable, read_file, reason, shown
from anarchic.core.saving import Arrays, Numbers
from anarchic.core.types import Floats, Layout, Vector
from anarchic.errors import RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim import worker_table
from anarchic.sim.worker_table import Measured, PerWorker
from anarchic.train.compute import Compute

MetricsRow = dict[str, float | int | None]

FORMAT = 3  # of settings.json; 1 had other names for some settings, 2 had Compute's among them
MAX_JSON = 1 << 26  # bytes of settings.json or summary.json
MAX_METRICS = 1 << 30  # bytes of metrics.csv
SUMMARY = (  # numbers in summary.json
    *("final_accuracy", "last10_accuracy", "best_accuracy", "final_loss", "rounds", "updates"),
    *("local_steps", "virtual_s", "train_seconds", "local_steps_per_second"),
    *("updates_per_second", "peak_rss_mb"),
)
UNCOMPARED = ("fingerprint", "format", "earlier", "callbacks")  # no settings that somebody gave
COMPUTE = tuple(f.name for f in fields(Compute))


class RunDirectory:
    """Where a run is recorded.

    ``settings.json`` what was asked for; ``timetable.safetensors`` who reported when;
    ``metrics.csv`` one row per evaluation, and ``per_worker.csv`` one per evaluation and worker, if
    that was asked for; ``checkpoint.safetensors`` to go on from; ``model.safetensors`` and
    ``summary.json`` at the end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[MetricsRow] = []  # of metrics.csv, since it was begun
        self._columns: list[str] = []

    @classmethod
    def create(cls, path: Path, settings: Mapping[str, Any], timetable: Timetable) -> Self:
        """Start a new directory; one that holds anything already is left alone."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(
                f"{path} exists and is not empty: choose another directory, or resume the run "
                "in it."
            )
        record = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            record.write_timetable(timetable)
            record._write("settings.json", json.dumps(settings, indent=2) + "\n")
        except OSError as error:
            raise RunError(
                f"A run cannot be recorded in {path}: {error.strerror or error}. Choose another "
                "directory."
            ) from error
        return record

    @classmethod
    def reopen(cls, path: Path, settings: Mapping[str, Any]) -> Self:
        """Open a directory to go on with the same run; refuse that of another."""
        record = cls(path)
        there, asked = _flat(record.settings()), _flat(settings)
        decisive = ("fingerprint", "compiled")  # compiled loops round otherwise in the last bits
        if any(there.get(name) != asked.get(name) for name in decisive):
            other = [
                name
                for name in sorted(set(there) | set(asked))
                if there.get(name) != asked.get(name) and name not in UNCOMPARED
                if name in there or asked[name]  # an earlier version did not have every setting
            ]
            said = "; ".join(
                f"{n} is {there.get(n)!r} there and {asked.get(n)!r} here" for n in other
            )
            if other and all(_shortened(n, there.get(n), asked.get(n)) for n in other):
                raise RunError(
                    f"{path} holds a longer run ({said}), which cannot be made shorter: resume it "
                    "without that setting, or choose another directory."
                )
            raise RunError(
                f"{path} holds another run: {said or 'its data, model or rule differ'}. "
                "Resume with the settings it was started with, or choose another directory."
            )
        return record

    def extend(self, settings: Mapping[str, Any], timetable: Timetable) -> None:
        """Make it the directory of a longer run, whose beginning it holds.

        Checkpoints of the runs that ``earlier`` names by their fingerprints are those of this one.
        Cut off in between, it is the directory of the one or the other.
        """
        (self.path / "summary.json").unlink(missing_ok=True)
        self._write("settings.json", json.dumps(settings, indent=2) + "\n")
        self.write_timetable(timetable)

    def note_callbacks(self, names: Sequence[str]) -> None:
        """Record the callbacks that the run has by name from now on."""
        found = self._json("settings.json")
        if found.get("callbacks") != list(names):
            text = json.dumps({**found, "callbacks": list(names)}, indent=2)
            self._write("settings.json", text + "\n")

    def write_timetable(self, timetable: Timetable) -> None:
        arrays, numbers = timetable.to_arrays()
        wire.write(self.path / "timetable.safetensors", arrays, dict(numbers))

    def settings(self) -> dict[str, Any]:
        """What the run was started with, and the fingerprint that tells it from any other."""
        found = self._json("settings.json")
        if "fingerprint" not in found:
            raise RunError(
                f"{self.path / 'settings.json'} is not that of a run: it has no fingerprint."
            )
        for name, kind in (
            ("format", int),
            ("versions_back", int),
            ("compute", dict),
            ("earlier", list),
            ("callbacks", list),
        ):
            if not isinstance(found.get(name, kind()), kind):
                raise RunError(
                    f"{self.path / 'settings.json'} is damaged: {name} is {shown(found[name])}."
                )
        return renamed({"format": 1, **found})

    def summary(self) -> dict[str, Any]:
        """What the run ended with."""
        found = self._json("summary.json")
        for name in SUMMARY:
            if not isinstance(found.get(name), Real | None):
                raise RunError(
                    f"{self.path / 'summary.json'} is damaged: {name} is {shown(found[name])}, not "
                    "a number."
                )
        return found

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").exists()

    def model(self, layout: Layout) -> Vector:
        """The last parameters; the file must fit ``layout``."""
        found, params, _ = wire.load_model(self.path / "model.safetensors")
        if found != layout:
            raise RunError(
                f"The model in {self.path} has other tensors ({', '.join(found.names)}) than this "
                f"task ({', '.join(layout.names)}): build the task as for that run, or record this "
                "one in another directory."
            )
        return params

    def timetable(self) -> Timetable:
        return Timetable.from_arrays(*wire.read(self.path / "timetable.safetensors"))

    def metrics(self) -> list[MetricsRow]:
        """The rows of metrics.csv; a missing value is None."""
        path = self.path / "metrics.csv"
        try:
            text = str(read_file(path, most=MAX_METRICS), "utf-8")
            rows = list(csv.reader(io.StringIO(text, newline="")))
            names = rows[0] if rows else ["round"]
            if "round" not in names or len(set(names)) < len(names):
                raise ValueError(f"its columns are {shown(names)}: one of each, and 'round'")
            return [_metrics_row(names, row, line) for line, row in enumerate(rows[1:], 2) if row]
        except (OSError, ValueError, csv.Error) as error:
            raise RunError(f"{path} cannot be read: {reason(error)}.") from error

    def start_metrics(self, rows: Sequence[MetricsRow]) -> None:
        """Begin metrics.csv with the rows so far, dropping what a cut-off run wrote after them."""
        columns = dict.fromkeys(name for row in rows for name in row)
        text = io.StringIO(newline="")
        if rows:
            writer = csv.DictWriter(text, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        self._rows, self._columns = list(rows), list(columns)
        self._write("metrics.csv", text.getvalue())

    def append_metrics(self, row: MetricsRow) -> None:
        if not row.keys() <= set(self._columns):  # the first row, or a resumed run has new metrics
            self.start_metrics([*self._rows, row])
            return
        self._rows.append(row)
        with open(self.path / "metrics.csv", "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerow(row)

    def start_workers(self, measure: str, rows: Measured, names: Sequence[str]) -> None:
        """Begin per_worker.csv with the rows so far."""
        worker_table.start(self.path / "per_worker.csv", measure, rows, names)

    def append_workers(
        self, number: int, measure: str, values: Floats, names: Sequence[str]
    ) -> None:
        worker_table.append(self.path / "per_worker.csv", measure, number, values, names)

    def per_worker(self) -> PerWorker | None:
        """What was measured for each worker, if that was asked for."""
        return worker_table.read(self.path / "per_worker.csv")

    def save_checkpoint(self, arrays: Arrays, numbers: Numbers) -> None:
        wire.write(self.checkpoint, arrays, {**numbers, "run": self.settings()["fingerprint"]})

    def load_checkpoint(self) -> tuple[Arrays, Numbers] | None:
        """The last checkpoint, or None where the run did not get that far."""
        if not self.checkpoint.exists():
            return None
        try:
            arrays, numbers = wire.read(self.checkpoint)
        except RunError as error:
            raise RunError(f"{error} Put a whole one back, or remove it to begin again.") from error
        settings = self.settings()
        if numbers.get("run") not in (settings["fingerprint"], *settings.get("earlier", [])):
            raise RunError(
                f"{self.checkpoint} is the checkpoint of another run: put the right one back, or "
                "remove it to begin again."
            )
        return arrays, numbers

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def finish(
        self, layout: Layout, params: Vector, summary: Mapping[str, Any], version: int
    ) -> None:
        """Write the model and then the summary, whose presence says that the run has ended."""
        wire.save_model(self.path / "model.safetensors", layout, params, version=str(version))
        self._write("summary.json", json.dumps(summary, indent=2) + "\n")

    def _json(self, name: str) -> dict[str, Any]:
        try:
            found = parse_json(read_file(self.path / name, most=MAX_JSON))
        except FileNotFoundError as error:
            if not self.path.exists():
                raise RunError(
                    f"{self.path} does not exist: it is not the directory of a run."
                ) from error
            raise RunError(
                f"{self.path} has no {name}: it is not the directory of a "
                f"{'finished ' if name == 'summary.json' else ''}run."
            ) from error
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / name} cannot be read: {reason(error)}.") from error
        if not isinstance(found, dict):
            raise RunError(f"{self.path / name} holds a {type(found).__name__}, not an object.")
        return found

    def _write(self, name: str, text: str) -> None:
        write_file(self.path / name, text.encode())


def _shortened(name: str, there: Any, asked: Any) -> bool:
    """Whether the setting asks for an earlier end than the run has."""
    numbers = isinstance(there, Real) and isinstance(asked, Real)
    return name in ("rounds", "until_s") and numbers and bool(there > asked)


def _metrics_row(names: Sequence[str], row: Sequence[str], line: int) -> MetricsRow:
    """A row of numbers; the last one of a run that was cut off may be short."""
    if len(row) > len(names):
        raise ValueError(f"line {line} has {len(row)} values for {len(names)} columns")
    texts = dict(zip(names, row, strict=False))
    found = {name: float(texts[name]) if texts.get(name) else None for name in names}
    for name, value in found.items():
        if value is not None and not isfinite(value):
            raise ValueError(f"line {line} has {printable(name)}={value}, which is not finite")
    return dict(found)


def renamed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded run's settings under the names they have now, those of ``Compute`` together."""
    values = dict(record)
    if "versions_back" in values:
        values["max_staleness"] = values.pop("versions_back") - 1
    if "spread" in values:
        spread = values.pop("spread")
        values["time_distribution"] = "constant" if spread == "none" else spread
    if "lost" in values:
        values["lost_share"] = values.pop("lost")
    if values.get("format", 1) < 3 and not values.keys().isdisjoint(COMPUTE):
        values["compute"] = {name: values.pop(name) for name in COMPUTE if name in values}
    return values


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the names of ``Compute`` among their own, to be compared one by one."""
    rest = {name: value for name, value in settings.items() if name != "compute"}
    return rest | dict(settings.get("compute", {}))
