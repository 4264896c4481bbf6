"""``anarchic speedup`` on real runs."""

import re

import pytest


@pytest.fixture
def runs(anarchic, tmp_path):
    def made(sizes=(2, 4, 8), seeds=(0,), rounds=120):
        places = []
        for m in sizes:
            for seed in seeds:
                places.append(tmp_path / f"m{m}s{seed}")
                asked = ("--m", m, "--seed", seed, "--rounds", rounds, "--workers", 16)
                anarchic("simulate", *asked, "--local-lr", "0.02", "--out", places[-1])
        return places

    return made


def test_a_larger_step_needs_fewer_rounds(anarchic, tmp_path):
    # With the step of the server doubled in place of m, half the rounds lead to a given loss.
    places = []
    for rate in ("1", "2", "4"):
        places.append(tmp_path / rate)
        asked = ("--server-lr", rate, "--rounds", "200", "--local-lr", "0.005")
        anarchic("simulate", *asked, "--out", places[-1])
    told = anarchic("speedup", *places, "--over", "server_lr", "--to", "loss=1.5").output
    value = float(re.search(r"server_lr: (-\d\.\d+)", told)[1])
    assert value == pytest.approx(-1, abs=0.1)


@pytest.mark.slow
def test_repeats_give_an_interval_and_a_picture(anarchic, runs, tmp_path):
    picture = tmp_path / "speedup.svg"
    told = anarchic("speedup", *runs((2, 8), (0, 1)), "--to", "accuracy=0.5", "--out", picture)
    assert re.search(r"Exponent of round in m: -?\d\.\d+ \[-?\d\.\d+, -?\d\.\d+\]", told.output)
    assert picture.read_text().startswith("<?xml")
    assert "geometric mean" in told.output


def test_one_run_of_each_size_has_no_interval_and_it_says_so(anarchic, runs):
    told = anarchic("speedup", *runs((2, 8)), "--to", "accuracy=0.5").output
    assert "(no interval: that takes two runs or more of each size)" in told
    assert "geometric" not in told


def test_evaluations_that_are_far_apart_are_a_warning(anarchic, tmp_path):
    for m in (2, 8):
        anarchic(
            "simulate", "--m", m, "--rounds", 60, "--eval-every", 20, "--out", tmp_path / f"{m}"
        )
    told = " ".join(
        anarchic("speedup", tmp_path / "2", tmp_path / "8", "--to", "loss=1").output.split()
    )
    assert "Warning: around the target, evaluations are up to" in told


def test_a_sweep_is_a_set_of_runs(anarchic, tmp_path):
    asked = ("--m", "2,8", "--seed", "0-1", "--rounds", 60)
    anarchic("sweep", *asked, "--out", tmp_path / "sweep")
    told = anarchic("speedup", tmp_path / "sweep", "--over", "m", "--to", "accuracy=0.5").output
    assert re.search(r"Exponent of round in m: -?\d\.\d+ \[-?\d\.\d+, -?\d\.\d+\]", told)


def test_a_place_that_is_not_there(refused, tmp_path):
    told = refused(1, "speedup", tmp_path / "none", "--to", "loss=1")
    assert told.endswith("none does not exist: it is not the directory of a run.")


@pytest.mark.slow
def test_a_size_that_never_reaches_the_target_is_named(anarchic, runs):
    places = [*runs((2, 4, 8)), *runs((3,), rounds=1)]
    told = anarchic("speedup", *places, "--to", "accuracy=0.7").output
    assert "Never reached accuracy=0.7: m3s0" in told


def test_what_cannot_be_fitted_is_refused(refused, runs):
    places = runs((2, 4), rounds=2)
    assert "METRIC=VALUE" in refused(2, "speedup", *places, "--to", "accuracy")
    assert "'rule'" in refused(2, "speedup", *places, "--over", "rule")
    assert "None of the runs" in refused(2, "speedup", *places, "--to", "accuracy=1.5")


def test_runs_that_differ_in_more_than_the_seed_are_no_repeats(anarchic, refused, runs, tmp_path):
    anarchic("simulate", "--m", 4, "--rounds", 30, "--workers", 16, "--out", tmp_path / "other")
    places = [*runs((2, 4), rounds=30), tmp_path / "other"]
    told = refused(2, "speedup", *places, "--to", "accuracy=0.2")
    assert "m4s0, other have m = 4 and differ in local_lr too" in told


def test_settings_that_change_with_the_size_are_named(anarchic, runs, tmp_path):
    anarchic("simulate", "--m", 8, "--rounds", 30, "--workers", 16, "--out", tmp_path / "other")
    told = anarchic("speedup", *runs((2,), rounds=30), tmp_path / "other", "--to", "loss=2")
    assert "Warning: the sizes differ in local_lr too." in told.output


def test_it_says_how_near_runs_came_that_never_reached_the_target(refused, runs):
    told = refused(2, "speedup", *runs((2, 4), rounds=2), "--to", "loss=0.01")
    assert "None of the runs reached loss=0.01; the best loss was " in told
