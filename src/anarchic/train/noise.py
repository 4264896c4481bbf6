"""Random numbers of a model while it is trained, such as dropout's, from the key of a local step.

A key is a function of (run seed, worker, visit, step). ``Noise`` stands between a module and torch:
an operator that would draw from torch's generator gets numbers that are a function of the key, of
how many operators drew before it, and of the position in its tensor. So the loop and the batched
backend draw the same, and no generator outside is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import pi
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from anarchic.errors import ConfigError
from anarchic.train.draws import Draws

# Constants of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), as signed numbers: products wrap.
STEP, FIRST, SECOND = (
    word - (1 << 64) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
HALF = 1 << 32
INT64 = 4  # as an operator's default


class CannotBatch(Exception):
    """An operator draws in a way that lanes cannot share."""


def step_keys(draws: Draws) -> Any:
    """(lanes, steps) keys of 64 bits."""
    words = draws.bits("noise", 2)
    return words[..., 0] ^ (words[..., 1] << 32)


def random_bits(keys: Tensor, drawn: int, count: int) -> Tensor:
    """(..., count) words of 64 bits from keys (...): the operator number ``drawn`` of a step."""
    start = _mixed(keys + _signed(drawn * STEP))
    return _mixed(start[..., None] + torch.arange(1, count + 1, device=keys.device) * STEP)


def _signed(number: int) -> int:
    """What is left of a number in an int64."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _mixed(z: Tensor) -> Tensor:
    # The masks make logical shifts of arithmetic ones.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * SECOND
    return z ^ ((z >> 31) & ((1 << 33) - 1))


@final
class Noise(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types there
    """While it is entered, torch's random operators draw by ``keys``.

    ``keys`` is a number, or (lanes,) around a ``vmap`` with ``randomness="different"``: there an
    operator has the lanes in its first axis. ``drawn`` counts the operators that drew.
    """

    def __init__(self, keys: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._keys, self.drawn = keys, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch would load its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags or _draws_nothing(func, args, given):
            return func(*args, **given)
        if torch._C._current_graph_task_id() != -1:
            raise ConfigError(
                f"The model draws random numbers ({func}) while gradients are computed, as "
                "gradient checkpointing does: train it without."
            )
        self.drawn += 1
        bound = _bound(func, args, given)
        name = func._schema.name.removeprefix("aten::")
        if name == "native_dropout":
            return self._dropout(bound)
        value = OPERATORS.get(name.removesuffix("_"))
        if value is None:
            return self._by_generator(func, args, given)
        room = bound["self"] if name.endswith("_") else _room(bound)
        return room.copy_(value(self._words(room.shape), bound))

    def _words(self, shape: Sequence[int]) -> Tensor:
        """A word for every element."""
        lanes = self._keys.shape
        if tuple(shape[: len(lanes)]) != tuple(lanes):
            raise CannotBatch("it draws random numbers for all lanes at once")
        count = torch.Size(shape[len(lanes) :]).numel()
        return random_bits(self._keys, self.drawn, count).reshape(shape)

    def _dropout(self, bound: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        x, p = bound["input"], float(bound["p"])
        mask = _chance(self._words(x.shape), 1 - p)
        scale = 0.0 if p == 1 else 1 / (1 - p)
        return x * mask * scale, mask

    def _by_generator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Operators that seldom occur: by a generator of torch's that starts from the key."""
        if self._keys.ndim:
            raise CannotBatch(f"{func} draws random numbers")
        packet = func.overloadpacket
        takes = any(argument.name == "generator" for argument in func._schema.arguments)
        if not takes and "generator" not in packet.overloads():
            raise ConfigError(
                f"The model draws random numbers by {func}, which takes them from torch's global "
                "generator: a visit could not be repeated. Use torch.rand or torch.bernoulli."
            )
        seed = int(random_bits(self._keys, self.drawn, 1)) & ((1 << 63) - 1)
        own = torch.Generator(device=self._keys.device).manual_seed(seed)
        return (func if takes else packet.generator)(*args, **{**kwargs, "generator": own})


def _draws_nothing(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator that may draw has no reason to: its dropout is zero or off."""
    name = func._schema.name.removeprefix("aten::")
    if name == "_fused_sdp_choice":
        return True
    bound = _bound(func, args, kwargs)
    if bound.get("train") is False or bound.get("training") is False:
        return True
    return any(bound.get(rate) == 0 for rate in ("dropout", "dropout_p"))


def _bound(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator was given, by name, with its defaults."""
    arguments = func._schema.arguments
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}
    positional = zip((each.name for each in arguments), args, strict=False)
    return {**defaults, **dict(positional), **kwargs}


def _room(bound: Mapping[str, Any]) -> Tensor:
    """An empty tensor for what an operator returns."""
    dtype, device = bound.get("dtype"), bound.get("device")
    dtype = torch.int64 if dtype == INT64 else dtype
    if "size" in bound:
        return torch.empty(bound["size"], dtype=dtype, device=device)
    if isinstance(bound.get("self"), Tensor):
        return torch.empty_like(bound["self"], dtype=dtype, device=device)
    return torch.empty_like(bound["mean"] + bound["std"])


def _chance(words: Tensor, p: float | Tensor) -> Tensor:
    """True with probability ``p``."""
    bound = p.double() * HALF if isinstance(p, Tensor) else round(p * HALF)
    return _upper(words) < bound


def _upper(words: Tensor) -> Tensor:
    return (words >> 32) & (HALF - 1)


def _uniform(words: Tensor) -> Tensor:
    """On [0, 1), with 24 bits, so that float32 holds each of them."""
    return ((words >> 40) & ((1 << 24) - 1)) * 2.0**-24


def _normal(words: Tensor) -> Tensor:
    """Standard normal numbers, by Box and Muller."""
    radius = torch.sqrt(-2 * torch.log((_upper(words) + 1).double() / HALF))
    return radius * torch.cos(2 * pi * (words & (HALF - 1)).double() / HALF)


def _exponential(words: Tensor) -> Tensor:
    return -torch.log((_upper(words).double() + 0.5) / HALF)  # of no zero, nor of one


def _integers(words: Tensor, low: int, high: int) -> Tensor:
    return low + ((_upper(words) * (high - low)) >> 32)


Value = Callable[[Tensor, Mapping[str, Any]], Tensor]
OPERATORS: dict[str, Value] = {
    "bernoulli": lambda words, its: _chance(words, its.get("p", its["self"])),
    "uniform": lambda words, its: its["from"] + (its["to"] - its["from"]) * _uniform(words),
    "normal": lambda words, its: its["mean"] + its["std"] * _normal(words),
    "exponential": lambda words, its: _exponential(words) / its["lambd"],
    "rand": lambda words, its: _uniform(words),
    "rand_like": lambda words, its: _uniform(words),
    "randn": lambda words, its: _normal(words),
    "randn_like": lambda words, its: _normal(words),
    "randint": lambda words, its: _integers(words, its.get("low", 0), its["high"]),
    "randint_like": lambda words, its: _integers(words, its.get("low", 0), its["high"]),
}
