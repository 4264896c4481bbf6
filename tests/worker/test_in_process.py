"""Workers against the real server in the same process, without a port."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("sqlalchemy")

from anarchic import Scaffold
from anarchic.errors import WorkerError
from anarchic.server.app import make_app
from anarchic.server.commands import commands
from anarchic.server.operate import steer
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from anarchic.worker import Connection, ConstantSteps, FunctionTask, Retry, Worker, WorkPlan
from anarchic.worker.connection import FINAL_REFUSALS
from tests.server.live import newest_snapshot, serving, stored
from tests.server.make import DIM, LAYOUT, first_params
from tests.server.test_protocol_page import refused_with
from tests.waiting import until

HALFWAY = FunctionTask(LAYOUT, lambda x: (x - 1, 0.5, 3))  # f(x) = |x - 1|^2 / 2


class Bridge(httpx.BaseTransport):
    """From the worker's thread to an application in the event loop of another."""

    def __init__(self, app, loop):
        self._app, self._loop = app, loop

    def handle_request(self, request):
        return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result(30)

    async def _ask(self, request):
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport) as client:
            headers = request.headers.raw
            sent = httpx.Request(
                request.method, request.url, headers=headers, content=request.read()
            )
            answer = await client.send(sent)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


@contextmanager
def served(path, **settings):
    """(service, transport) of a real server."""
    met, ready, done = [], threading.Event(), asyncio.Event()

    async def live():
        async with serving(path, **settings) as (service, _):
            loop = asyncio.get_running_loop()
            met.extend((service, Bridge(make_app(service), loop), loop))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    assert ready.wait(30)
    service, transport, loop = met
    try:
        yield service, transport
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(30)


def worker(transport, name="ann", **settings):
    quick = Retry(tries=3, first_s=0.01, max_s=0.01, max_retry_after_s=0.0)
    connection = Connection(transport=transport, retry=quick)
    return Worker("http://server", name=name, connection=connection, **settings)


def test_two_workers_train_by_hand(tmp_path):
    """Each step of m = 1 goes half of the way to 1, whoever takes it."""
    with served(tmp_path / "run.db", rules={"m": 1}) as (service, transport):
        for visit, name in enumerate(("ann", "bob", "ann"), start=1):
            with worker(transport, name, spool=tmp_path / name) as one:
                summary = one.run(
                    HALFWAY, WorkPlan(steps=ConstantSteps(1), local_lr=0.5, updates=1)
                )
            assert (summary.accepted, summary.local_steps) == (1, 1)
            until(lambda visit=visit: service.published.newest.version == visit)
        expected = 1 - (1 - first_params()) / 8
        np.testing.assert_allclose(newest_snapshot(service).params, expected, rtol=1e-6)
    with stored(tmp_path / "run.db") as store:
        trace = [(row.worker, row.base_version, row.samples) for row in store.trace()]
    assert trace == [("ann", 0, 3), ("bob", 1, 3), ("ann", 2, 3)]


def scaffold(transport, name, folder):
    with worker(transport, name, spool=folder / name) as one:
        one.run(
            HALFWAY,
            WorkPlan(steps=ConstantSteps(1), local_lr=0.5, local_rule=Scaffold(), updates=1),
        )
        return one.local_state()["own_control"]


def test_scaffold_by_hand_through_a_server_that_is_started_again(tmp_path):
    """Of two workers, m = 1, K = 1: the control c is the mean of what the workers keep."""
    x = first_params().astype(np.float64)
    rules = {"m": 1, "local_rule": "scaffold", "workers": 2}
    kept = {"ann": 0 * x, "bob": 0 * x}
    for visit, name in enumerate(("ann", "bob", "ann"), start=1):
        with served(tmp_path / "run.db", rules=rules) as (service, transport):
            found = scaffold(transport, name, tmp_path)
            until(lambda visit=visit: service.published.newest.version == visit)
            snapshot = newest_snapshot(service)
        control = (kept["ann"] + kept["bob"]) / 2
        direction = (x - 1) - kept[name] + control
        kept[name] = kept[name] - control + direction  # option II
        x = x - 0.5 * direction
        np.testing.assert_allclose(found, kept[name], atol=1e-6)
        np.testing.assert_allclose(snapshot.params, x, atol=1e-6)
        control = (kept["ann"] + kept["bob"]) / 2
        np.testing.assert_allclose(snapshot.extras["control"], control, atol=1e-6)
    store = open_store(tmp_path / "run.db", keep_payloads=True)
    assert replay(store).equal
    store.close()


def test_a_worker_with_another_local_rule_may_take_part(tmp_path):
    rules = {"m": 1, "local_rule": "scaffold", "workers": 2}
    with served(tmp_path / "run.db", rules=rules) as (service, transport):
        with worker(transport, "bob") as one:
            one.run(HALFWAY, WorkPlan(steps=ConstantSteps(1), local_lr=0.5, updates=1))
        until(lambda: service.published.newest.version == 1)
        assert not newest_snapshot(service).extras["control"].any()


