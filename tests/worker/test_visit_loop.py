import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from anarchic import Adam, ClipNorm, Decay, Layout, Momentum, Prox, Scaffold
from anarchic.errors import ConfigError, Diverged, WorkerError
from anarchic.worker import (
    ConstantSteps,
    Every,
    FunctionTask,
    Retry,
    TimeBudget,
    UniformSteps,
    WorkPlan,
)
from tests.worker.faulty import LAYOUT, Scripted, TestClock, ids


def towards(target, samples=5):
    """Half the squared distance to a target."""
    goal = np.asarray(target, np.float32)
    return FunctionTask(LAYOUT, lambda x: (x - goal, float(((x - goal) ** 2).sum() / 2), samples))


TASK = towards([4.0, 8.0])


def pushes(caplog):
    ours = [record for record in caplog.records if record.name == "anarchic.worker"]
    lines = [json.loads(record.getMessage()) for record in ours]
    return [line for line in lines if line["event"] == "push"]


def test_a_visit_by_hand(server, caplog):
    caplog.set_level("INFO")
    summary = server.worker().run(TASK, WorkPlan(steps=ConstantSteps(2), local_lr=0.5, updates=1))
    # x: 0 -> 2 -> 3 and 0 -> 4 -> 6, so the mean gradients are (-4 - 2)/2 and (-8 - 4)/2.
    assert server.state.params.tolist() == [1.5, 3.0]  # 0 + 1 * 0.5 * (3, 6)
    assert (summary.accepted, summary.local_steps, summary.version) == (1, 2, 1)
    (line,) = pushes(caplog)
    assert {k: line[k] for k in ("worker", "status", "version", "base_version", "local_steps")} == {
        "worker": "ann",
        "status": "accepted",
        "version": 1,
        "base_version": 0,
        "local_steps": 2,
    }
    assert line["loss"] == 25.0  # (40 + 10) / 2
    assert line["id"] == ids(server.posts)[0]


def test_training_reaches_the_optimum(server):
    server.worker().run(TASK, WorkPlan(steps=UniformSteps(1, 4), local_lr=0.3, updates=60))
    np.testing.assert_allclose(server.state.params, [4, 8], atol=1e-3)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Prox(mu=1.0), [1.0, 2.0]),  # second gradient -2 + 1 * 2 = 0: mean -2, times 0.5
        (Momentum(beta=0.5), [2.0, 4.0]),  # second velocity -2 - 2 = -4: mean -4
        (ClipNorm(80**0.5 / 2), [1.0, 2.0]),  # -4 and -3 are both cut to -2
        (Decay(per_step=0.5), [1.25, 2.5]),  # second gradient -2, halved: mean -2.5
    ],
)
def test_local_rules_by_hand(server, rule, expected):
    server.worker().run(
        TASK, WorkPlan(steps=ConstantSteps(2), local_lr=0.5, local_rule=rule, updates=1)
    )
    assert server.state.params.tolist() == expected


def test_stale_updates_are_dropped_and_the_worker_pulls_again(caplog):
    server = Scripted(max_staleness=0)
    other = server.worker(name="bob")
    calls = []

    def overtaken(x):
        calls.append(x)
        if len(calls) == 1:
            other.push(np.ones(2, np.float32), local_lr=0.5)
        return TASK.gradient(x)

    worker = server.worker()
    summary = worker.run(
        FunctionTask(LAYOUT, overtaken), WorkPlan(steps=ConstantSteps(1), updates=2)
    )
    assert (summary.stale, summary.accepted) == (1, 2)
    assert calls[1].tolist() == [-0.5, -0.5]  # trained from the newer model
    assert pushes(caplog)[0]["status"] == "stale"


def test_updates_that_are_always_too_old_are_not_sent_at_full_speed(server):
    server.faults = [(409, "stale")] * 6
    clock = TestClock()
    summary = server.worker(clock=clock).run(TASK, WorkPlan(updates=1))
    assert (summary.stale, summary.accepted, len(clock.naps)) == (6, 1, 5)


def test_a_server_that_forgot_versions_is_pulled_anew(server):
    worker = server.worker()
    worker.run(TASK, WorkPlan(updates=3))

    def restored_from_an_old_copy(x):
        if server.state.version == 3:
            server.state, server.taken = Scripted().state, {}
        return TASK.gradient(x)

    summary = worker.run(FunctionTask(LAYOUT, restored_from_an_old_copy), WorkPlan(updates=1))
    assert (summary.stale, summary.accepted, server.state.version) == (1, 1, 1)


def test_a_worker_outlasts_the_absence_of_the_server(server, tmp_path):
    server.faults = ["refused connection"] * 40 + [503] * 40 + ["lose"]
    clock = TestClock()
    summary = server.worker(clock=clock, spool=tmp_path).run(TASK, WorkPlan(updates=2))
    assert (summary.duplicate, summary.accepted, summary.spooled) == (1, 1, 0)
    assert len(set(server.posts[:82])) == 1
    assert 60 * 40 / 2 < clock.time_s < 60 * 82


