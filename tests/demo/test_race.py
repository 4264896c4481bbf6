"""What the demo says must follow from its numbers, and it replaces its own files only."""

from pathlib import Path

import pytest

from anarchic.demo import demo_directory
from anarchic.demo.race import FEDAVG, Entry, Race, race, sentences
from anarchic.errors import RunError
from anarchic.sim.run import Run


def entry(label, seconds):
    reached = None if seconds is None else {"virtual_s": seconds, "updates": 10}
    return Entry(label, FEDAVG, Run(None, [], {"final_accuracy": 0.9}), reached)


def told(*seconds):
    entries = [entry(*pair) for pair in zip(("FedAvg", "AFA-CD"), seconds, strict=True)]
    return " ".join(sentences(Race(entries, Path("demo.png"))))


def test_sooner_is_said_only_if_it_was_sooner():
    assert "AFA-CD took 25 s: 4.0 times sooner." in told(100.0, 25.0)
    assert "AFA-CD took 100 s: 2.0 times later." in told(50.0, 100.0)
    assert "sooner" not in told(50.0, 100.0)


def test_a_target_that_was_not_reached_is_reported():
    assert "AFA-CD did not reach 90 % accuracy" in told(50.0, None)
    assert "FedAvg did not reach" in told(None, 20.0)
    assert "AFA-CD reached 90 % accuracy after 20 s." in told(None, 20.0)
    assert "Nobody got there" in told(None, None)


@pytest.mark.slow
def test_all_rules_race_with_the_same_workers_for_the_same_time(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    from dataclasses import replace

    from anarchic.demo import race as module

    monkeypatch.setattr(module, "FEDAVG", replace(FEDAVG, rounds=8))
    done = race(tmp_path / "demo", seed=1)
    ends = [e.run.summary["virtual_s"] for e in done.entries]
    assert max(ends) < 1.1 * min(ends)
    assert [e.settings.server_lr for e in done.entries] == [1.0, 5.0, 5.0]
    same = replace(FEDAVG, rounds=8, seed=1)
    for one in done.entries:  # only the rule, its rate and the rounds that fit differ
        again = replace(one.settings, rule="fedavg", server_lr=1.0, rounds=8, until_s=None)
        assert again == same


def test_a_demo_replaces_its_own_files_and_no_others(tmp_path):
    out = tmp_path / "demo"
    demo_directory(out, ["run", "log-*"])
    for name in ("log-1", "log-2", "notes.txt"):
        (out / name).write_text("old")
    (out / "run").mkdir()
    (out / "run" / "model").write_text("old")
    demo_directory(out, ["run", "log-*"])
    assert sorted(path.name for path in out.iterdir()) == ["demo.json", "notes.txt"]


@pytest.mark.parametrize("what", ["file", "full"])
def test_other_directories_are_left_alone(tmp_path, what):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "run").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"not made by the demo: .* --out"):
        demo_directory(tmp_path / what, ["run"])
    assert (tmp_path / "full" / "run").read_text() == (tmp_path / "file").read_text() == "mine"