def test_workers_of_a_run_that_ended_stop_and_keep_nothing(tmp_path):
    with served(tmp_path / "run.db", rules={"m": 1}) as (service, transport):
        with worker(transport, spool=tmp_path / "spool") as one:
            one.pull()
            steer(tmp_path / "run.db", "end")
            until(lambda: service.steering.ended)  # it reads what is settled a moment later
            summary = one.run(HALFWAY, WorkPlan(steps=ConstantSteps(1), local_lr=0.5))
            assert (summary.run_ended, summary.accepted, summary.refused) == (True, 0, 0)
            assert summary.spooled == 0
            with pytest.raises(WorkerError, match="The run has ended") as told:
                one.push(np.ones(DIM, np.float32), local_lr=0.1)
            assert told.value.code == "run_ended"
            assert one.pull().version == 0
        assert service.status()["state"] == "ended"


@pytest.mark.slow
def test_a_command_that_was_applied_holds_at_once(tmp_path):
    with served(tmp_path / "run.db", rules={"m": 1}) as (service, _):
        for kind, condition in (("pause", "paused"), ("resume", "running"), ("end", "ended")):
            steer(tmp_path / "run.db", kind)
            until(lambda expected=condition: service.steering.condition == expected, timeout_s=0.2)


def test_a_run_that_ends_during_a_visit_ends_the_worker_too(tmp_path):
    def gradient(x):
        steer(tmp_path / "run.db", "end", {"reason": "It is good enough."})
        return x - 1, 0.5, 3

    plan = WorkPlan(steps=ConstantSteps(1), local_lr=0.5)
    with served(tmp_path / "run.db", rules={"m": 1}) as (_, transport):
        with worker(transport, spool=tmp_path / "spool") as one:
            summary = one.run(FunctionTask(LAYOUT, gradient), plan)
        assert (summary.run_ended, summary.local_steps, summary.refused) == (True, 1, 0)
        assert summary.spooled == 0
    with stored(tmp_path / "run.db") as store:
        assert commands(store)[0].reason.endswith("Reason: It is good enough.")


@pytest.mark.slow
def test_workers_of_a_paused_run_keep_their_update_until_it_goes_on(tmp_path):
    plan = WorkPlan(steps=ConstantSteps(1), local_lr=0.5, updates=1)
    with served(tmp_path / "run.db", rules={"m": 1}) as (service, transport):
        steer(tmp_path / "run.db", "pause")
        until(lambda: service.steering.paused)
        with worker(transport, spool=tmp_path / "spool") as one:
            found = []
            thread = threading.Thread(target=lambda: found.append(one.run(HALFWAY, plan)))
            thread.start()
            until(lambda: service.metrics.counts["refused"] > 2)
            assert len(one.spool.waiting()) == 1
            steer(tmp_path / "run.db", "resume")
            thread.join(30)
        assert found[0].accepted == 1
        until(lambda: service.published.newest.version == 1)


def test_workers_drop_what_builds_on_a_withdrawn_version(tmp_path):
    plan = WorkPlan(steps=ConstantSteps(1), local_lr=0.5, updates=1)
    with served(tmp_path / "run.db", rules={"m": 1}) as (service, transport):
        with worker(transport, "ann", spool=tmp_path / "ann") as one:
            one.run(HALFWAY, plan)
            until(lambda: service.published.newest.version == 1)
            one.pull()
            steer(tmp_path / "run.db", "rollback", {"to": 0})
            until(lambda: service.steering.withdrawn)  # it reads what is settled a moment later
            with pytest.raises(WorkerError) as told:
                one.push(np.ones(DIM, np.float32), local_lr=0.1)
            assert (told.value.code, one.spool.waiting()) == ("withdrawn", [])
            assert one.run(HALFWAY, plan).accepted == 1
        until(lambda: service.published.newest.version == 3)


def test_a_control_of_too_large_norm_is_refused(tmp_path):
    rules = {"m": 1, "local_rule": "scaffold", "workers": 2}
    limits = {"max_norm": 10.0}
    ones = np.ones(DIM, np.float32)
    with (
        served(tmp_path / "run.db", rules=rules, limits=limits) as (_, transport),
        worker(transport) as one,
    ):
        with pytest.raises(WorkerError) as refused:
            one.push(ones, local_lr=0.1, extras={"control": 1000 * ones})
        assert refused.value.code == "not_finite"
        assert one.push(ones, local_lr=0.1, extras={"control": ones}).status == "accepted"


def test_a_refusal_carries_the_code_of_the_server(tmp_path):
    ones = np.ones(DIM, np.float32)
    limits = {"max_staleness": 1, "max_norm": 1.0}
    with (
        served(tmp_path / "run.db", rules={"m": 1}, limits=limits) as (service, transport),
        worker(transport) as one,
    ):
        for version in (1, 2):
            one.pull()
            one.push(ones, local_lr=0.1)
            until(lambda version=version: service.published.newest.version == version)
        for code, given in {
            "stale": {"base_version": 0, "local_lr": 0.1},
            "unknown_version": {"base_version": 9, "local_lr": 0.1},
            "not_finite": {"local_lr": 1.0},
        }.items():
            with pytest.raises(WorkerError) as refused:
                one.push(ones, **given)
            assert refused.value.code == code


def test_the_worker_knows_all_final_refusals_of_the_server():
    """Of one that it did not know, it would take the update for unjudged and keep it for ever."""
    about_updates = {found for found in refused_with() if found[0] in (409, 410, 413, 422)}
    assert about_updates == FINAL_REFUSALS
