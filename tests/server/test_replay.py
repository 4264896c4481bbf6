"""A simulated run through the real server, a recorded run folded again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs, FedAsync, Settings, Update, build, wire
from anarchic.core import registry
from anarchic.core.rules import (
    Ace,
    Aced,
    Area,
    AsyncSgd,
    Ca2fl,
    Fadas,
    FedBuff,
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


CLOCK = {"participation": "exponential", "dynamic_steps": True}


def simulated(name, rule):
    given = {} if rule.m == M else {"rule": name, "m": None}  # for the timetable
    settings = Settings(workers=WORKERS, rounds=ROUNDS, **{"m": M, **given}, **CLOCK)
    return trained(replace(build(settings), rule=rule))


def trained(experiment):
    backend = Recording()
    engine = Engine(replace(experiment, backend=backend))
    while engine.version < ROUNDS:
        engine.next_version()
    assert experiment.timetable.staleness.max() > 0
    return experiment.task, experiment.timetable, backend, engine.state.params


RUNS = [
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
    pytest.param("fedbuff", FedBuff(M), id="fedbuff", marks=pytest.mark.slow),
    pytest.param(
        "fadas", Fadas(M, threshold=1, form="code"), id="fadas by delay", marks=pytest.mark.slow
    ),
    pytest.param("fedasync", FedAsync(discount="hinge", hinge_start=1), id="fedasync hinge"),
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
]


def test_every_rule_that_can_be_served_is_below():
    kinds = ((name, registry.find("rules", name)) for name in registry.KINDS["rules"].built_in)
    assert {run.values[0] for run in RUNS} == {name for name, kind in kinds if kind.takes_late}


@pytest.mark.parametrize(("name", "rule"), RUNS)
def test_a_simulated_run_through_the_server_gives_the_same_bytes(tmp_path, name, rule):
    cap, own = getattr(rule, "cap", None), ("limit", "batch", "probabilities")
    own += ("threshold", "form", "discount", "hinge_start")
    options = {key: getattr(rule, key) for key in own if getattr(rule, key, None)}
    rules = RuleSettings(rule=name, m=M if rule.m == M else None, cap=cap, rule_options=options)
    check_served(tmp_path, rules, rule.m, simulated(name, rule))


@pytest.mark.parametrize(
    ("rule", "local"),
    [
        ("feddyn", {"local_rule": "dyn"}),
        ("afa-cd", {"local_rule": "mimelite"}),
        ("fednova", {"local_rule": "momentum", "rule_options": {"momentum": 0.9}}),
        pytest.param("fedbuff", {"local_rule": "scaffold"}, marks=pytest.mark.slow),
        pytest.param(
            "ca2fl",
            {"local_rule": "scaffold", "local_options": {"option": 1}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_workers_share_and_keep_comes_through_the_server_too(tmp_path, rule, local):
    made = build(Settings(workers=WORKERS, rounds=ROUNDS, rule=rule, m=M, **local, **CLOCK))
    options = {"population": WORKERS} if rule in ("feddyn", "ca2fl") else {}
    served = {name: value for name, value in local.items() if name != "local_options"}
    options |= served.pop("rule_options", {})
    told = {"cap": WORKERS} if rule == "ca2fl" else {}
    told |= {"workers": WORKERS} if served["local_rule"] == "scaffold" else {}
    rules = RuleSettings(rule=rule, m=M, rule_options=options, **told, **served)
    check_served(tmp_path, rules, M, trained(made))


def check_served(tmp_path, rules, m, run):
    """The same bytes through a server, and when what it has recorded is folded again."""
    task, table, computed, expected = run
    store = open_store(tmp_path / "run.db", keep_payloads=True)
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
                    computed.directions[worker, visit],
                    extras=computed.extras[worker, visit],
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


@pytest.mark.slow
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
