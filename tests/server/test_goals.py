"""Metrics by name, which way is better, targets and spans of time."""

from __future__ import annotations

import pytest

from anarchic.errors import ConfigError
from anarchic.server.goals import metric, span_s, target
from anarchic.server.settings import RunSettings


@pytest.mark.parametrize(
    ("text", "name", "better"),
    [
        ("accuracy", "accuracy", "max"),
        ("f1", "f1", "max"),
        ("test_loss", "test_loss", "min"),
        ("perplexity:min", "perplexity", "min"),
        ("loss:max", "loss", "max"),
        ("score:min", "score", "min"),
    ],
)
def test_a_name_tells_which_way_is_better(text: str, name: str, better: str) -> None:
    found = metric(text, "--keep-best")
    assert (found.name, found.better) == (name, better)


def test_a_target_is_reached_from_the_worse_side() -> None:
    assert [target("accuracy=0.9").reached(x) for x in (0.89, 0.9, 0.91)] == [False, True, True]
    assert [target("loss=0.5").reached(x) for x in (0.51, 0.5, 0.49)] == [False, True, True]
    assert not target("accuracy=0.9").reached(float("nan"))
    assert target("score:min=-3").reached(-4.0)


def test_spans_have_units() -> None:
    found = [span_s(text, "--compact-after") for text in ("90d", "12h", "1.5m", "7", "2w")]
    assert found == [90 * 86_400, 12 * 3600, 90, 7, 14 * 86_400]


def test_what_is_none_is_refused() -> None:
    for text in ("", ":min", "accuracy:up"):
        with pytest.raises(ConfigError, match="--keep-best takes the name of a metric"):
            metric(text, "--keep-best")
    for text in ("accuracy", "accuracy=", "accuracy=high", "accuracy=nan", "=3"):
        with pytest.raises(ConfigError, match="--target takes"):
            target(text)
    for text in ("", "90 days", "-3d", "0d", "d"):
        with pytest.raises(ConfigError, match="--compact-after takes a time"):
            span_s(text, "--compact-after")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"keep_best": "accuracy"}, "--keep-best needs evaluations"),
        ({"target": "accuracy=0.9"}, "--target needs evaluations"),
        ({"keep_every": 0}, "--keep-every must be at least 1"),
        ({"max_versions": 0}, "--max-versions must be at least 1"),
        ({"history_bytes": -1}, "--history-bytes must not be negative"),
    ],
)
def test_settings_of_a_run_are_checked(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RunSettings(store="run.db", **given)  # type: ignore[arg-type]