def test_stopping_during_training_pushes_the_steps_done(server):
    worker = server.worker()
    calls = []

    def stopped(x):
        calls.append(x)
        if len(calls) == 3:
            worker.stop()
        return TASK.gradient(x)

    summary = worker.run(FunctionTask(LAYOUT, stopped), WorkPlan(steps=ConstantSteps(1000)))
    assert (summary.accepted, summary.local_steps, len(calls)) == (1, 3, 3)
    assert not worker.stopping  # it may be run again
    assert worker.run(TASK, WorkPlan(updates=1)).accepted == 1


@pytest.mark.parametrize("spooled", [True, False])
def test_stopping_while_the_server_is_away_spools(server, tmp_path, spooled):
    server.faults = [503] * 1000
    clock = TestClock()
    worker = server.worker(clock=clock, spool=tmp_path if spooled else None)
    clock.on_sleep = lambda: worker.stop() if len(clock.naps) == 20 else None
    summary = worker.run(TASK)
    assert (summary.accepted, summary.spooled, summary.lost) == (0, spooled, not spooled)
    assert len(clock.naps) == 20
    worker.close()
    server.faults.clear()
    if spooled:
        with server.worker(spool=tmp_path) as again:
            summary = again.run(TASK, WorkPlan(updates=1))
        assert (summary.resent, summary.accepted) == ({"accepted": 1}, 1)
        assert ids(server.posts)[0] == next(iter(server.taken))[1]


def test_a_worker_can_be_stopped_from_another_thread(server):
    from anarchic.worker import WallClock

    worker = server.worker(clock=WallClock())
    threading.Timer(0.2, worker.stop).start()
    summary = worker.run(TASK, WorkPlan(policy=Every(minutes=10)))
    assert summary.accepted == 1


def test_policies_and_budgets_use_the_clock_of_the_worker(server):
    clock = TestClock()

    def slow(x):
        clock.time_s += 3
        return TASK.gradient(x)

    began = []
    task = FunctionTask(LAYOUT, lambda x: (began.append(clock.time_s), slow(x))[1])
    summary = server.worker(clock=clock).run(
        task, WorkPlan(policy=Every(minutes=5), steps=TimeBudget(10), updates=3)
    )
    assert summary.local_steps == 9  # three of three seconds fit into ten, each time
    assert began[::3] == [0, 300, 600]
    assert max(clock.naps) <= 60


# Local rules that remember


def run_scaffold(server, spool, updates=1, task=TASK, **settings):
    with server.worker(spool=spool, retry=Retry(tries=1), **settings) as worker:
        return worker.run(
            task,
            WorkPlan(steps=ConstantSteps(1), local_lr=0.5, local_rule=Scaffold(), updates=updates),
        )


def kept(spool):
    from anarchic import wire

    return wire.read(spool / "kept")[0]["own_control"].tolist()


def test_scaffold_by_hand_survives_a_restart(tmp_path):
    server = Scripted(extras=("control",))
    run_scaffold(server, tmp_path)
    # G = -4, -8; c_i = G - c = -4, -8; the server, of two workers: c = -2, -4; x = 2, 4.
    assert kept(tmp_path) == [-4.0, -8.0]
    assert server.state.extras["control"].tolist() == [-2.0, -4.0]
    run_scaffold(server, tmp_path)  # a new worker on the same spool
    # G = g - c_i + c = (2 - 4) + 4 - 2 = 0; c_i' = -4 - (-2) + 0 = -2.
    assert kept(tmp_path) == [-2.0, -4.0]
    assert server.state.params.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("fault", [(409, "stale"), (422, "not_finite")])
def test_scaffold_keeps_nothing_of_a_refused_update(tmp_path, fault):
    server = Scripted(extras=("control",))
    server.faults = [fault]
    run_scaffold(server, tmp_path)
    assert kept(tmp_path) == [-4.0, -8.0]  # of the second update, as if there had been no first


def test_scaffold_keeps_its_control_after_a_crash(tmp_path):
    """The answer was lost and the worker died: the duplicate makes up for both."""
    server = Scripted(extras=("control",))
    clock = TestClock()
    server.faults = ["lose"]
    worker = server.worker(spool=tmp_path, clock=clock)
    clock.on_sleep = worker.stop
    worker.run(TASK, WorkPlan(steps=ConstantSteps(1), local_lr=0.5, local_rule=Scaffold()))
    worker.close()
    assert not (tmp_path / "kept").exists()
    with server.worker(spool=tmp_path) as again:
        assert again.send_spooled() == {"duplicate": 1}
    assert kept(tmp_path) == [-4.0, -8.0]


def optimizers():
    """Adam, ours and torch's, which keep their state."""
    torch = pytest.importorskip("torch")
    from anarchic import TorchOptimizer

    return [Adam(keep_state=True), TorchOptimizer(torch.optim.Adam, keep_state=True)]


