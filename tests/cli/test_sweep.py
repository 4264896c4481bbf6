from __future__ import annotations

import csv

import pytest

SMALL = ("--rounds", 6, "--batch", 8, "--local-steps", 2, "--eval-every", 3)


def test_a_sweep_is_planned_run_and_gone_on_with(anarchic, tmp_path):
    out = tmp_path / "s"
    words = ("sweep", "--rule", "afa-cd,fedavg", "--seed", "0-1", *SMALL, "--out", out)
    planned = anarchic(*words, "--max-staleness", "0,2", "--dry-run")
    assert "4 cells x 2 seeds = 8 runs; 6 missing: about" in planned.output
    assert "by a trial of 10 rounds" in planned.output
    assert not out.exists()
    shown = anarchic(*words)
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()[2:4]]
    assert [row[:2] for row in rows] == [["afa-cd", "2"], ["fedavg", "2"]]
    before = (out / "results.jsonl").read_bytes()
    again = anarchic("sweep", "--out", out)
    assert again.stdout == shown.stdout
    assert (out / "results.jsonl").read_bytes() == before
    assert "0 missing: about 0 s" in anarchic(*words, "--dry-run").output


def test_switches_are_varied_by_name(anarchic, tmp_path):
    shown = anarchic("sweep", "--vary", "dynamic-steps=true,false", "--vary", "server-lr=0.5,1",
                     *SMALL, "--dry-run", "--out", tmp_path)  # fmt: skip
    assert "4 cells x 1 seeds" in shown.output
    assert "dynamic_steps=False+server_lr=1" in shown.output


def test_failed_and_diverged_runs_are_told_with_their_reason(anarchic, tmp_path):
    shown = anarchic("sweep", "--rule", "afa-cd,fedavg", "--max-staleness", 2, "--local-lr",
                     "0.1,1e30", *SMALL, "--out", tmp_path)  # fmt: skip
    assert shown.exit_code == 0
    assert "rule=fedavg+local_lr=0.1: 1 failed: The rule fedavg is synchronous" in shown.stderr
    assert "rule=afa-cd+local_lr=1e+30: 1 diverged: Training diverged" in shown.stderr


@pytest.mark.parametrize(
    "lost",
    [
        ("--local-lr", 1e30),
        ("--participation", "exponential", "--availability", "no_such_file.csv"),
    ],
)
def test_a_sweep_without_any_result_is_a_failure(anarchic, tmp_path, lost):
    for _ in range(2):
        shown = anarchic("sweep", *lost, *SMALL, "--out", tmp_path)
        assert shown.exit_code == 1
        assert "No run of the sweep has a result" in shown.stderr


def test_a_sweep_without_anything_to_vary_is_refused(refused, tmp_path):
    assert "holds no sweep: say what is to be varied" in refused(2, "sweep", "--out", tmp_path)


def test_a_changed_definition_is_refused(anarchic, refused, tmp_path):
    anarchic("sweep", "--rule", "afa-cd,fedbuff", *SMALL, "--out", tmp_path)
    told = refused(1, "sweep", "--rule", "afa-cd", *SMALL, "--out", tmp_path)
    assert "holds another sweep: rule is ['afa-cd', 'fedbuff'] there and afa-cd here" in told


@pytest.fixture
def swept(anarchic, tmp_path):
    out = tmp_path / "s"
    words = ("--rule", "afa-cd,fedbuff,mifa", "--seed", "0-3", "--server-lr", "0.5,1")
    assert anarchic("sweep", *words, *SMALL, "--out", out).exit_code == 0
    return out


def test_groups_of_a_sweep_are_compared_drawn_and_written(anarchic, swept, tmp_path):
    pytest.importorskip("matplotlib")
    figure, tex, table = (tmp_path / name for name in ("fig.pdf", "table.tex", "table.csv"))
    shown = anarchic("compare", swept, "--group-by", "rule", "--band", "se", "--against", "updates",
                     "--target", 0.3, "--out", figure, "--latex", tex, "--csv", table)  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert "the best at the end was taken" in shown.output
    assert figure.read_bytes().startswith(b"%PDF")
    assert r"\toprule" in tex.read_text()
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["group"] for row in rows] == ["afa-cd", "fedbuff", "mifa"]
    assert [row["runs"] for row in rows] == ["4"] * 3
    plain = anarchic("compare", swept).output
    assert (
        sum(line.startswith(("afa-cd, ", "fedbuff, ", "mifa, ")) for line in plain.splitlines())
        == 6
    )


