"""Traces of devices as FedScale publishes them, as JSON.

FedScale ships two files, both as pickles: when 107,749 phones were free to train
(``client_behave_trace``) and how fast 500,000 devices compute (``client_device_capacity``). A
pickle can run any program when it is opened, so pickles are refused here; the error says how to
convert one.

Reference: Lai, Dai, Singapuram, Liu, Zhu, Madhyastha, Chowdhury, "FedScale: Benchmarking Model and
System Performance of Federated Learning at Scale", ICML 2022; formats as in its documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anarchic.core.reading import parse_json, read_file, reason, shown
from anarchic.core.types import Floats
from anarchic.errors import ConfigError, DataError
from anarchic.participation.availability import Availability
from anarchic.participation.columns import MAX_BYTES, read_lines

MOST_WINDOWS = 1 << 26
_CONVERT = (
    'python -c "import json, pickle, sys; '
    "json.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'w'), default=float)\""
)


def read_fedscale(
    path: Path | str, *, workers: int | None = None, repeats: int = 1
) -> Availability:
    """When devices are available, from FedScale's availability trace converted to JSON.

    The file maps a device to ``{"active": [...], "inactive": [...], "finish_time": ...}``: the
    seconds at which it becomes active and inactive, and the length of its trace. Worker i is the
    i-th device of the file, of the first ``workers`` of them. FedScale begins a trace anew at its
    ``finish_time``; ``repeats`` says how often it runs in all. Windows that touch or overlap are
    joined; those of no length are left out.
    """
    path = Path(path)
    if repeats < 1:
        raise ConfigError(f"A trace runs at least once, got repeats={repeats}.")
    rows: list[tuple[int, float, float]] = []
    for number, (device, found) in enumerate(_devices(path, workers)):
        where = f"{path.name}, device {shown(device)}"
        windows, length_s = _windows(where, found, repeats)
        if len(rows) + len(windows) * repeats > MOST_WINDOWS:
            raise DataError(
                f"{path.name} has more than {MOST_WINDOWS} windows: take fewer workers or repeats."
            )
        for again in range(repeats):
            shift_s = again * length_s if again else 0.0
            rows += [(number, begin + shift_s, end + shift_s) for begin, end in windows]
    if not rows:
        raise DataError(f"{path.name} has no window in which a device is active.")
    worker, from_s, until_s = (np.array(column) for column in zip(*rows, strict=True))
    return Availability.of(worker, from_s, until_s)


def read_speeds(path: Path | str, *, workers: int | None = None) -> Floats:
    """How much longer each worker's work takes than the median's, for ``MeasuredSpeeds``.

    From FedScale's device capacities converted to JSON, ``{device: {"computation": ms per sample,
    ...}}``, or from a CSV file with the columns worker and factor. Of FedScale's file the speed of
    the network is not used.
    """
    path = Path(path)
    if path.suffix.lower() not in (".json", ".pkl", ".pickle"):
        return _factors(path, workers)
    times = [
        _number(f"{path.name}, device {shown(device)}", found, "computation")
        for device, found in _devices(path, workers)
    ]
    if slow := [each for each in times if each <= 0]:
        raise DataError(f"{path.name} has a device with computation {slow[0]}: it must be above 0.")
    return np.array(times) / float(np.median(times))


def _factors(path: Path, workers: int | None) -> Floats:
    found: dict[int, float] = {}
    for line in read_lines(path, "speeds", ("worker", "factor")):
        worker, factor = line.worker(), line.seconds("factor")
        if worker in found or factor == 0:
            raise DataError(
                f"{line.where}: a worker has one factor above 0, got {factor:g} for {worker}."
            )
        found[worker] = factor
    if sorted(found) != list(range(len(found))) or not found:
        raise DataError(f"{path.name} must give a factor for each worker from 0 on, without gaps.")
    return np.array([found[worker] for worker in range(len(found))][:workers])


def _devices(path: Path, workers: int | None) -> Iterator[tuple[str, Any]]:
    """The devices of a JSON file, in its order."""
    try:
        found = read_file(path, most=MAX_BYTES)
        if path.suffix.lower() != ".json" or found[:1] == b"\x80":
            raise DataError(
                f"{path} is a pickle, which can run any program when it is opened. If you trust "
                f"its source, convert it: {_CONVERT} {path.name} {path.stem}.json"
            )
        devices = parse_json(found)
    except (OSError, ValueError) as error:
        raise DataError(
            f"Cannot read the devices in {path}: {reason(error)}. Give FedScale's trace as JSON."
        ) from error
    if not isinstance(devices, dict) or not devices:
        raise DataError(
            f"{path.name} holds no mapping of devices to their traces: give FedScale's as JSON."
        )
    if workers is not None and workers > len(devices):
        raise DataError(
            f"{path.name} has {len(devices)} devices, fewer than workers={workers}: use fewer."
        )
    yield from list(devices.items())[:workers]


def _windows(where: str, found: Any, repeats: int) -> tuple[list[tuple[float, float]], float]:
    """The windows of one device, in order, and the length of its trace."""
    begins, ends = (_numbers(where, found, name) for name in ("active", "inactive"))
    if len(begins) != len(ends):
        raise DataError(
            f"{where} has {len(begins)} times in active and {len(ends)} in inactive; each window "
            "needs both."
        )
    length_s = _number(where, found, "finish_time") if repeats > 1 else math.inf
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(zip(begins, ends, strict=True)):
        if not begin <= end <= length_s:
            raise DataError(
                f"{where} is active from {begin:g} to {end:g} s; a window ends no earlier than it "
                f"begins, and by finish_time."
            )
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif begin < end:
            joined.append((begin, end))
    return joined, length_s


def _numbers(where: str, found: Any, name: str) -> list[float]:
    values = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(values, list):
        raise DataError(f"{where} has no list {name}: give FedScale's trace as JSON.")
    return [_checked(where, name, value) for value in values]


def _number(where: str, found: Any, name: str) -> float:
    return _checked(where, name, found.get(name) if isinstance(found, Mapping) else None)


def _checked(where: str, name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise DataError(f"{where}, {name}: {shown(value)} is not a number >= 0.")
    return float(value)
