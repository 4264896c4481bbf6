from dataclasses import dataclass

import pytest

from anarchic import (
    Ace,
    Adam,
    AfaCd,
    AfaCs,
    AsyncSgd,
    Clip,
    ClipNorm,
    Decay,
    FedAsync,
    Guard,
    Mifa,
    Sgd,
    SgdStep,
    SharedVectors,
    StalenessDiscount,
)
from anarchic.core.factory import RuleSettings, make_local_rule, make_part, make_rule
from anarchic.errors import ConfigError


def made(known=None, **settings):
    return make_rule(RuleSettings(**settings), known)


def test_names_become_rules_with_all_that_is_around_them():
    assert made() == AfaCd(5, 1.0, SgdStep())
    both = made(clip=2.0, staleness_power=0.5, local_rule="scaffold", workers=7)
    inside = Clip(StalenessDiscount(AfaCd(5), 0.5), 2.0)
    assert both == SharedVectors(inside, ("control",), 7)
    guarded = made(clip=2.0, staleness_power=0.5, local_rule="scaffold", workers=7, guard=5.0)
    assert guarded == Guard(both, 5.0)
    assert made(guard=0.0) == made()


def test_none_leaves_it_to_the_rule():
    nothing = {"m": None, "server_lr": None, "server_opt": None}
    assert made(rule="fedasync", **nothing) == FedAsync()
    assert made(rule="afa-cs", **nothing) == AfaCs(5)


def test_a_rule_that_names_a_default_m_keeps_it():
    assert made(rule="ace") == Ace(m=1)
    assert made(rule="async-sgd") == AsyncSgd(m=1)
    assert made(rule="mifa") == Mifa(m=5)
    assert made(rule="ace", m=3) == Ace(m=3)
    assert made(rule="async-sgd", rule_options={"m": 2}).m == 2


def test_a_rule_is_told_what_the_runner_knows_and_it_wants_to_know():
    known = {"population": 9, "history": 4}
    assert made(known, rule="afa-cs", cap=3) == AfaCs(5, population=9, cap=3)
    assert made(known) == AfaCd(5)
    assert made(known, rule="afa-cs", rule_options={"population": 2}) == AfaCs(5, population=2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rule": "fedasync"}, "takes no server optimiser"),
        ({"cap": 3}, "AfaCd has no setting 'cap'"),
        ({"server_opt": "lion"}, "no server optimiser 'lion'"),
        ({"server_opt": "yogi", "server_options": {"beta": 1}}, "YogiStep has no setting 'beta'"),
        ({"local_rule": "nope", "workers": 3}, "no local rule 'nope'"),
    ],
)
def test_what_a_part_does_not_have_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        made(**settings)


def test_a_part_that_needs_more_says_so():
    @dataclass
    class Needy:
        power: float

    with pytest.raises(ConfigError, match=r"Needy needs more settings: .*'power'"):
        make_part(Needy, {}, {})


def test_local_rules_have_options_too():
    assert make_local_rule("prox", {"mu": 0.3}).mu == 0.3
    with pytest.raises(ConfigError, match=r"Sgd has no setting 'mu'"):
        make_local_rule("sgd", {"mu": 0.3})


def test_wrappers_are_named_before_what_they_wrap():
    options = {"max_norm": 2.0, "per_version": 0.99, "beta1": 0.8}
    made = make_local_rule("clipnorm+decay+adam", options)
    assert made == ClipNorm(2.0, Decay(per_version=0.99, rule=Adam(beta1=0.8)))
    assert make_local_rule("decay", {"per_step": 0.5}) == Decay(0.5, rule=Sgd())
    with pytest.raises(ConfigError, match=r"adam wraps no other local rule.*got adam\+clipnorm"):
        make_local_rule("adam+clipnorm", {})
    with pytest.raises(ConfigError, match=r"Adam has no setting 'mu'"):
        make_local_rule("clipnorm+adam", {"mu": 1.0})
    with pytest.raises(ConfigError, match=r"no local rule 'nope'"):
        make_local_rule("clipnorm+nope", {})


def test_what_a_wrapped_rule_shares_is_carried():
    carried = made(local_rule="clipnorm+scaffold", workers=7)
    assert carried == SharedVectors(AfaCd(5), ("control",), 7)


def test_what_is_no_rule_is_refused():
    nothing = {"m": None, "server_lr": None, "server_opt": None}
    with pytest.raises(ConfigError, match=r"Sgd has no .*receive.* is no rule: derive it from"):
        made(rule="anarchic:Sgd", **nothing)
    with pytest.raises(ConfigError, match=r"anarchic:SgdStep has no .*finish, so it is no local"):
        make_local_rule("anarchic:SgdStep", {})


def test_a_part_that_raises_over_its_settings_is_refused_in_one_line():
    def weighted(weight: int = 1):
        raise ValueError("weight must be even")

    with pytest.raises(ConfigError, match=r"weighted cannot be made of .*weight must be even"):
        make_part(weighted, {}, {"weight": 3})


def test_a_rule_without_a_server_step_takes_no_optimiser():
    with pytest.raises(ConfigError, match="fedasync takes no server optimiser"):
        make_rule(RuleSettings(rule="fedasync", m=None, server_lr=None, server_opt="adam"))
