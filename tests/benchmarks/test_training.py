"""Our own side of the race with tiny sizes, and what is made of its results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
from benchmarks.page import (
    BEGIN,
    END,
    PAGE,
    filled,
    kept,
    multiples,
    notes,
    section,
    table,
    times,
)
from benchmarks.peers import ours, plain
from benchmarks.peers.environments import last_line
from benchmarks.peers.torch_work import net, params_of, tensors
from benchmarks.record import Record
from benchmarks.training import CONTESTANTS, Found, Race, accuracy, over
from benchmarks.workloads import W1, WORKLOADS, Clock, Held

SMALL = replace(W1, workers=4, m=2, steps=2, batch=8, rounds=3)


@pytest.fixture
def dealt() -> Held:
    """Images whose first pixels say which class they are of."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 10
    x = rng.normal(size=(80, 784)).astype(np.float32) * 0.01
    x[np.arange(80), y] += 3.0
    start = {"weight": np.zeros((10, 784), np.float32), "bias": np.zeros(10, np.float32)}
    return Held(x, y, np.array([20, 40, 60, 80]), x, y, np.array(10), start)


@pytest.mark.slow
def test_ours_and_the_plain_loop_both_learn(dealt: Held) -> None:
    workload = replace(SMALL, rounds=60)
    clock, task = Clock(), ours.task_of(workload, dealt, compiled=False)
    found = task.layout.split(ours.train(workload, task, clock))
    assert len(clock.moments) == 61  # one before, one after every round
    assert clock.made < clock.moments[0]
    module = net(workload, dealt.start)
    plain.rounds(module, tensors(dealt.parts()), workload, Clock())
    assert accuracy(workload, dealt, dealt.start) == pytest.approx(0.1)
    assert accuracy(workload, dealt, found) > 0.9
    assert accuracy(workload, dealt, params_of(module)) > 0.9


def test_the_first_tenth_of_the_rounds_can_be_left_out() -> None:
    clock = Clock()
    clock.moments = [0.0, 5.0, *range(6, 15)]  # the first of ten rounds took five seconds
    assert clock.seconds == 14.0
    assert clock.warm_share == (9.0, 0.9)


def race(rates: dict[str, list[float]]) -> Race:
    made = Race.__new__(Race)
    made.workload, made.record = replace(W1, name="W2"), Record("w2", "W2")
    made.found = {
        contestant: Found(rates[contestant.name], rates[contestant.name], [0.9] * 3, [0.5] * 3)
        for contestant in CONTESTANTS
        if contestant.name in rates
    }
    return made


def test_the_best_setting_of_the_fastest_peer_is_the_measure() -> None:
    one = race(
        {
            "anarchic": [900.0, 1000.0, 1100.0],
            "anarchic, without Numba": [500.0] * 3,
            "plain loop, 1 thread": [100.0] * 3,
            "plain loop, 2 threads": [80.0] * 3,
            "pfl-research, 1 process": [90.0] * 3,
            "pfl-research, 2 processes": [125.0] * 3,
            "FedJAX": [50.0] * 3,
        }
    )
    one.note()
    assert {r.name: r.value for r in one.record.ratios} == {
        "anarchic / FedJAX": 20.0,
        "anarchic / pfl-research": 8.0,
        "anarchic / plain loop": 10.0,
        "anarchic / fastest peer, both warm": 8.0,
    }
    assert one.record.met  # 8 times, where 5 are asked for
    assert multiples(one.record) == {
        "anarchic": 10.0, "plain loop": 1.0, "pfl-research": 1.25, "FedJAX": 0.5
    }  # fmt: skip
    shown = table(one.record)
    assert "| pfl-research, 2 processes | 125 | 125 to 125 | 125 | 0.5 | 90.0% | 8.0 |" in shown
    assert "- anarchic / fastest peer, both warm: 8." in notes(one.record)


def test_without_peers_the_bound_is_missed() -> None:
    alone = race({"anarchic": [1000.0] * 3})
    alone.note()
    assert not alone.record.met
    assert over(1000.0, None) is None


def test_runs_that_failed_or_did_not_learn_are_counted_apart() -> None:
    one = race({"anarchic": [1000.0] * 3, "FedJAX": [], "FLSim, 1 thread": [10.0] * 2})
    found = {contestant.who: found for contestant, found in one.found.items()}
    found["FedJAX"].void = ["void: 10%"]
    found["FLSim"].failed, found["FLSim"].void = ["Signal 6", "Signal 11"], ["void: 12%"]
    one.note()
    assert one.record.absent == {
        "FedJAX": "void: 10%",
        "FLSim, 1 thread: 2 of 5 runs": "Signal 11",
        "FLSim, 1 thread: 1 of 5 runs": "void: 12%",
    }
    assert one.record.met  # 100 times FLSim


def test_who_fails_is_tried_again_and_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked = race({"FedJAX": []}), []
    one.rounds = 1
    ((peer, found),) = one.found.items()

    def fail(*_: object) -> str:
        asked.append(1)
        return "Signal 6"

    monkeypatch.setattr("benchmarks.training.started", fail)
    for _ in range(3):
        one.turn(peer, found)
    assert len(asked) == 2
    found.rates.append(10.0)  # a good run before: it may fail as often as it likes
    one.turn(peer, found)
    assert len(asked) == 4
    found.missing = "not installed"
    one.turn(peer, found)
    assert len(asked) == 4


def test_every_workload_has_ours_the_plain_loop_and_every_peer() -> None:
    for name in WORKLOADS:
        whos = {contestant.who for contestant in CONTESTANTS if name in contestant.on}
        assert whos == {contestant.who for contestant in CONTESTANTS}


def test_only_what_is_between_the_markers_is_written() -> None:
    assert filled(f"before\n{BEGIN}\nold\n{END}\nafter", "new") == (
        f"before\n{BEGIN}\n\nnew\n{END}\nafter"
    )
    with pytest.raises(SystemExit, match="markers"):
        filled("before\nafter", "new")


def test_the_last_line_of_an_error() -> None:
    assert last_line("Traceback\n  at line 3\nImportError: no x\n\n") == "ImportError: no x"
    assert last_line("RuntimeError: port taken\n=====\nexitcode : 1\n=====") == (
        "RuntimeError: port taken"
    )
    assert last_line("x FAILED\ntraceback : Signal 6 (SIGABRT)\n=====\n") == "Signal 6 (SIGABRT)"
    assert last_line("-----\n") == "it said nothing"


def test_times_near_one_have_two_digits() -> None:
    assert [times(ratio) for ratio in (0.972, 1.04, 11.04)] == ["0.97", "1.04", "11.0"]


def test_the_page_shows_the_kept_results() -> None:
    assert section(kept()) in PAGE.read_text(encoding="utf-8")
