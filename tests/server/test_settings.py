from __future__ import annotations

import pytest

from anarchic import AfaCd, AfaCs, Clip, FedBuff, SharedVectors, StalenessDiscount
from anarchic.core.steps import AdamStep
from anarchic.errors import ConfigError
from anarchic.server.settings import Limits, RuleSettings, ServerSettings, served_rule


def rule(**settings):
    return served_rule(RuleSettings(**settings))


def test_names_become_rules():
    assert rule(m=3, server_lr=2.0) == AfaCd(3, 2.0)
    assert rule(rule="fedbuff", server_opt="adam") == FedBuff(5, step=AdamStep())
    options = {"expire_after": 9, "cap": 7}
    wrapped = rule(rule="afa-cs", clip=1.0, staleness_power=0.5, **options)
    assert wrapped == Clip(StalenessDiscount(AfaCs(5, **options), 0.5), 1.0)


def test_options_reach_the_rule_and_its_step():
    settings = {"server_opt": "adam", "server_options": {"epsilon": 1e-5}}
    made = rule(rule="fedbuff", rule_options={"power": 1.0}, **settings)
    assert made == FedBuff(5, power=1.0, step=AdamStep(epsilon=1e-5))


@pytest.mark.parametrize("name", ["feddyn", "malenia", "ringleader", "generalized-async-sgd"])
def test_a_rule_that_has_a_population_but_no_cap_needs_none(name):
    assert rule(rule=name, rule_options={"population": 9}).population == 9


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"rule": "fedavg"},
            "'fedavg', which refuses late updates; it can run afa-cd, afa-cs, feda",
        ),
        ({"server_opt": "lion"}, "no server optimiser 'lion'"),
        ({"m": 0}, "m >= 1"),
        ({"expire_after": 5}, "AfaCd has no setting 'expire_after'"),
        ({"cap": 5}, "AfaCd has no setting 'cap'; it has m, server_lr, step"),
        ({"rule": "nope"}, "no rule 'nope'; there are afa-cd"),
        ({"clip": -1.0}, "max_norm"),
        ({"rule_options": {"power": 1.0}}, "AfaCd has no setting 'power'"),
        (
            {"rule": "afa-cs", "rule_options": {"cap": 9}},
            "cap is no option of afa-cs",
        ),
        ({"rule": "afa-cs", "rule_options": {"population": 9}}, "add --cap 9, got cap=None"),
        ({"rule": "afa-cs", "rule_options": {"population": 9}, "cap": 10}, "add --cap 9"),
        ({"server_options": {"beta": 0.5}}, "SgdStep has no setting 'beta'"),
    ],
)
def test_bad_rules_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        rule(**settings)


def test_half_the_buffer_is_the_share_of_one_worker_unless_said_otherwise():
    assert [Limits().share(m) for m in (1, 2, 5, 100)] == [1, 1, 3, 50]  # two of them fill it
    assert Limits(per_worker=7).share(5) == 7


def test_limits_are_positive():
    with pytest.raises(ConfigError, match="max_staleness must be positive, got 0"):
        Limits(max_staleness=0)


@pytest.mark.parametrize("step_after_s", [0.0, -1.0, float("nan")])
def test_a_timer_must_be_positive(step_after_s):
    with pytest.raises(ConfigError, match="step_after_s must be positive"):
        ServerSettings(step_after_s=step_after_s)


def test_what_workers_share_is_carried_and_divided_by_their_number():
    made = rule(m=2, clip=1.0, local_rule="scaffold", workers=8)
    assert made == SharedVectors(Clip(AfaCd(2), 1.0), ("control",), 8)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"local_rule": "scaffold"}, "share their control with the server, got workers=None: give"),
        (
            {"local_rule": "prox", "workers": 8},
            "share nothing with the server, got workers=8: leave out",
        ),
        ({"workers": 8}, "share nothing"),
        ({"local_rule": "scaffold", "workers": 0}, "population >= 1"),
        ({"local_rule": "nope"}, "no local rule 'nope'"),
    ],
)
def test_sharing_and_the_number_of_workers_go_together(given, says):
    with pytest.raises(ConfigError, match=says):
        rule(**given)
