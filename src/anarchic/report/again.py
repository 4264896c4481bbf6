"""How to run a recorded run again: a command, or a few lines of Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from anarchic.core.factory import RuleSettings
from anarchic.sim.settings import Settings

NEW = "runs/again"


def settings_again(settings: Mapping[str, Any]) -> str:
    """Of a simulation, by its settings.

    >>> settings_again({"rule": "afa-cs", "m": None, "rounds": 150, "seed": 3})
    'anarchic simulate --rule afa-cs --seed 3 --out runs/again'
    """
    given = _given(settings, Settings)
    if all(isinstance(value, str | int | float) for value in given.values()):
        return shlex.join(["anarchic", "simulate", *_flags(given), "--out", NEW])
    told = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"import anarchic\n\nanarchic.simulate(anarchic.Settings({told}), out={NEW!r})"


def store_again(place: str, rules: RuleSettings) -> str:
    """Of a live run: go on with it, or begin one with the same rule."""
    where = place if "://" not in place else "STORE"  # an address may hold a password
    given = _given(asdict(rules), RuleSettings)
    simple = {name: value for name, value in given.items() if isinstance(value, str | int | float)}
    begin = ["anarchic", "serve", "--init", "model.safetensors", "--store", "new.db"]
    on = shlex.join(["anarchic", "serve", "--store", where])
    again = shlex.join([*begin, *_flags(simple)])
    return f"{on}   # goes on with this run\n{again}   # begins one like it"


def _given(settings: Mapping[str, Any], record: type) -> dict[str, Any]:
    """What differs from the defaults."""
    known = {f.name: f.default for f in fields(record)}
    return {
        name: value
        for name, value in settings.items()
        if name in known and value != known[name] and value not in (None, {}, [])
    }


def _flags(given: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", str(value)]
    return found
