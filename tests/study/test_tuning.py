"""Tuning: equal budgets, validation data only, the best again with new seeds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from anarchic.errors import ConfigError, RunError
from anarchic.study import tune
from anarchic.study.results import FILE
from anarchic.study.sweeps import load_sweep
from anarchic.study.tuning import RANGES, RandomSearch, Tuning, ranges_of

SMALL = {"rounds": 6, "batch": 8, "local_steps": 2, "eval_every": 3}
LITTLE = {"budget": 3, "seed": range(2), "new_seed": [10, 11]}


def tuning(**options):
    rules = options.pop("rules", ["afa-cd", "fedbuff"])
    ranges = {rule: ranges_of(rule, None) for rule in rules}
    return Tuning(rules=rules, **{"ranges": ranges, **options})


def test_every_rule_gets_the_same_budget_and_the_same_values():
    (tried,) = RandomSearch(tuning(budget=7)).steps()
    assert tried["afa-cd"] == tried["fedbuff"]
    assert len(tried["afa-cd"]) == 7
    (fewer,) = RandomSearch(tuning(budget=3)).steps()
    assert fewer["afa-cd"] == tried["afa-cd"][:3]
    (other,) = RandomSearch(tuning(budget=3, draw=1)).steps()
    assert other["afa-cd"] != fewer["afa-cd"]


def test_a_draw_is_the_same_in_every_process_and_at_the_same_place_of_any_range():
    (tried,) = RandomSearch(tuning(budget=2)).steps()
    values = [each["server_lr"] for each in tried["afa-cd"]]
    assert values == [9.784, 0.02472]  # a later version must draw them too
    wide = tuning(budget=2, ranges={"afa-cd": {"server_lr": (1e-4, 1e5)}}, rules=["afa-cd"])
    (other,) = RandomSearch(wide).steps()
    places = [np.log10(each["server_lr"] / 1e-4) / 9 for each in other["afa-cd"]]
    assert places == pytest.approx([np.log10(value / 0.01) / 3 for value in values], abs=1e-3)


def test_values_are_even_on_a_log_scale_within_their_range():
    (tried,) = RandomSearch(tuning(budget=2000)).steps()
    values = np.array([each["server_lr"] for each in tried["afa-cd"]])
    low, high = RANGES["server_lr"]
    assert low <= values.min() < 1.1 * low
    assert 0.9 * high < values.max() <= high
    # As many in each decade of three: within four deviations of a share of a third.
    shares = np.histogram(np.log10(values), 3, (-2, 1))[0] / 2000
    assert np.abs(shares - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 2000)


def test_a_rule_is_tuned_by_what_it_has():
    assert list(ranges_of("afa-cd", None)) == ["server_lr", "local_lr"]
    assert ranges_of("fedasync", None) == {
        "local_lr": RANGES["local_lr"],
        "rule_options.mixing": (0.05, 1.0),
    }
    assert ranges_of("fadas", None)["server_lr"] == (0.001, 1.0)
    given = {"server_lr": (0.5, 2.0), "fedasync/rule_options.mixing": (0.2, 0.9)}
    assert ranges_of("fedbuff", given) == {"server_lr": (0.5, 2.0)}
    assert ranges_of("fedasync", given) == {"rule_options.mixing": (0.2, 0.9)}
    with pytest.raises(ConfigError, match="nothing to tune of fedasync"):
        ranges_of("fedasync", {"server_lr": (0.5, 2.0)})


@pytest.fixture
def tuned(tmp_path):
    return tune(SMALL, rule=["afa-cd", "fedasync"], **LITTLE, out=tmp_path / "t")


def test_nothing_of_test_data_is_in_the_search(tuned):
    text = (tuned.path / "search" / "000" / FILE).read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert len(records) == 2 * 3 * 2
    for record in records:
        assert record["settings"]["val_share"] == 0.1
        known = {*record["numbers"], *record["curve"]}
        assert {"val_accuracy", "val_loss"} <= known
        assert not known & {"accuracy", "loss", "final", "last10", "best", "last50"}


def test_the_best_on_validation_data_is_run_again_with_new_seeds(tuned):
    found = load_sweep(tuned.path / "search" / "000").findings()
    for rule in ("afa-cd", "fedasync"):
        means = {
            outcome.cell.name: np.mean([r.curve["val_accuracy"][-1] for r in outcome.results])
            for outcome in found.where(rule=rule)
        }
        assert tuned.best[rule].cell.name == max(means, key=means.get)
    for outcome in tuned.final.findings():
        assert [result.seed for result in outcome.results] == [10, 11]
        chosen = tuned.chosen(str(outcome.get("rule")))
        assert {name: outcome.get(name) for name in chosen} == chosen
        assert "accuracy" in outcome.results[0].curve


def test_called_again_it_runs_nothing_and_finds_the_same(tuned):
    files = sorted(tuned.path.rglob(FILE))
    before = [path.read_bytes() for path in files]
    again = tune(SMALL, rule=["afa-cd", "fedasync"], **LITTLE, out=tuned.path)
    assert [path.read_bytes() for path in files] == before
    assert again.chosen("afa-cd") == tuned.chosen("afa-cd")
    with pytest.raises(RunError, match="holds another tuning: budget is 3 there, 4 here"):
        tune(SMALL, rule=["afa-cd", "fedasync"], **{**LITTLE, "budget": 4}, out=tuned.path)


def test_a_rate_at_the_edge_of_its_range_is_told(tmp_path):
    (tried,) = RandomSearch(tuning(budget=1)).steps()
    place = np.log(tried["afa-cd"][0]["server_lr"] / 0.01) / np.log(1000)  # in any range
    wide = {"budget": 1, "seed": 0, "new_seed": [1]}
    found = tune(SMALL, rule=["afa-cd"], **wide, out=tmp_path, ranges={"server_lr": (0.5, 2.0)})
    assert found.at_edge("afa-cd") == ([] if 0.05 < place < 0.95 else ["server_lr"])
    value = found.chosen("afa-cd")["server_lr"]
    narrow = replace(found.tuning, ranges={"afa-cd": {"server_lr": (0.99 * value, 2 * value)}})
    assert replace(found, tuning=narrow).at_edge("afa-cd") == ["server_lr"]


def test_settings_that_diverge_are_not_chosen(tmp_path):
    wild = {"local_lr": (0.01, 1e6)}
    found = tune({**SMALL, "rounds": 20}, rule=["afa-cd"], **{**LITTLE, "budget": 8},
                 ranges=wild, out=tmp_path)  # fmt: skip
    tried = [run for outcome in load_sweep(tmp_path / "search" / "000").findings()
             for run in outcome.results]  # fmt: skip
    assert len(tried) == 16
    assert not found.best["afa-cd"].diverged


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"budget": 0}, "at least 1 try, got 0"),
        ({"rules": ["afa-cd", "afa-cd"]}, "each rule once"),
        ({"seeds": [0, 1], "new_seeds": [1, 2]}, r"seeds \[1\] are both searched and final"),
        ({"ranges": {"afa-cd": {"server_lr": (0, 1)}}}, "got 0 to 1"),
        ({"ranges": {"afa-cd": {"server_lr": (2, 1)}}}, "got 2 to 1"),
        ({"sampler": "grid"}, "no sampler 'grid'"),
    ],
)
def test_what_cannot_be_tuned_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        tuning(**wrong)


@pytest.mark.slow
def test_optuna_is_asked_step_by_step_and_repeats(tmp_path):
    pytest.importorskip("optuna")
    little = {**LITTLE, "budget": 7, "sampler": "optuna"}
    one = tune(SMALL, rule=["afa-cd", "fedbuff"], **little, out=tmp_path / "one")
    steps = sorted((one.path / "search").iterdir())
    sizes = [len(load_sweep(step).findings().where(rule="afa-cd")) for step in steps]
    assert sizes == [5, 2]
    before = [path.read_bytes() for path in sorted(one.path.rglob(FILE))]
    again = tune(SMALL, rule=["afa-cd", "fedbuff"], **little, out=tmp_path / "one")
    assert again.chosen("fedbuff") == one.chosen("fedbuff")
    assert [path.read_bytes() for path in sorted(one.path.rglob(FILE))] == before


def test_data_that_changed_between_search_and_final_runs_are_refused(tmp_path):
    file, out = tmp_path / "t.csv", tmp_path / "tuned"
    file.write_text("a,b,kind\n" + "".join(f"{n % 7},{n % 5},{n % 2}\n" for n in range(60)))
    options = {"path": str(file), "target": "kind"}
    base = {"data": "csv", "data_options": options, "workers": 4, "m": 2, "rounds": 3, "batch": 4}
    every = {"rule": ["afa-cd"], "budget": 1, "new_seed": [7], "out": out}
    tune(base, **every)
    shutil.rmtree(out / "final")
    file.write_text(file.read_text().replace("kind\n0,", "kind\n6,"))
    with pytest.raises(RunError, match=r"In .*final, the data set csv .* is not what it was in"):
        tune(base, **every)
