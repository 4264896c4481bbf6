import json

import numpy as np
import pytest

from anarchic import wire


def test_the_calculator_shows_conditions_bounds_and_rates(anarchic):
    shown = anarchic("theory", "--staleness", 4, "--rounds", 40_000)
    assert shown.exit_code == 0, shown.output
    for words in (
        "Theorem 2: AFA-CD, arrivals of any kind. 3 of 3 conditions hold.",
        "Theorem 4: AFA-CS",
        "180 eta_L^2 K^2 L^2 max(tau, 1) < 1",
        "eta = 5, eta_L = 0.005",
        "allowed from T = 18,001 on",
        "of which 6 never vanishes",
    ):
        assert words in shown.output
    assert "bound (void)" in anarchic("theory", "--local-lr", 1).output
    # 2 * 1e-20 of 1, which is not 0
    tiny = anarchic("theory", "--server-lr", 1e-10, "--local-lr", 1e-10).output
    assert " ".join(("holds", "2e-20", "1", "2e-20")) in " ".join(tiny.split())


def test_corrected_conditions_are_marked_and_disagreement_is_said(anarchic):
    # tau = 4, eta eta_L = 0.03: 0.03 + 2 * 16 * 0.0009 = 0.0588 > 1/20, as printed 0.0444
    options = ("--staleness", 4, "--server-lr", 30, "--local-lr", 0.001)
    shown = anarchic("theory", *options).output
    assert "2 L^2 eta^2 eta_L^2 tau^2 <= 1/(2M) (corrected)" in shown
    assert "L eta eta_L + L^2 eta^2 eta_L^2 tau^2 <= 1/(2M), that condition holds" in shown
    assert "value 0.0444" in shown
    step = json.loads(anarchic("theory", *options, "--json").output)["verdicts"][1]["conditions"][2]
    assert (step["holds"], step["printed"]["holds"], step["disputed"]) == (False, True, True)
    assert "As the paper prints it" not in anarchic("theory", "--local-lr", 1e-4).output


def test_help_names_symbols_equations_and_defaults(anarchic):
    shown = " ".join(anarchic("theory", "--help").output.replace("│", " ").split())
    for words in (
        *("L of Assumption 1", "sigma_L of Assumption 3", "sigma_G of Assumption 3", "f_0 - f_*"),
        *("tau of Theorems 2 and 3", "tau of Theorem 4", "m' of Theorem 4", "default: 10,000"),
    ):
        assert words in shown


def test_json_has_every_number(anarchic):
    shown = anarchic("theory", "--smoothness", 2, "--sigma-global", 0, "--row-age", 7, "--json")
    found = json.loads(shown.output)
    assert found["problem"] == {
        "smoothness": 2,
        "sigma_local": 1,
        "sigma_global": 0,
        "gap": 1,
    }
    assert found["memory"]["row_age"] == 7
    assert [verdict["theorem"] for verdict in found["verdicts"]] == [2, 3, 4]
    assert {c["name"] for c in found["verdicts"][0]["conditions"]} == {"drift", "gradient", "step"}


def test_impossible_numbers_are_refused(refused):
    assert "smoothness" in refused(2, "theory", "--smoothness", 0)
    assert "m=0" in refused(2, "theory", "--m", 0)
    assert "smoothness=1e+200" in refused(2, "theory", "--smoothness", 1e200)


def test_a_silent_worker_is_reported_without_infinities(anarchic, tmp_path):
    pytest.importorskip("torch")
    probabilities = "0.25,0.25,0.25,0.25,0,0,0,0,0,0"
    run = tmp_path / "run"
    options = ("--rule", "afa-cs", "--m", 2, "--arrival-probs", probabilities, "--rounds", 20)
    assert anarchic("simulate", *options, "--batch", 8, "--out", run).exit_code == 0
    shown = anarchic("theory", "--run", run, "--points", 1, "--repeats", 2).output
    for words in ("none: the delay is unbounded", "allowed never", "first model"):
        assert words in shown
    assert "first to last model" not in shown
    assert "first model, estimated" in shown


def test_more_updates_per_step_than_workers_leave_theorem_3_out(anarchic):
    shown = anarchic("theory", "--workers", 10, "--m", 20).output
    assert "Theorem 2:" in shown
    assert "Theorem 3:" not in shown
    assert "Warning: Theorem 3 is left out: a round draws m different workers" in shown


def test_a_run_is_reported_with_warnings(anarchic, refused, tmp_path):
    pytest.importorskip("torch")
    probabilities = "0.19,0.19,0.1,0.1,0.1,0.1,0.1,0.1,0.01,0.01"
    run = tmp_path / "run"
    options = ("--labels-per-worker", 1, "--arrival-probs", probabilities, "--rounds", 60)
    assert anarchic("simulate", *options, "--batch", 8, "--out", run).exit_code == 0
    shown = anarchic("theory", "--run", run, "--points", 2, "--repeats", 2)
    assert shown.exit_code == 0, shown.output
    assert "afa-cd in" in shown.output
    assert "5 in 100.0 % of updates" in shown.output
    assert "0 silent: biased" in shown.output
    assert "Theorem 2" in shown.output
    assert "Warning: Biased arrivals" in shown.output
    assert "Use AFA-CS" in shown.output
    tried = anarchic("theory", "--run", run, "--local-lr", 1e-5, "--repeats", 2, "--json")
    assert json.loads(tried.output)["verdicts"][0]["holds"] is True
    assert "leave out m," in refused(2, "theory", "--run", run, "--m", 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 1e20])
def test_a_damaged_model_is_told_in_a_sentence(anarchic, refused, recwarn, tmp_path, value):
    run = tmp_path / "run"
    assert anarchic("simulate", "--rounds", 5, "--batch", 8, "--out", run).exit_code == 0
    layout, params, _ = wire.load_model(run / "model.safetensors")
    params[100:110] = value
    wire.save_model(run / "model.safetensors", layout, params)
    recwarn.clear()
    told = refused(1, "theory", "--run", run, "--points", 2, "--repeats", 2)
    assert "The gradients at model 2 of 2 are not finite, or too large" in " ".join(told.split())
    first = anarchic("theory", "--run", run, "--points", 1, "--repeats", 2)
    assert first.exit_code == 0, first.output
    assert not recwarn.list


def test_many_values_of_local_steps_are_shown_by_quartiles(anarchic, tmp_path):
    pytest.importorskip("torch")
    run = tmp_path / "run"
    options = ("--dynamic-steps", "--local-steps", 20, "--rounds", 40, "--batch", 8)
    assert anarchic("simulate", *options, "--out", run).exit_code == 0
    shown = anarchic("theory", "--run", run, "--points", 1, "--repeats", 2).output
    line = next(line for line in shown.splitlines() if "distribution of K" in line)
    assert "least 1, quartiles " in line
    assert "largest 40" in line


def test_a_directory_without_a_run_is_refused(refused, tmp_path):
    assert "no settings.json" in refused(1, "theory", "--run", tmp_path)
