"""Options that a class or function does not have: where they belong, or what was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

from anarchic.core.validation import did_you_mean
from anarchic.errors import UnknownOption

T = TypeVar("T", bound=Callable[..., Any])

NEAR = 0.85  # a typing mistake, rather than an option of something else
_KNOWN: dict[str, tuple[str, ...]] = {}  # options by the class or function that has them
# What other libraries call options of ours.
OURS = {
    **dict.fromkeys(("batch_size", "batchsize", "bs"), ("batch",)),
    **dict.fromkeys(("learning_rate", "lr", "local_lr", "eta"), ("lr", "local_lr")),
    **dict.fromkeys(("clients", "num_clients", "n_clients", "num_workers"), ("workers",)),
    **dict.fromkeys(("random_state", "random_seed"), ("seed",)),
    **dict.fromkeys(("test_size", "test_share", "test_data"), ("test",)),
    **dict.fromkeys(("val_size", "validation", "val_data"), ("val", "val_share")),
    **dict.fromkeys(("label", "labels", "targets"), ("target",)),
    **dict.fromkeys(("group", "groups", "client", "role", "site"), ("owner",)),
    **dict.fromkeys(("criterion", "loss_fn", "loss_function"), ("loss",)),
    **dict.fromkeys(("optim", "optimiser", "opt"), ("optimizer",)),
    **dict.fromkeys(("num_rounds", "n_rounds", "iterations"), ("rounds",)),
    **dict.fromkeys(("directory", "save_to", "out_dir", "path"), ("out",)),
    **dict.fromkeys(("server", "address", "server_url"), ("url",)),
    **dict.fromkeys(("checkpoint_s", "save_every", "checkpoint"), ("checkpoint_every",)),
    **dict.fromkeys(("num_steps", "n_steps", "k"), ("steps", "local_steps")),
    "verbose": ("progress",),
    "model": ("module",),
}


def says_options(what: T) -> T:
    """A decorator: an option that ``what`` does not have is refused in a sentence that helps."""
    name = what.__qualname__.removesuffix(".__init__")
    called: Any = what.__init__ if inspect.isclass(what) else what
    given = inspect.signature(what).parameters.values()
    taken = tuple(p.name for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    _KNOWN[name] = taken

    @wraps(called)
    def checked(*args: Any, **options: Any) -> Any:
        refuse_unknown(name, taken, options)
        return called(*args, **options)

    if not inspect.isclass(what):
        return checked  # type: ignore[return-value]  # of the same signature
    setattr(what, "__init__", checked)  # noqa: B010 - mypy lets nobody assign it
    return what


def refuse_unknown(name: str, taken: tuple[str, ...], options: Iterable[str]) -> None:
    """Refuse the first option that is not among those that ``name`` has."""
    for option in options:
        if option not in taken:
            raise _unknown(name, taken, option)


def _unknown(name: str, own: tuple[str, ...], option: str) -> UnknownOption:
    meant = (option, *OURS.get(option.lower(), ()))
    told = f"{name} has no option {option!r}"
    here = [each for each in meant if each in own] or get_close_matches(option, own, 1, NEAR)
    if here:
        return UnknownOption(f"{told}. Did you mean {here[0]!r}?")
    for each in meant:
        if places := [f"{place}({each}=...)" for place, has in _KNOWN.items() if each in has]:
            return UnknownOption(f"{told}: give it to {' or '.join(places[:3])}.")
    near = did_you_mean(option, own)
    return UnknownOption(f"{told}." + (near or f" Its options: {', '.join(own)}."))
