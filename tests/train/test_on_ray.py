"""The Ray backend on a real cluster of two nodes, one of which is killed.

Every node is a raylet with processes of its own on this machine; what lies on a killed one is lost.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic import Compute, Settings, build, simulate
from anarchic.errors import ConfigError, RunError
from anarchic.kernels.chunks import threads_in_use
from anarchic.train import on_ray
from anarchic.train.backends import Batched
from anarchic.train.compute import computing
from anarchic.train.on_ray import OnRay, split_evenly
from anarchic.train.parcel import packed
from anarchic.train.task import LocalWork
from tests.train.conftest import make_task
from tests.train.test_backends import difference, lanes, walked

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "worker_niceness": 0,  # Ray's own is 15: behind everything else on a busy machine
}

stateful = Settings(
    model="mlp",
    local_rule="scaffold",
    max_staleness=4,
    dynamic_steps=True,
    dtype="float64",
    batch=8,
    rounds=16,
)
ON_RAY = Compute(backend="ray")
long = replace(stateful, local_steps=100, rounds=5)  # a round is a good part of a second


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'anarchic[ray]'")
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False, "_system_config": QUICK}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", cluster.address)
        try:
            cluster.add_node(**NODE)
            cluster.wait_for_nodes()
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
            on_ray.shared.cache_clear()


@pytest.fixture(scope="module")
def backend(cluster):
    """Its actors, a second or more to start each, serve all tests."""
    return on_ray.shared()


def test_an_actor_computes_on_one_thread(monkeypatch):
    torch = pytest.importorskip("torch")

    def threads():
        return torch.get_num_threads(), threads_in_use()

    seen = []
    monkeypatch.setattr(Batched, "compute", lambda *_: seen.append(threads()))
    task, actor = make_task("logistic"), on_ray._Actor()
    actor.hold(packed(task))
    with computing(2):
        actor.visits(lanes(task, [1, 2], LocalWork(batch=4)))
        assert threads() == (2, 2)
    assert seen == [(1, 1)]


def kill_a_node(cluster):
    """As a power cut would: the raylet and the actors under it, at once."""
    node = next(iter(cluster.worker_nodes))
    raylet = node.all_processes["raylet"][0].process.pid
    for child in Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def killing(cluster, at):
    """Kill a node while the round after ``at`` is being computed."""

    def watch(progress):
        if progress.round == at:
            threading.Timer(0.05, kill_a_node, [cluster]).start()

    return watch


def wait_for_two(backend):
    """Compute a little, again and again, until two actors take part."""
    deadline, little = time.monotonic() + 60, replace(stateful, rounds=2)
    while True:
        simulate(little, compute=ON_RAY)
        if len(backend._pool.idle) == 2:
            return
        assert time.monotonic() < deadline, "nobody works on the second node"
        backend._pool._started_at = -np.inf  # no need to sit the seconds out


@pytest.mark.slow
@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_parameters_equal_the_batched_ones_to_rounding(backend, model):
    settings = replace(stateful, model=model)
    batched = simulate(settings).params
    on_two = simulate(settings, compute=ON_RAY).params
    assert build(settings, ON_RAY).backend is backend
    assert difference(on_two, batched) < 1e-12
    assert (batched != build(settings).task.init()).any()


@pytest.mark.slow
def test_buffers_of_workers_and_dropout_are_the_batched_ones(backend):
    import torch
    from torch import nn

    from anarchic import AfaCd, Experiment, Sampler, TorchTask, UniformSteps
    from anarchic.data import iid, load

    data = load("digits")
    torch.manual_seed(0)
    layers = [nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 10)]
    module = nn.Sequential(nn.Flatten(), *layers)
    parts = iid(data.y_train, 4, 0)
    task = TorchTask(module, data, parts, dtype="float64", buffers="local")
    table = Sampler(4, 2, UniformSteps(1, 3), max_staleness=2).timetable(3, 6)
    found = [
        simulate(Experiment(task, AfaCd(2), table, LocalWork(batch=4), backend=each)).params
        for each in (backend, Batched())
    ]
    assert difference(*found) < 1e-12


@pytest.mark.slow
def test_workers_may_differ_and_a_call_may_have_few_lanes(backend):
    from anarchic import Momentum, Prox, Scaffold, Sgd

    rules = [Sgd(), Prox(0.5), Momentum(0.5), Scaffold(), Sgd()]
    work = [
        LocalWork(rule, 0.05, batch) for rule, batch in zip(rules, (4, 4, 8, 4, 2), strict=True)
    ]
    task = make_task("quadratic")
    backend.lanes_per_call = 1
    try:
        assert difference(walked(task, work, 5, backend), walked(task, work, 5, Batched())) < 1e-12
    finally:
        backend.lanes_per_call = None


@pytest.mark.slow
def test_a_run_resumes_from_its_checkpoint(backend, tmp_path):
    settings = replace(stateful, model="logistic", rounds=6)

    def stop(progress):
        if progress.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(settings, compute=ON_RAY, out=tmp_path / "run", checkpoint_every=3, watch=stop)
    resumed = simulate(out=tmp_path / "run", resume=True).params
    assert difference(resumed, simulate(settings).params) < 1e-12


@pytest.mark.slow
def test_versions_leave_the_object_store_when_the_engine_drops_them(backend):
    task = make_task("logistic")
    walked(task, LocalWork(batch=4), 10, backend)
    assert len(backend._placed) == 0


@pytest.mark.slow
def test_a_run_survives_a_killed_node_and_uses_it_when_it_is_back(cluster, backend):
    wait_for_two(backend)
    backend._pool.loss = None
    disturbed = simulate(long, compute=ON_RAY, watch=killing(cluster, at=2)).params
    assert "died" in str(backend._pool.loss) or "unavailable" in str(backend._pool.loss)
    assert difference(disturbed, simulate(long).params) < 1e-12

    cluster.add_node(**NODE)
    wait_for_two(backend)


@pytest.mark.slow
def test_it_is_the_retry_that_saves_the_run(cluster, backend, monkeypatch):
    wait_for_two(backend)
    monkeypatch.setattr(on_ray, "RETRIES", 0)
    with pytest.raises(RunError, match=r"visits were lost 1 times .*lanes_per_call"):
        simulate(long, compute=ON_RAY, watch=killing(cluster, at=2))


@pytest.mark.slow
def test_a_cluster_without_a_free_core_is_an_error_in_time(cluster, backend):
    # The node that is left has one core, and an actor of the shared backend is on it.
    task = make_task("logistic")
    late = OnRay(patience_s=0.5)
    with pytest.raises(RunError, match=r"No Ray actor was ready within 0\.5 s; .* 0 are free"):
        late.compute(task, lanes(task, [1, 2], LocalWork(batch=4)))


class Deadly:
    """A task that kills whoever takes it up."""

    def __init__(self, task):
        self.layout = task.layout

    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
def test_lost_actors_are_replaced_until_retries_run_out(backend, monkeypatch):
    import ray

    task = make_task("quadratic")
    some = lanes(task, [1, 3, 2], LocalWork(batch=4))
    expected = Batched().compute(task, some).directions
    backend.compute(task, some)
    for actor in backend._pool.idle:
        ray.kill(actor)
    np.testing.assert_allclose(backend.compute(task, some).directions, expected, rtol=1e-12)

    monkeypatch.setattr(on_ray, "RETRIES", 0)
    with pytest.raises(RunError, match="No Ray actor stays alive, after 1 attempts: ActorDied"):
        backend.compute(Deadly(task), some)


def test_shares_have_about_equal_sums_of_local_steps():
    steps = np.array([7, 1, 5, 3, 3, 1])
    # 7 to one, 5 and 3 to the other, 3 to the first, then 1 and 1 to the second: ten each.
    assert [share.tolist() for share in split_evenly(steps, 2)] == [[0, 4], [1, 2, 3, 5]]
    assert len(split_evenly(steps, 10)) == 6  # no share is empty


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    on_ray.shared.cache_clear()
    with pytest.raises(ConfigError, match=r"needs Ray: pip install 'anarchic\[ray\]'"):
        simulate(Settings(rounds=1), compute=ON_RAY)


@pytest.mark.parametrize("wrong", [{"actors": 0}, {"lanes_per_call": 0}])
def test_numbers_below_one_are_refused(wrong):
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        OnRay(**wrong)
