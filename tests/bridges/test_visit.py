"""A visit around any training, in NumPy, at a real server."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import httpx
import numpy as np
import pytest

from anarchic import Layout
from anarchic.bridges.visit import Visit, check_fit, write_first_model
from anarchic.errors import ConfigError, Diverged, WorkerError
from anarchic.worker import Retry, Worker
from tests.bridges.serving import INIT, await_version, served
from tests.bridges.still import StillWorker
from tests.worker.faulty import Scripted, TestClock, ids

START = {"bias": np.zeros(1, np.float32), "weight": np.array([1.0, 2.0], np.float32)}


class Model:
    """Two tensors that a training loop changes in place."""

    def __init__(self) -> None:
        self.tensors = {name: np.full_like(tensor, 7.0) for name, tensor in START.items()}

    def read(self):
        return self.tensors

    def write(self, tensors) -> None:
        for name, tensor in tensors.items():
            self.tensors[name][...] = tensor


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["afa-cd", "fedbuff"])
def test_the_server_moves_by_the_mean_displacement_under_any_rule(rule: str, tmp_path: Path):
    write_first_model(tmp_path / INIT, START)
    with served(tmp_path, "--m", "2", "--rule", rule) as server:
        for name, by in (("ann", 1.0), ("bob", 3.0)):
            model = Model()
            with Worker(f"http://127.0.0.1:{server.port}", name=name) as worker:
                with Visit(worker, model.read, model.write) as visit:
                    assert model.tensors["weight"].tolist() == [1.0, 2.0]
                    for _ in range(10):  # however many steps it takes
                        model.tensors["weight"] += by / 10
                    visit.samples, visit.loss = 5, by
                assert visit.version == 0
                assert visit.answer.status == "accepted"
        with Worker(f"http://127.0.0.1:{server.port}") as watcher:
            assert _newest(watcher, 1).tolist() == pytest.approx([0.0, 3.0, 4.0])  # by 2


@pytest.mark.slow
def test_an_exception_or_a_model_that_is_not_finite_pushes_nothing(tmp_path: Path):
    write_first_model(tmp_path / INIT, START)
    with served(tmp_path, "--m", "1") as server:
        url, model = f"http://127.0.0.1:{server.port}", Model()
        with Worker(url, name="ann") as worker:
            with pytest.raises(KeyError), Visit(worker, model.read, model.write):
                model.tensors["weight"] += {}["missing"]
            with pytest.raises(Diverged, match="NaN"), Visit(worker, model.read, model.write):
                model.tensors["weight"] *= np.nan
            assert worker.pull().version == 0
            with Visit(worker, model.read, model.write, lr=0.5) as visit:
                model.tensors["weight"] += 4
                visit.steps = 4
            assert _newest(worker, 1).tolist() == [0.0, 2.0, 3.0]  # AFA-CD: a fourth of it


@pytest.mark.slow
def test_a_late_update_is_dropped_and_the_next_visit_goes_on(tmp_path: Path, caplog):
    write_first_model(tmp_path / INIT, START)
    with served(tmp_path, "--m", "1", "--max-staleness", "1") as server:
        url, model, other = f"http://127.0.0.1:{server.port}", Model(), Model()
        with Worker(url, name="ann") as ann, Worker(url, name="bob") as bob:
            with Visit(ann, model.read, model.write) as late:
                model.tensors["bias"] += 1
                for version in (1, 2):
                    with Visit(bob, other.read, other.write):
                        other.tensors["bias"] += 1
                    _newest(bob, version)
            assert late.answer is None
            with Visit(ann, model.read, model.write) as again:
                model.tensors["bias"] += 1
            assert again.answer.status == "accepted"
            with caplog.at_level(logging.WARNING), Visit(ann, model.read, model.write) as idle:
                pass
    assert idle.answer is None
    assert "nothing_changed" in {json.loads(line)["event"] for line in caplog.messages}


@pytest.mark.slow
def test_buffers_are_averaged_at_the_end_of_visits(tmp_path: Path):
    write_first_model(tmp_path / INIT, START, buffers=["bias"])
    with served(tmp_path, "--m", "2") as server:
        url = f"http://127.0.0.1:{server.port}"
        for name, bias in (("ann", 4.0), ("bob", 6.0)):
            model = Model()
            with Worker(url, name=name) as worker, Visit(worker, model.read, model.write):
                model.tensors["weight"] += 1
                model.tensors["bias"][:] = bias
        with Worker(url) as watcher:
            assert _newest(watcher, 1).tolist() == [5.0, 2.0, 3.0]
            assert watcher.layout.buffers == ("bias",)


def test_a_model_that_does_not_fit_is_refused_by_name() -> None:
    layout = Layout.of({"weight": ((2,), "F32"), "scale": ((1,), "F32")})
    with pytest.raises(ConfigError, match=r"scale \(none here, \[1\] there\), weight \(\[3\] here"):
        check_fit(layout, {"weight": np.zeros(3)})
    with pytest.raises(ConfigError, match="lr=0"):
        Visit(None, dict, lambda tensors: None, lr=0.0)


def small(worker: Worker) -> tuple[Visit, np.ndarray]:
    """A visit at a scripted server, and the vector that it trains."""
    x = np.zeros(2, np.float32)
    return Visit(worker, lambda: {"x": x}, lambda new: np.copyto(x, new["x"])), x


def test_a_visit_outlasts_any_absence_of_the_server(caplog) -> None:
    server = Scripted()
    server.pull_faults = [httpx.Response(503) for _ in range(20)]
    server.faults = ["refused connection"] * 20
    visit, x = small(server.worker())
    with caplog.at_level(logging.WARNING), visit:
        x += 1
    assert visit.answer.status == "accepted"
    assert len(set(ids(server.posts))) == 1
    assert [json.loads(line)["event"] for line in caplog.messages] == ["retry"] * 40


def test_a_visit_gives_up_where_its_connection_says_so_in_one_sentence() -> None:
    server = Scripted()
    server.faults = ["refused connection"] * 3
    visit, x = small(server.worker(retry=Retry(tries=3)))
    with pytest.raises(WorkerError, match="failed 3 times") as caught, visit:
        x += 1
    assert caught.value.__context__ is None
    assert len(server.posts) == 3
    visit, x = small(server.worker(retry=Retry()))
    server.faults = ["refused connection"] * 8
    with pytest.raises(WorkerError, match="failed 8 times"), visit:
        x += 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_visit_ends_at_once_where_no_waiting_helps(status: int) -> None:
    server, clock = Scripted(), TestClock()
    server.faults = [(status, "forbidden")]
    visit, x = small(server.worker(clock=clock))
    with pytest.raises(WorkerError, match="Do otherwise") as caught, visit:
        x += 1
    assert clock.naps == []
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_ctrl_c_ends_a_visit_that_waits_and_the_spool_keeps_its_update(tmp_path: Path) -> None:
    server, clock = Scripted(), TestClock()

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.on_sleep = interrupt
    with server.worker(spool=tmp_path, clock=clock) as worker:
        for held in (1, 2):  # the second is stored though the first is not yet sent
            server.faults = ["refused connection"]
            visit, x = small(worker)
            with pytest.raises(KeyboardInterrupt) as caught, visit:
                x += 1
            assert caught.value.__context__ is None  # no tracebacks of httpx
            assert len(worker.spool.waiting()) == held
    with server.worker(spool=tmp_path) as again:
        assert again.send_spooled() == {"accepted": 2}


def test_a_visit_inside_a_visit_of_one_worker_is_refused() -> None:
    worker = StillWorker({"x": np.zeros(2)})
    with (
        pytest.raises(ConfigError, match="inside a visit already"),
        small(worker)[0],
        small(worker)[0],
    ):
        pass
    assert worker.pushed == []
    for _ in range(2):  # one after another, and after one that failed
        visit, x = small(worker)
        with visit:
            x += 1
    with pytest.raises(ConfigError, match="another model"), Visit(worker, dict, print):
        pass
    with small(worker)[0], small(StillWorker({"x": np.zeros(2)}))[0]:
        pass  # two workers
    assert len(worker.pushed) == 2


def test_a_name_that_a_visit_does_not_have_is_refused_with_the_nearest() -> None:
    visit, _ = small(StillWorker({"x": np.zeros(2)}))
    with pytest.raises(ConfigError, match=r"no 'sample' to set. Did you mean 'samples'"), visit:
        visit.sample = 32


def test_a_loss_that_is_not_finite_is_told_once(caplog) -> None:
    worker = StillWorker({"x": np.zeros(2)})
    with caplog.at_level(logging.WARNING):
        for loss in (float("nan"), float("inf")):
            visit, x = small(worker)
            with visit:
                x += 1
                visit.loss = loss
    assert [facts["loss"] for facts in worker.pushed] == [None, None]
    assert [json.loads(line)["event"] for line in caplog.messages] == ["loss_not_finite"]


def test_a_loss_that_is_no_number_costs_no_training(caplog) -> None:
    worker = StillWorker({"x": np.zeros(2)})
    with caplog.at_level(logging.WARNING):
        for loss in ("abc", np.zeros(3)):
            visit, x = small(worker)
            with visit:
                x += 1
                visit.loss = loss
    assert [facts["loss"] for facts in worker.pushed] == [None, None]
    told = [json.loads(line) for line in caplog.messages]
    assert [line["event"] for line in told] == ["loss_no_number"] * 2
    assert told[0]["loss"] == "'abc'"


@pytest.mark.parametrize("samples", [-5, "many", 2.5, float("nan"), None])
def test_samples_that_cannot_be_are_refused_by_name(samples) -> None:
    visit, _ = small(StillWorker({"x": np.zeros(2)}))
    with pytest.raises(ConfigError, match=r"visit.samples is the number of samples"), visit:
        visit.samples = samples


def _newest(worker: Worker, version: int) -> np.ndarray:
    await_version(worker, version)
    return worker.pull().params
