"""What reaching a target costs, by hand."""

import pytest

from anarchic.errors import ConfigError
from anarchic.report.runs import RecordedRun
from anarchic.report.speedup import costs_of
from anarchic.sim.settings import Settings


def run(name="run", losses=(4.0, 3.0, 1.0), every=10, **settings):
    """Evaluated every so many rounds; it has a clock of a second per round if asked for."""
    clock = settings.pop("clock", False)
    rows = [
        {"round": t * every, "updates": 2 * t * every, "loss": loss, "accuracy": 1 / (1 + loss)}
        | {"local_steps": t, "virtual_s": float(t) if clock else None}
        for t, loss in enumerate(losses)
    ]
    return RecordedRun(name, {**vars(Settings()), **settings}, rows, {})


def costs(*runs, to="loss=2", over="m", against="round"):
    return costs_of(runs, over=over, to=to, against=against)


def test_a_cost_is_where_the_line_between_evaluations_meets_the_target():
    # loss 3 at round 10 and 1 at round 20: 2 in the middle, 1.5 after three quarters
    assert costs(run(m=2)).by_size == {2: [15]}
    assert costs(run(m=2), to="loss=1.5").by_size == {2: [17.5]}
    assert costs(run(m=2), against="updates").by_size == {2: [30]}
    # accuracy 1/4 at round 10 and 1/2 at round 20
    assert costs(run(m=2), to="accuracy=0.375").by_size == {2: [pytest.approx(15)]}
    assert costs(run(m=2), to="loss=1").by_size == {2: [20]}


def test_how_far_apart_the_evaluations_are_is_told():
    assert costs(run(m=2)).coarsest == pytest.approx(10 / 15)
    fine = run(m=2, losses=[4 - t / 100 for t in range(301)], every=1)
    assert costs(fine).by_size == {2: [pytest.approx(200)]}
    assert costs(fine).coarsest == pytest.approx(1 / 200)


def test_a_target_that_is_met_before_training_is_refused():
    for to in ("loss=5", "loss=4"):
        with pytest.raises(ConfigError, match="run has loss 4 before training"):
            costs(run(m=2), to=to)


@pytest.mark.parametrize("to", ["loss", "loss=nan", "loss=inf", "loss=x"])
def test_what_is_no_target_is_refused(to):
    with pytest.raises(ConfigError, match="METRIC=VALUE"):
        costs(run(m=2), to=to)


def test_runs_that_do_not_know_the_cost_are_named():
    with pytest.raises(ConfigError, match=r"virtual_s \(no clock\) in all runs"):
        costs(run(m=2), run("other", m=4), against="virtual_s")
    with pytest.raises(ConfigError, match=r"\(no clock\) in other:"):
        costs(run(m=2, clock=True), run("other", m=4), against="virtual_s")
    assert costs(run(m=2, clock=True), against="virtual_s").by_size == {2: [1.5]}
    with pytest.raises(ConfigError, match="no axis 'seconds'; there are round, updates"):
        costs(run(m=2), against="seconds")


def test_a_setting_that_was_not_given_has_the_default_of_its_rule():
    assert costs(run(m=None)).by_size == {5: [15]}
    assert costs(run(m=None, rule="fedasync")).by_size == {1: [15]}
    assert costs(run(clip=2.0), over="server_lr").by_size == {1: [15]}
    assert costs(run(), over="workers").by_size == {10: [15]}
    with pytest.raises(ConfigError, match=r"no number 'clip'.*numbers are m, workers, local_steps"):
        costs(run(), over="clip")
    with pytest.raises(ConfigError) as told:
        costs(run(), over="rule")
    assert "format" not in str(told.value)
