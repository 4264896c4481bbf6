"""Evaluation goes its own way: slow, wrong or dead, it holds nothing up."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from anarchic import Layout, Snapshot, wire
from anarchic.errors import ConfigError
from anarchic.server.accounts import new_token, put_account
from anarchic.server.evaluate import (
    Evaluator,
    Judging,
    _judged,
    _serve,
    is_module,
    judging,
    parameters_of,
)
from anarchic.server.runs import first_model
from anarchic.server.settings import RunSettings
from anarchic.server.store import open_store
from tests import waiting
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server import evaluations
from tests.server.evaluations import SLOW_S
from tests.server.live import serving
from tests.server.make import begun

until = partial(waiting.until, timeout_s=15.0)


@pytest.fixture
def evaluated(tmp_path):
    """Starts servers of which every update makes a version, and that evaluate each."""
    started = []

    def start(name):
        init = write_model(tmp_path / "model.safetensors")
        words = ("--open-enrolment", "--m", "1", "--evaluate", f"tests.server.evaluations:{name}")
        server = ServerProcess(str(tmp_path / "run.db"), init, tmp_path / "log", *words)
        started.append(server)
        server.start()
        server.await_ready()
        return server

    yield start
    for server in started:
        if server.running:
            server.kill()


def _step(server, numbers):
    """Push updates, each when the version before is there."""
    with Line(server.port) as line:
        for number in numbers:
            assert line.push(encoded(LAYOUT, f"w{number}", str(number))).status == 202
            until(lambda number=number: server.status()["version"] > number)


def _seen(server):
    return (server.status()["evaluation"] or {}).get("version", -1)


@pytest.mark.slow
def test_a_slow_evaluation_delays_nothing_and_the_newest_version_is_next(tmp_path, evaluated):
    server = evaluated("slow")
    until(lambda: _seen(server) == 0)  # its process is up
    began = time.monotonic()
    _step(server, range(20))
    taken_s = time.monotonic() - began
    assert taken_s < 20 * SLOW_S / 2
    until(lambda: _seen(server) == 20)
    assert server.stop() == 0
    store = open_store(tmp_path / "run.db")
    found = store.evaluations(limit=20)
    store.close()
    assert found[-1] == (20, {"seen": 20})
    assert len(found) < 15  # most were overtaken


def test_evaluations_are_kept_after_the_server_stops(tmp_path):
    store = open_store(tmp_path / "run.db")
    begun(store)
    for version in range(3):
        store.add_evaluation(version, {"accuracy": version / 4, "loss": float("nan")})
    told = [{"accuracy": v / 4, "loss": None, "version": v} for v in range(3)]
    evaluator = Evaluator("tests.server.evaluations:slow", store, lambda event, **facts: None)
    assert evaluator.latest == told[2]
    evaluator.stop()
    token, account = new_token("ann")
    put_account(store, account)
    store.close()

    async def scenario():
        proof = {"authorization": f"Bearer {token}"}
        async with serving(tmp_path / "run.db", open_enrolment=False) as (_, client):
            assert (await client.get("/v1/evaluations")).status_code == 401
            for limit, expected in (("", told), ("?limit=2", told[1:]), ("?limit=1000", told)):
                answer = await client.get(f"/v1/evaluations{limit}", headers=proof)
                assert answer.json() == {"evaluations": expected}
            for limit in ("0", "1001", "x", "", "-1"):
                answer = await client.get(f"/v1/evaluations?limit={limit}", headers=proof)
                assert (answer.status_code, answer.json()["error"]) == (400, "malformed")

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crashing", "failing"])
def test_after_a_crash_or_failure_the_next_version_is_evaluated(evaluated, name):
    server = evaluated(name)
    _step(server, range(2))
    until(lambda: _seen(server) == 2)
    word = {"crashing": "evaluator_died", "failing": "evaluation_failed"}[name]
    assert word in server.text()
    assert server.status()["version"] == 2


@pytest.mark.slow
def test_nan_does_not_break_the_status(evaluated):
    """NaN is not JSON; nor is a metric called ``error`` a failure."""
    server = evaluated("diverged")
    until(lambda: server.status()["evaluation"] is not None)
    assert server.status()["evaluation"] == {"loss": None, "error": 0.5, "version": 0}


@pytest.mark.slow
def test_a_bare_number_is_refused_with_the_expected_form(evaluated):
    server = evaluated("bare")
    until(lambda: "evaluation_failed" in server.text())
    assert "it returned 0.5, not a dict of numbers such as accuracy" in server.text()


OWN = "tests.models.own_modules:Normed"


def first_file(folder, **choice):
    from anarchic.worker.initial import InitialModel, write_initial_model

    initial = InitialModel(source=OWN, options={"width": 6}, seed=5, **choice)
    return folder / "own", write_initial_model(folder / "own", initial)


def judge_named(name, folder, **settings):
    judge = f"tests.server.evaluations:{name}"
    return RunSettings(store=folder / "run.db", evaluate=judge, **settings)


@pytest.mark.slow
def test_a_judge_gets_a_module_in_eval_mode_with_its_buffers(tmp_path):
    pytest.importorskip("torch")
    init, first = first_file(tmp_path, buffers="average")
    words = ("--open-enrolment", "--evaluate", "tests.server.evaluations:of_module")
    store = str(tmp_path / "run.db")
    with ServerProcess(store, init, tmp_path / "log", *words) as server:
        waiting.until(lambda: server.status()["evaluation"], timeout_s=60)
        found = server.status()["evaluation"]
    weight = float(first.layout.split(first.params)["last.weight"].sum())
    expected = {"seen": 0, "training": 0, "var": 6, "count": 0, "version": 0}
    assert found == expected | {"weight": pytest.approx(weight, rel=1e-5)}


def test_a_judge_is_given_what_it_asks_for():
    tensors = {"w": ((2,), "F32")}
    snapshot = Snapshot(1, np.array([1, 2], np.float32), layout=Layout.of(tensors))
    assert _judged(evaluations.named, snapshot, None) == {"w": 3.0}
    assert _judged(lambda *, module, snapshot: (module, snapshot.version), snapshot, 7) == (7, 1)
    assert _judged(lambda snapshot, module=None: module, snapshot, 7) == 7
    assert _judged(lambda module, most=3: (module, most), snapshot, 7) == (7, 3)
    (net,) = parameters_of(evaluations.annotated)
    assert is_module(net)


def test_the_module_is_that_of_init_or_the_one_that_is_named(tmp_path):
    pytest.importorskip("torch")
    file, first = first_file(tmp_path, buffers="average")
    about = first_model(file).about
    asked = judge_named("of_module", tmp_path)
    assert judging(asked, about, first.layout).module == OWN
    assert judging(asked, about, first.layout).options == {"width": 6}
    assert judging(asked, about, first.layout).seed == 5
    with pytest.raises(ConfigError, match="made: give --model MODULE:NAME"):
        judging(asked, {}, first.layout)
    with pytest.raises(ConfigError, match=r"bn.bias of shape \(4,\), the model \(6,\)"):
        judging(judge_named("of_module", tmp_path, model=OWN), about, first.layout)
    with pytest.raises(ConfigError, match="has the parameters snapshot, data"):
        judging(judge_named("two_snapshots", tmp_path), about, first.layout)
    with pytest.raises(ConfigError, match="--model is for --evaluate"):
        judging(RunSettings(store=tmp_path / "run.db", model=OWN), about, first.layout)
    assert judging(judge_named("named", tmp_path), {}, first.layout).module is None


@pytest.mark.parametrize("option", [{"keep_best": "accuracy"}, {"target": "accuracy=0.9"}])
def test_nothing_is_chosen_by_a_module_whose_statistics_no_worker_has(tmp_path, option):
    pytest.importorskip("torch")
    file, first = first_file(tmp_path, buffers="local")
    about = first_model(file).about
    assert judging(judge_named("of_module", tmp_path), about, first.layout).module == OWN
    told = f"--{next(iter(option)).replace('_', '-')} cannot choose by tests.server.evaluations"
    with pytest.raises(ConfigError, match=told):
        judging(judge_named("of_module", tmp_path, **option), about, first.layout)
    alone = judge_named("named", tmp_path, **option)  # which may set the statistics itself
    assert judging(alone, about, first.layout).module is None


@pytest.mark.parametrize("read", [True, False])
def test_a_judge_whose_server_was_killed_ends_without_a_word(read):
    """Its traceback would stand between the lines of the next server's log."""
    asked = Judging("tests.server.evaluations:seen")
    ours, theirs = multiprocessing.Pipe()
    snapshot = Snapshot(0, np.zeros(LAYOUT.dim, np.float32))
    with ThreadPoolExecutor(1) as pool, theirs:
        ended = pool.submit(_serve, asked, theirs)
        ours.send_bytes(wire.encode_snapshot(LAYOUT, snapshot, "run"))
        until(ours.poll)
        if read:
            ours.recv_bytes()
        ours.close()  # with an answer that nobody has read the connection is reset
        ended.result(timeout=10)
