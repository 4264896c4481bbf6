"""What can be said from runs with several seeds: differences, intervals, tests."""

from anarchic.stats.comparisons import Comparison, compare
from anarchic.stats.exponents import Exponent, exponent
from anarchic.stats.inference import (
    Interval,
    at_most,
    different,
    equivalent,
    holm,
    interval,
    paired,
    seeds_needed,
    sentence,
)

__all__ = [
    "Comparison",
    "Exponent",
    "Interval",
    "at_most",
    "compare",
    "different",
    "equivalent",
    "exponent",
    "holm",
    "interval",
    "paired",
    "seeds_needed",
    "sentence",
]
