"""A simulated run through the real server, a recorded run folded again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, FedAsync, Settings, Update, build, wire
from anarchic.core.rules import (
    Ace,
    Aced,
    Area,
    AsyncSgd,
    Ca2fl,
    Fadas,
    FedDyn,
    FedNova,
    GeneralizedAsyncSgd,
    Malenia,
    Mifa,
    Rennala,
    Ringleader,
)
from anarchic.errors import RunError
from anarchic.server.accounts import new_token, put_account
from anarchic.server.replay import replay, timetable_of
from anarchic.server.runs import begin
from anarchic.server.settings import RuleSettings
from anarchic.server.store import open_store
from anarchic.sim.engine import Engine
from tests.server.live import newest_snapshot, serving, until
from tests.server.make import Recording, begun, body

pytest.importorskip("torch")
WORKERS, M, ROUNDS = 6, 3, 12


def simulated(name, rule):
    given = {} if rule.m == M else {"rule": name, "m": None}  # for the timetable
    clock = {"participation": "exponential", "dynamic_steps": True}
    settings = Settings(workers=WORKERS, rounds=ROUNDS, **{"m": M, **given}, **clock)
    backend = Recording()
    experiment = replace(build(settings), rule=rule, backend=backend)
    engine = Engine(experiment)
    while engine.version < ROUNDS:
        engine.next_version()
    assert experiment.timetable.staleness.max() > 0
    return experiment.task, experiment.timetable, backend.directions, engine.state.params


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param("afa-cd", AfaCd(M), id="afa-cd", marks=pytest.mark.slow),
        pytest.param("afa-cs", AfaCs(M, cap=3), id="afa-cs"),
        pytest.param("ca2fl", Ca2fl(M, cap=3), id="ca2fl", marks=pytest.mark.slow),
        pytest.param("mifa", Mifa(M, cap=3), id="mifa", marks=pytest.mark.slow),
        pytest.param("ace", Ace(M, cap=3), id="ace", marks=pytest.mark.slow),
        pytest.param("fadas", Fadas(M), id="fadas", marks=pytest.mark.slow),
        pytest.param("fednova", FedNova(M), id="fednova"),
        pytest.param("feddyn", FedDyn(M), id="feddyn", marks=pytest.mark.slow),
        pytest.param("async-sgd", AsyncSgd(M), id="async-sgd", marks=pytest.mark.slow),
        pytest.param("area", Area(M, cap=3), id="area"),
        pytest.param("fedasync", FedAsync(), id="fedasync"),
        pytest.param("aced", Aced(cap=3, limit=2), id="aced"),
        pytest.param("rennala", Rennala(batch=2), id="rennala"),
        pytest.param("malenia", Malenia(batch=2), id="malenia", marks=pytest.mark.slow),
        pytest.param("ringleader", Ringleader(), id="ringleader"),
        pytest.param(
            "generalized-async-sgd",
            GeneralizedAsyncSgd(probabilities="0:.5,1:.1"),
            id="generalized",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_simulated_run_through_the_server_gives_the_same_bytes(tmp_path, name, rule):
    task, table, directions, expected = simulated(name, rule)
    m = rule.m
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    cap, own = getattr(rule, "cap", None), ("limit", "batch", "probabilities")
    options = {key: getattr(rule, key) for key in own if getattr(rule, key, None)}
    rules = RuleSettings(rule=name, m=M if m == M else None, cap=cap, rule_options=options)
    begin(store, rules, task.layout, task.init())
    tokens = {str(worker): new_token(str(worker)) for worker in range(WORKERS)}
    for _, account in tokens.values():
        put_account(store, account)
    store.close()

    async def scenario():
        limits = {"per_worker": M}
        settings = {"limits": limits, "open_enrolment": False}
        async with serving(tmp_path / "run.db", **settings) as (service, client):
            for row in range(len(table)):
                worker, visit = int(table.worker[row]), int(table.visit[row])
                sent = Update(
                    str(worker),
                    int(table.base_version[row]),
                    int(table.local_steps[row]),
                    0.1,
                    directions[worker, visit],
                    id=str(visit),
                )
                made = wire.encode_update(task.layout, sent, worker=sent.worker)
                headers = {"Authorization": f"Bearer {tokens[sent.worker][0]}"}
                answer = await client.post("/v1/updates", content=made, headers=headers)
                assert answer.status_code == 202, answer.text
                if (row + 1) % m == 0:
                    await until(lambda r=row: service.published.newest.version == (r + 1) // m)
            return newest_snapshot(service).params

    found = asyncio.run(scenario())
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    again = replay(store)
    assert (again.version, again.updates, again.equal) == (ROUNDS, ROUNDS * m, True)
    recorded = timetable_of(store)
    store.close()
    assert np.array_equal(recorded.base_version, table.base_version)
    assert np.array_equal(recorded.local_steps, table.local_steps)
    assert np.array_equal(recorded.worker, table.worker)


def pushed(path, count, first=0, **settings):
    async def scenario():
        async with serving(path, **settings) as (service, client):
            for number in range(first, first + count):
                await client.post("/v1/updates", content=body(f"w{number}", seed=number))
            await asyncio.sleep(0.3)
            return service.published.newest.version

    return asyncio.run(scenario())


def test_a_run_with_timer_steps_is_replayed_too(tmp_path):
    pushed(tmp_path / "run.db", 3, rules={"m": 2}, step_after_s=0.05)
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    found = replay(store)
    assert (found.version, found.updates, found.equal) == (2, 3, True)
    store.close()


def test_a_run_with_a_timer_step_in_the_middle_has_no_timetable(tmp_path):
    pushed(tmp_path / "run.db", 1, rules={"m": 2}, step_after_s=0.05)
    pushed(tmp_path / "run.db", 3, rules={"m": 2}, first=1)
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    assert replay(store).equal
    with pytest.raises(RunError, match="was not made of 2 updates"):
        timetable_of(store)
    store.close()


def test_without_payloads_there_is_nothing_to_fold(tmp_path):
    pushed(tmp_path / "run.db", 2, rules={"m": 2}, keep_payloads=False)
    store = open_store(tmp_path / "run.db")
    with pytest.raises(RunError, match="--keep-payloads"):
        replay(store)
    store.close()


def test_an_empty_store_cannot_be_replayed(tmp_path):
    store = open_store(tmp_path / "run.db")
    for use in (replay, timetable_of):
        with pytest.raises(RunError, match=r"no run|no folded"):
            use(store)
    begun(store)
    with pytest.raises(RunError, match="no folded"):
        timetable_of(store)
    store.close()


def test_the_first_model_is_kept_beyond_the_history(tmp_path):
    pushed(tmp_path / "run.db", 20, rules={"m": 1})
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    found = replay(store)
    store.close()
    assert (found.version, found.equal) == (20, True)
