"""Options that take several values: ``--rule afa-cd,fedbuff --seed 0-9``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

from anarchic.cli import options
from anarchic.cli.options import (
    Given,
    Option,
    hints_of,
    is_pairs,
    known_fields,
    parse_options,
    read_text,
    table,
)
from anarchic.cli.settings import OPTIONS, compute_from, parse_metrics, parse_probabilities
from anarchic.core import registry
from anarchic.core.reading import shown
from anarchic.core.validation import did_you_mean
from anarchic.errors import ConfigError
from anarchic.sim.settings import Settings
from anarchic.study.grid import MAPPINGS, MOST, Grid
from anarchic.study.sweeps import grid_of
from anarchic.train.compute import Compute

KNOWN = known_fields(Settings)
ONE_TEXT = ("data_dir", "availability", "arrival_probs")  # a comma is a part of them
SEVERAL = tuple(
    name
    for name, (_, hint) in KNOWN.items()
    if not is_pairs(hint) and hints_of(hint)[0] is not bool and name not in ONE_TEXT
)
PARTS = {  # of which part the entries of a mapping are, by the name of that part
    "data_options": ("data", "datasets"),
    "server_options": ("server_opt", "server_steps"),
    "rule_options": ("rule", "rules"),
    "local_options": ("local_rule", "local_rules"),
}


def takes(own: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of ``simulate``, several values each, and those of its own."""
    listed = {name: _several(name, option) for name, option in OPTIONS.items()}
    return options.takes({**table(own), **listed}, Settings, Compute, several=SEVERAL)


def _several(name: str, option: Option) -> Option:
    if name not in SEVERAL:
        return option
    kind = hints_of(KNOWN[name][1])[0]
    usual = {int: "N", float: "X"}.get(kind, "NAME")
    return replace(option, metavar=f"{option.metavar or usual},...")


def grid_from(given: Given, vary: Sequence[str] = ()) -> Grid:
    """The definition of a sweep as it was given."""
    varied = {n: values_of(_flag(n), given[n], KNOWN[n][1]) for n in SEVERAL if n in given}
    seeds = varied.pop("seed", [0])
    for text in vary:
        name, values = _varied(text, varied, given)
        if name in varied or name in given:
            raise ConfigError(f"{name} is given twice: by its own option or by --vary.")
        varied[name] = values
    one = {name: values[0] for name, values in varied.items() if len(values) == 1}
    base = {**_single(given, varied), **one}
    more = {name: values for name, values in varied.items() if name not in one}
    return grid_of(base, seed=seeds, compute=compute_from(given), **more)


def _single(given: Given, varied: Given) -> Given:
    """Settings of which there is one value: switches, texts with commas, and mappings."""
    names = [f.name for f in fields(Settings) if f.name in given and f.name not in SEVERAL]
    found = {name: given[name] for name in names}
    for name in found.keys() & PARTS.keys():
        found[name] = parse_options(_flag(name[:-1]), found[name], *_kinds(name, varied))
    if "arrival_probs" in found:
        found["arrival_probs"] = parse_probabilities(found["arrival_probs"])
    if "metrics" in found:
        found["metrics"] = parse_metrics(found["metrics"])
    return found


def _kinds(mapping: str, varied: Given) -> list[Any]:
    """The parts that may take the entries of a mapping."""
    chooser, kind = PARTS[mapping]
    names = varied.get(chooser) or [getattr(Settings, chooser) or "sgd"]
    parts = [p for n in names for p in (registry.chain(n) if kind == "local_rules" else [n])]
    return [registry.find(kind, part) for part in parts]


def _varied(text: str, varied: Given, given: Given) -> tuple[str, list[Any]]:
    """``--vary`` of a setting, or of an entry of a mapping."""
    name, equals, values = text.partition("=")
    name = name.strip().replace("-", "_")
    head, dot, entry = name.partition(".")
    if not equals or not values.strip():
        raise ConfigError(f"--vary takes NAME=V1,V2,..., such as dynamic-steps=true; got {text!r}.")
    if dot and head in MAPPINGS and entry:
        kinds = _kinds(head, varied) if head in PARTS else []
        each = [parse_options("--vary", [f"{entry}={v}"], *kinds) for v in _split(values)]
        return name, [found[entry] for found in each]
    if name not in KNOWN or name in MAPPINGS:
        raise ConfigError(f"--vary knows no setting {name!r}.{did_you_mean(name, KNOWN)}")
    return name, values_of(f"--vary {name}", values, KNOWN[name][1])


def values_of(named: str, text: str, hint: Any) -> list[Any]:
    """``"0-3,7"`` as [0, 1, 2, 3, 7], ``"0.5,1"`` as [0.5, 1.0]; ``none`` where that is allowed."""
    kind = hints_of(hint)[0]
    optional = type(None) in get_args(hint)
    found: list[Any] = []
    for part in _split(text):
        bounds = re.fullmatch(r"(\d+)-(\d+)", part) if kind is int else None
        if bounds is not None:
            found += _range(named, part, int(bounds[1]), int(bounds[2]))
        elif optional and part.lower() == "none":
            found.append(None)
        else:
            found.append(read_text(named, part, kind if kind in (int, float, bool) else str))
    return found


def _range(named: str, text: str, first: int, last: int) -> range:
    if not first <= last < first + MOST:
        raise ConfigError(f"{named} takes ranges such as 0-9, from low to high; got {shown(text)}.")
    return range(first, last + 1)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