def test_a_test_says_what_can_be_said(anarchic, refused, swept):
    pytest.importorskip("scipy")
    shown = anarchic(
        "compare", swept, "--group-by", "rule", "--test", "afa-cd", "all", "--margin", 0.5
    )
    said = [line for line in shown.output.splitlines() if line.startswith("final accuracy of")]
    assert len(said) == 2
    assert all("4 common seeds" in line and "corrected for 2 comparisons" in line for line in said)
    assert all("differ by less than 0.5 is shown" in line for line in said)
    cautious = "the best of several settings was taken, by these same runs"
    assert f"Of afa-cd, fedbuff, mifa {cautious}" in shown.output
    pair = ("--test", "afa-cd, server_lr=1", "fedbuff, server_lr=1")
    named = anarchic("compare", swept, "--group-by", "rule,server_lr", *pair)
    assert named.exit_code == 0
    assert cautious not in named.output
    told = refused(2, "compare", swept, "--group-by", "rule", "--test", "afa-cd", "fedbuf")
    assert "There is no group 'fedbuf'. Did you mean 'fedbuff'?" in told


def test_what_differs_besides_is_told_or_refused(anarchic, refused, swept, tmp_path):
    pytest.importorskip("scipy")
    other = tmp_path / "other"
    anarchic("sweep", "--rule", "fednova", "--data", "synthetic", "--seed", "0-3", *SMALL,
             "--out", other)  # fmt: skip
    shown = anarchic("compare", swept, other, "--group-by", "rule")
    assert "Warning: the runs differ in data too." in shown.output
    words = ("--group-by", "rule", "--test", "afa-cd", "fednova")
    told = refused(2, "compare", swept, other, *words)
    assert "afa-cd and fednova differ in data too" in told
    told = refused(2, "compare", swept, "--group-by", "rule", "--margin", 0.1)
    assert "--margin says how --test compares: add --test A B" in told
    told = refused(2, "compare", swept, "--group-by", "rule", "--lost-as", 0)
    assert "--lost-as says how --test compares" in told


def test_groups_with_different_seeds_are_told(anarchic, swept):
    assert "common to all groups" not in anarchic("compare", swept).output
    lines = (swept / "results.jsonl").read_text().splitlines(keepends=True)
    cut = [line for line in lines if '"rule=mifa' not in line or '"seed": 0' in line]
    assert len(cut) == len(lines) - 6
    (swept / "results.jsonl").write_text("".join(cut))  # as if it had been stopped
    shown = anarchic("compare", swept, "--group-by", "rule")
    told = "1 of the seeds are common to all groups, but afa-cd has 4, fedbuff has 4"
    assert f"Warning: {told}: compare means over equal seeds." in shown.output


def test_runs_and_sweeps_are_told_apart(anarchic, refused, swept, tmp_path):
    run = tmp_path / "run"
    anarchic("simulate", *SMALL, "--out", run)
    assert "Runs and sweeps are compared apart" in refused(2, "compare", run, swept)
    assert "--group-by is for sweeps" in refused(2, "compare", run, "--group-by", "rule")
    for option, value in (("--against", "updates"), ("--measure", "best"), ("--target", "1")):
        assert f"{option} is for sweeps" in refused(2, "compare", run, option, value)
    assert "no metric 'los'. Did you mean 'loss'" in refused(2, "compare", swept, "--metric", "los")
    assert "no axis 'hours'" in refused(2, "compare", swept, "--against", "hours")
    assert "no band 'wide'" in refused(2, "compare", swept, "--band", "wide")
    assert "no setting 'ruel'" in refused(2, "compare", swept, "--group-by", "ruel")
