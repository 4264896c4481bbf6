from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from anarchic.errors import RunError
from anarchic.kernels.chunks import threads_in_use, use_threads
from anarchic.sim.run import Run
from anarchic.study import Job
from anarchic.study.results import (
    FILE,
    accuracies,
    add_results,
    hardware,
    read_results,
    result_of,
    thin,
)
from tests.study.make import cell, measured, result


def run(accuracy_of, rounds):
    rows = [
        {"round": r, "virtual_s": None, "accuracy": accuracy_of(r), "loss": 1.0} for r in rounds
    ]
    return Run(np.zeros(1), rows, {})


def test_accuracy_at_the_end_by_several_measures():
    found = accuracies(run(lambda r: r / 100, range(101)))
    assert found["final"] == found["best"] == 1.0
    assert found["last10"] == pytest.approx(0.955)  # 0.91 .. 1.00
    assert found["last50"] == pytest.approx(0.755)  # 0.51 .. 1.00
    assert found["last50_spread"] == pytest.approx(np.sqrt((50**2 - 1) / 12) / 100)
    assert found["rounds"] == 100
    assert list(found["curve"]) == ["round", "accuracy", "loss"]  # there is no clock


def test_a_long_curve_is_thinned_but_keeps_its_ends():
    kept = thin({"round": list(range(10_001))})["round"]
    assert len(kept) <= 130
    assert kept[0] == 0
    assert kept[-10:] == list(range(9_991, 10_001))
    assert thin({"round": [0, 1, 2]}) == {"round": [0, 1, 2]}


def test_a_result_comes_back_from_the_file(tmp_path):
    job = Job(cell("p1"), seed=2)
    made = result_of(job, measured(job) | {"fast": np.float32(0.25)}, share_s=1.234)
    add_results(tmp_path / "new" / FILE, [made])
    assert read_results(tmp_path / "new" / FILE).by_key == {("t", "p1", 2): made}
    assert made.numbers == {"value": 0.54, "fast": 0.25}
    assert made.curve == {"round": [0, 1], "accuracy": [0, 0.5]}


def test_lines_are_sorted_by_task_cell_and_seed_and_unchanged_ones_keep_their_bytes(tmp_path):
    path = tmp_path / FILE
    add_results(path, [result(cell("b"), 10, value=1 / 3), result(cell("b"), 2, value=1.0)])
    before = path.read_text().splitlines()
    add_results(path, [result(cell("a", task="u"), 0, value=1.0), result(cell("a"), 0, value=1.0)])
    after = path.read_text().splitlines()
    assert list(read_results(path).by_key) == [
        ("t", "a", 0),
        ("t", "b", 2),
        ("t", "b", 10),
        ("u", "a", 0),
    ]
    assert after[1:3] == before
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_new_result_takes_the_place_of_the_older_one(tmp_path):
    path = tmp_path / FILE
    for value in (0.1, 0.2):
        add_results(path, [result(cell(), 0, value=value)])
    (found,) = read_results(path).of(cell())
    assert found.numbers == {"value": 0.2}


def test_results_are_read_by_seed_and_only_those_of_the_cell(tmp_path):
    path = tmp_path / FILE
    add_results(path, [result(cell(), seed, value=1.0) for seed in (10, 2)])
    add_results(path, [result(cell(base=0.9), 3, value=1.0)])
    found = read_results(path)
    assert [r.seed for r in found.of(cell())] == [2, 10]
    assert found.has(Job(cell(), 2))
    assert not found.has(Job(cell(), 3))  # other settings
    assert not found.has(Job(cell(), 4))


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / FILE
    add_results(path, [result(cell(), 0, value=1.0)])
    before = path.read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        add_results(path, [result(cell(), 1, value=2.0)])
    assert path.read_bytes() == before
    monkeypatch.undo()
    add_results(path, [result(cell(), 1, value=2.0)])
    assert [r.seed for r in read_results(path).of(cell())] == [0, 1]


def test_two_processes_do_not_lose_each_other_s_results(tmp_path):
    path = tmp_path / FILE
    with ThreadPoolExecutor(4) as pool:  # flock is held per open file, so threads stand for them
        for done in [
            pool.submit(add_results, path, [result(cell(), n, value=1.0)]) for n in range(24)
        ]:
            done.result()
    assert [r.seed for r in read_results(path).of(cell())] == list(range(24))


@pytest.mark.parametrize("line", ["{", "3", '{"task": "t"}', '{"unknown": 1}'])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / FILE
    add_results(path, [result(cell(), 0, value=1.0)])
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(RunError, match=r"Line 2 of .*results\.jsonl is not a result"):
        read_results(path)


@pytest.fixture
def three_threads():
    before = threads_in_use()
    use_threads(3)
    yield
    use_threads(before)


def test_the_threads_of_compiled_visits_count(three_threads):
    torch = pytest.importorskip("torch")
    found = hardware("cpu")
    assert found["most_threads"] == max(3, torch.get_num_threads())
    assert found["name"]