@pytest.mark.parametrize("which", [0, 1])
def test_the_state_of_an_optimiser_survives_a_restart(tmp_path, which):
    ends = []
    for updates in ([4], [1, 3]):  # without and with a restart
        server, spool = Scripted(), tmp_path / str(len(updates))
        for count in updates:
            plan = WorkPlan(
                steps=ConstantSteps(2), local_lr=0.5, local_rule=optimizers()[which], updates=count
            )
            with server.worker(spool=spool) as worker:
                worker.run(TASK, plan)
        ends.append(server.state.params.tolist())
    assert ends[0] == ends[1]
    forgets = Scripted()
    forgets.worker().run(TASK, WorkPlan(steps=ConstantSteps(2), local_rule=Adam(), updates=4))
    assert forgets.state.params.tolist() != ends[0]


def test_both_kinds_of_adam_take_the_same_way():
    ends = []
    for rule in optimizers():
        server = Scripted()
        plan = WorkPlan(steps=ConstantSteps(3), local_lr=0.5, local_rule=rule, updates=5)
        server.worker().run(TASK, plan)
        ends.append(server.state.params)
    np.testing.assert_allclose(*ends, rtol=1e-6)


def test_a_rate_follows_the_version_that_was_pulled(server):
    plan = WorkPlan(steps=ConstantSteps(1), local_lr=0.5, local_rule=Decay(per_version=0.5))
    worker, ends = server.worker(), []
    for _ in range(2):
        worker.run(TASK, replace(plan, updates=1))
        ends.append(server.state.params.tolist())
    # Half of the way, then a quarter of what is left.
    assert ends == [[2.0, 4.0], [2.5, 5.0]]


def test_another_run_begins_without_local_state(tmp_path):
    run_scaffold(Scripted(extras=("control",)), tmp_path)
    run_scaffold(Scripted(extras=("control",), run="run-b"), tmp_path, task=towards([1.0, 1.0]))
    assert kept(tmp_path) == [-1.0, -1.0]


def test_scaffold_needs_a_server_that_carries_its_control(server, tmp_path):
    with pytest.raises(ConfigError, match="Scaffold needs control beside the model"):
        run_scaffold(server, tmp_path)


# What goes wrong


def test_a_direction_that_is_not_finite_is_not_sent(server):
    calls = []

    def wild(x):
        calls.append(x)
        return (x + np.inf if len(calls) <= 2 else x - 1), None, 1

    summary = server.worker().run(
        FunctionTask(LAYOUT, wild), WorkPlan(steps=ConstantSteps(1), updates=1)
    )
    assert (summary.diverged, summary.accepted, len(server.posts)) == (2, 1, 1)
    with pytest.raises(Diverged, match="not finite"):
        server.worker().run(FunctionTask(LAYOUT, lambda x: (x + np.nan, None, 1)))


def test_too_large_for_float16_counts_as_diverged(server):
    task = FunctionTask(LAYOUT, lambda x: (x + 1e6, None, 1))
    with pytest.raises(Diverged, match="too large for F16"):
        server.worker(dtype="F16").run(task, WorkPlan(steps=ConstantSteps(1)))


def test_too_many_refusals_in_a_row_are_an_error(server):
    server.faults = [(422, "malformed")] * 4 + [None] + [(422, "malformed")] * 5
    clock = TestClock()
    with pytest.raises(WorkerError, match="Do otherwise") as caught:
        server.worker(clock=clock).run(TASK)
    assert caught.value.code == "malformed"
    assert len(server.posts) == 10
    assert len(clock.naps) == 8  # not at full speed


def test_a_wrong_token_is_an_error_at_once(server, tmp_path):
    server.faults = [(401, "unauthorized")]
    with pytest.raises(WorkerError) as caught:
        server.worker(spool=tmp_path).run(TASK)
    assert (caught.value.code, len(server.posts)) == ("unauthorized", 1)


def test_a_task_for_another_model_is_refused(server):
    task = FunctionTask(Layout.of({"y": ((2,), "F32")}), TASK.gradient)
    with pytest.raises(ConfigError, match=r"differ in x \[2\], y \[2\]"):
        server.worker().run(task)


def test_a_gradient_of_another_shape_is_refused(server):
    with pytest.raises(ConfigError, match=r"shape \(3,\)"):
        server.worker().run(FunctionTask(LAYOUT, lambda x: (np.zeros(3), None, 1)))


def test_a_task_cannot_change_the_parameters(server):
    def careless(x):
        x -= 1
        return x, None, 1

    with pytest.raises(ValueError, match="read-only"):
        server.worker().run(FunctionTask(LAYOUT, careless))


def test_a_rate_must_be_positive(server):
    with pytest.raises(ConfigError, match="local_lr > 0"):
        server.worker().run(TASK, WorkPlan(local_lr=0.0))
