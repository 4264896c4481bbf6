"""Buffers in a live run: averaged or kept, never stepped along, durable and exact in replay."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import closing

import numpy as np
import pytest

from anarchic import Layout, Update, wire
from anarchic.data import load_digits
from anarchic.data.partition import iid
from anarchic.errors import ConfigError
from anarchic.server.replay import replay
from anarchic.server.runs import begin, check_same, first_model, open_run, stored_layout
from anarchic.server.settings import RuleSettings
from anarchic.server.store import open_store
from anarchic.worker import Connection, ConstantSteps, FromTask, Retry, Spool, Worker, WorkPlan
from tests import waiting
from tests.chaos.servers import ServerProcess
from tests.server.live import newest_snapshot, serving, until

LAYOUT = Layout.of(
    {"bn.running_var": ((2,), "F32"), "bn.running_mean": ((2,), "F32"), "w": ((3,), "F32")},
    buffers=["bn.running_mean", "bn.running_var"],
)
FIRST = np.array([0, 0, 1, 1, 5, 5, 5], np.float32)  # means, variances, weights


def body(id, mean, var, step, *, worker="ann", base_version=0, lr=0.5):
    direction = np.array([mean] * 2 + [var] * 2 + [step] * 3, np.float32)
    update = Update(worker, base_version, 1, lr, direction, id=id)
    return wire.encode_update(LAYOUT, update, worker=worker)


def begun(path, **rules):
    with closing(open_store(path, keep_payloads=True)) as store:
        begin(store, RuleSettings(**rules), LAYOUT, FIRST)


def replayed(path):
    with closing(open_store(path)) as store:
        found = replay(store)
    return found.version, found.equal


@pytest.mark.parametrize("rule", [{"rule": "afa-cs", "cap": 9}, {"rule": "fedbuff"}, {"clip": 9.0}])
def test_the_server_averages_buffers_and_steps_along_the_rest(tmp_path, rule):
    begun(tmp_path / "run.db", m=2, **rule)

    async def scenario(pushes, version):
        async with serving(tmp_path / "run.db") as (service, client):
            for push in pushes:
                answer = await client.post("/v1/updates", content=push)
                assert answer.status_code == 202, answer.text
            await until(lambda: service.published.newest.version == version)
            return newest_snapshot(service)

    one = body("1", mean=2, var=3, step=2)
    snapshot = asyncio.run(scenario([one], 0))  # and the server stops: what it has is durable
    assert snapshot.params.tolist() == FIRST.tolist()
    two = body("2", mean=4, var=0, step=4, worker="bob")
    snapshot = asyncio.run(scenario([two], 1))
    assert snapshot.params.tolist() == [3, 3, 1.5, 1.5, 3.5, 3.5, 3.5]  # 5 - (1 + 2) / 2
    assert snapshot.layout == LAYOUT
    assert snapshot.terms.buffers == "average"
    assert snapshot.terms.buffer_names == LAYOUT.buffers
    assert (snapshot.terms.rule, snapshot.terms.server_lr) == (rule.get("rule", "afa-cd"), 1.0)
    assert replayed(tmp_path / "run.db") == (1, True)


@pytest.mark.parametrize(
    ("push", "code", "told"),
    [
        (body("1", mean=-5, var=-0.25, step=1), "malformed", "variance below 0 in bn.running_var"),
        (body("1", mean=np.inf, var=1, step=1), "not_finite", "not finite"),
        (body("1", mean=0, var=np.nan, step=1), "not_finite", "not finite"),
    ],
)
def test_buffers_that_cannot_be_right_are_refused(tmp_path, push, code, told):
    begun(tmp_path / "run.db", m=1)

    async def scenario():
        async with serving(tmp_path / "run.db") as (_, client):
            answer = await client.post("/v1/updates", content=push)
            assert (answer.status_code, answer.json()["error"]) == (422, code)
            assert told in answer.json()["message"]

    asyncio.run(scenario())


def test_buffers_make_no_update_longer(tmp_path):
    """Neither for the limit on lengths, nor for what the store records, nor for the guard."""
    begun(tmp_path / "run.db", m=1)

    async def scenario():
        limits = {"max_norm": 10.0}
        async with serving(tmp_path / "run.db", limits=limits) as (service, client):
            push = body("1", mean=1e6, var=1e6, step=1)
            assert (await client.post("/v1/updates", content=push)).status_code == 202
            await until(lambda: service.published.newest.version == 1)
            assert newest_snapshot(service).params[-1] == 4.5  # the guard has not cut it
            push = body("2", mean=0, var=1, step=100)
            assert (await client.post("/v1/updates", content=push)).status_code == 422

    asyncio.run(scenario())
    with closing(open_store(tmp_path / "run.db")) as store:
        (folded,) = store.trace()
        assert folded.norm == pytest.approx(0.5 * 3**0.5)


def write(path, layout=LAYOUT, params=FIRST, **metadata):
    wire.save_model(path, layout, params, **metadata)
    return path


def test_a_model_file_says_the_policy_of_its_run(tmp_path):
    plain = Layout.of({"w": ((3,), "F32")})
    local = write(
        tmp_path / "local",
        plain,
        np.ones(3, np.float32),
        module="mine:Model",
        module_options='{"width": 3}',
        **wire.buffers_metadata("local", ["bn.running_var"]),
    )
    for name, file in {"average": write(tmp_path / "average"), "local": local}.items():
        with closing(open_store(tmp_path / f"{name}.db")) as store:
            run = open_run(store, {}, file)
            terms = wire.decode_snapshot(store.model(0))[1].terms
            assert terms.buffers == name
            assert stored_layout(run).buffers == (LAYOUT.buffers if name == "average" else ())
            check_same(store, run, {}, file)  # the same command again
    assert terms.buffer_names == ("bn.running_var",)
    assert run.settings["module"] == "mine:Model"
    assert run.settings["module_options"] == {"width": 3}
    assert run.settings["module_seed"] == 0
    with closing(open_store(tmp_path / "local.db")) as store:
        other = write(tmp_path / "other", plain, np.ones(3, np.float32))
        with pytest.raises(ConfigError, match="policy for buffers is local, that of --init"):
            check_same(store, store.run(), {}, other)


def test_a_run_without_buffers_is_recorded_as_before_there_were_any(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        run = open_run(store, {}, write(tmp_path / "m", Layout.of({"w": ((7,), "F32")})))
        assert not {"buffers", "buffer_policy", "local_buffers", "module"} & run.settings.keys()


def test_a_first_model_with_a_negative_variance_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"variance below 0 in bn.running_var \(-1\)"):
        first_model(write(tmp_path / "model", params=np.full(7, -1, np.float32)))


# Live workers ------------------------------------------------------------------------------------


def tasks(policy, workers=2):
    """The digits among workers, for a model with a BatchNorm."""
    torch = pytest.importorskip("torch")
    from anarchic import TorchTask
    from tests.models.own_modules import of_digits

    torch.manual_seed(0)
    data, module = load_digits(), of_digits()
    return TorchTask(module, data, iid(len(data.y_train), workers, seed=0), buffers=policy)


def work(policy, number, url, folder, updates):
    task = tasks(policy)  # a module is not for two threads
    how = Connection(retry=Retry(first_s=0.05, max_s=0.5))
    spool = folder / f"spool-{number}"
    with Worker(url, name=f"w{number}", spool=spool, connection=how) as worker:
        plan = WorkPlan(steps=ConstantSteps(5), local_lr=0.1, updates=updates)
        worker.run(FromTask(task, number, batch=32), plan)


def train(server, policy, folder, *, updates, meanwhile=lambda: None):
    url = f"http://127.0.0.1:{server.port}"
    threads = [
        threading.Thread(target=work, args=(policy, number, url, folder, updates), daemon=True)
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


OPTIONS = (
    "--open-enrolment",
    "--m",
    "2",
    "--per-worker",
    "2",
    "--keep-payloads",
    "--server-lr",
    "5",
)


@pytest.mark.slow
@pytest.mark.tried(
    "two live workers that train a model with BatchNorm, and a kill",
    before="72 of 80 running variances became negative, and nothing warned",
    now="all stay positive, the model learns, and a replay gives the same bytes",
)
def test_running_variances_stay_positive_with_two_live_workers_and_a_kill(tmp_path):
    task = tasks("average")
    init = write(tmp_path / "model", task.layout, task.init())
    server = ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *OPTIONS)

    def kill():
        waiting.until(lambda: server.status()["version"] >= 5, timeout_s=30)
        server.kill()
        server.start()
        server.await_ready()

    with server:
        train(server, "average", tmp_path, updates=20, meanwhile=kill)
        waiting.until(lambda: server.status()["version"] == 20, timeout_s=30)
        assert server.stop() == 0
    with closing(open_store(tmp_path / "run.db")) as store:
        models = [store.model(version) for version in range(21)]
        found = [wire.decode_snapshot(model)[1] for model in models if model is not None]
    assert len(found) >= 16
    for snapshot in found:
        assert snapshot.tensors["bn.running_var"].min() > 0
    counted = [float(snapshot.tensors["bn.num_batches_tracked"]) for snapshot in found]
    assert counted[-1] > counted[1] > 0
    assert task.evaluate(task.init())["accuracy"] < 0.3
    assert task.evaluate(found[-1].params)["accuracy"] > 0.85
    assert replayed(tmp_path / "run.db") == (20, True)


@pytest.mark.slow
def test_local_buffers_never_travel_and_outlive_the_worker(tmp_path):
    task = tasks("local")
    live = FromTask(task, 0)
    assert live.layout.buffers == ()
    names = wire.buffers_metadata("local", live.local_buffers)
    init = write(tmp_path / "model", live.layout, live.init(), **names)
    server = ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *OPTIONS)
    with server:
        train(server, "local", tmp_path, updates=10)
        train(server, "local", tmp_path, updates=10)  # the same workers, started again
        waiting.until(lambda: server.status()["version"] == 20, timeout_s=30)
        run = server.status()["run"]
        assert server.stop() == 0
    with closing(open_store(tmp_path / "run.db")) as store:
        _, snapshot, _ = wire.decode_snapshot(store.model(20))
    assert not any("running" in name for name in snapshot.tensors)
    whole = np.empty(task.layout.dim, np.float32)
    whole[np.delete(np.arange(task.layout.dim), task.layout.buffer_places)] = snapshot.params
    for number in range(2):
        with closing(Spool(tmp_path / f"spool-{number}")) as spool:
            own = spool.local_state(run)["buffers"]
        whole[task.layout.buffer_places] = own
        tensors = task.layout.split(whole)
        assert tensors["bn.num_batches_tracked"] == 20 * 5  # every step of both starts
        assert tensors["bn.running_var"].min() > 0
        assert task.evaluate(whole)["accuracy"] > 0.75
    assert replayed(tmp_path / "run.db") == (20, True)


@pytest.mark.slow
@pytest.mark.tried(
    "`serve --init` with a state dict that has running statistics",
    before="served without a word",
    now="a warning in the log names them and the command that writes the model with a policy",
)
def test_a_loud_warning_names_the_command_that_mends_the_model(tmp_path):
    plain = Layout.of({"bn.running_var": ((2,), "F32"), "w": ((3,), "F32")})
    init = write(tmp_path / "state.safetensors", plain, np.ones(5, np.float32))
    with ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *OPTIONS) as server:
        lines = [json.loads(line) for line in server.text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "model_warning"]
    assert told["level"] == "warning"
    assert (
        f"`anarchic init --from {init} --buffers average --out averaged.safetensors`"
        in (told["message"])
    )
