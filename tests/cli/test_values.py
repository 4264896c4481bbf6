import pytest

from anarchic.cli.values import parse_options, parse_probabilities
from anarchic.core.local import Scaffold
from anarchic.core.rules import AfaCd, AfaCs, FedAsync, FedAvg
from anarchic.data import load_shakespeare
from anarchic.errors import ConfigError


def test_probabilities():
    assert parse_probabilities("0.25, 0.75") == (0.25, 0.75)


@pytest.mark.parametrize("text", ["", "0.1,,0.2", "0.1;0.2", "a"])
def test_malformed_probabilities_are_refused(text):
    with pytest.raises(ConfigError, match="numbers separated by commas"):
        parse_probabilities(text)


@pytest.mark.parametrize(
    ("kind", "pair", "expected"),
    [
        (FedAsync, "mixing=0.5", {"mixing": 0.5}),
        (FedAsync, "history=3", {"history": 3}),
        (FedAvg, "by_samples=TRUE", {"by_samples": True}),
        (FedAvg, "by-samples=false", {"by_samples": False}),
        (AfaCs, "expire-after=4", {"expire_after": 4}),
        (load_shakespeare, "seed=7", {"seed": 7}),
        (AfaCs, "cap=None", {"cap": None}),
        (Scaffold, "option=1", {"option": 1}),
        (AfaCd, "unknown=1", {"unknown": 1.0}),
        (None, "anything=1", {"anything": 1.0}),
    ],
)
def test_values_get_the_type_of_their_field(kind, pair, expected):
    found = parse_options("--rule-option", [pair], kind)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("kind", "pairs", "message"),
    [
        (FedAsync, ["mixing"], "NAME=VALUE"),
        (FedAsync, ["=1"], "NAME=VALUE"),
        (FedAsync, ["mixing="], "NAME=VALUE"),
        (FedAsync, ["mixing=half"], "must be a number, got 'half'"),
        (FedAsync, ["mixing=none"], "must be a number, got 'none'"),
        (FedAsync, ["history=2.5"], "must be a whole number, got '2.5'"),
        (FedAvg, ["by_samples=1"], "must be true or false, got '1'"),
        (AfaCd, ["step=sgd"], "--server-opt"),
        (FedAsync, ["power=1", "power=2"], "twice"),
    ],
)
def test_malformed_options_are_refused(kind, pairs, message):
    with pytest.raises(ConfigError, match=message):
        parse_options("--rule-option", pairs, kind)
