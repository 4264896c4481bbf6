"""The best version is kept for ever, and a run ends by itself when it has reached its goal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sqlalchemy import select

from anarchic.errors import StoreUnavailable
from anarchic.server import keeping
from anarchic.server import tables as t
from anarchic.server.commands import issue, mark
from anarchic.server.goals import EvaluationMetric, metric, target
from anarchic.server.keeping import Keeper, end_run, near
from anarchic.server.published import PublishedModel
from anarchic.server.rollbacks import kept_versions
from anarchic.server.store import Store
from tests.server.conftest import Opener
from tests.server.live import serving, until
from tests.server.make import body
from tests.server.stored import led, next_version

ACCURACY = metric("accuracy", "--keep-best")


def best_version(store: Store) -> int | None:
    with store.reading() as connection:
        found = select(t.models.c.version).where(t.models.c.kept == "best accuracy")
        return connection.execute(found).scalar_one_or_none()


class Run:
    """A store in which versions are published and judged."""

    def __init__(
        self, store: Store, best: EvaluationMetric | None = ACCURACY, **goals: Any
    ) -> None:
        self.store, self.epoch = store, led(store)
        self.said: list[tuple[str, dict[str, object]]] = []
        log = lambda event, **facts: self.said.append((event, facts))  # noqa: E731
        self.keeper = Keeper(store, log, best=best, **goals)

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.store.publish(next_version(self.store, self.epoch, []))

    def model(self, version: int, text: str | None = None) -> PublishedModel:
        body = (text or f"model {version}").encode()
        epochs = self.store.epochs()
        epoch = None if version == 0 else epochs[0][1]
        return PublishedModel("run", version, body, None, frozenset(), epoch)

    def judge(self, version: int, **found: float) -> None:
        self.store.add_evaluation(version, found)
        self.keeper.evaluated(self.model(version), found)


def opened_run(opened: Opener, **goals: Any) -> Run:
    store = opened(history=2, history_bytes=0)
    if store.run() is None:
        store.create({}, b"model 0", b"state 0")
    return Run(store, **goals)


def test_the_best_version_stays_and_the_former_best_goes(opened: Opener) -> None:
    run = opened_run(opened)
    run.publish(3)
    run.judge(2, accuracy=0.5)
    run.publish(10)
    assert kept_versions(run.store) == [2, 12, 13]
    run.judge(12, accuracy=0.4)
    run.publish(10)
    assert kept_versions(run.store) == [2, 22, 23]
    run.judge(22, accuracy=0.6)
    run.publish(10)
    assert kept_versions(run.store) == [22, 32, 33]
    assert best_version(run.store) == 22
    assert [facts["version"] for event, facts in run.said if event == "kept_best"] == [2, 22]


def test_a_version_that_was_thinned_out_while_it_was_judged_comes_back(opened: Opener) -> None:
    run = opened_run(opened)
    run.publish(20)
    assert run.store.model(5) is None
    run.judge(5, accuracy=0.9)
    assert run.store.model(5) == b"model 5"
    run.publish(20)
    assert kept_versions(run.store) == [5, 39, 40]


def test_a_model_of_a_lost_epoch_does_not_come_back(opened: Opener) -> None:
    """The run was restored while the version was evaluated: its number means another model."""
    run = opened_run(opened)
    run.publish(20)
    lost = PublishedModel("run", 5, b"a lost model", None, frozenset(), "another epoch")
    run.keeper.evaluated(lost, {"accuracy": 1.0})
    assert run.store.model(5) is None


def test_the_best_is_known_after_a_restart(opened: Opener) -> None:
    run = opened_run(opened)
    run.publish(3)
    run.judge(2, accuracy=0.5)
    run.publish(10)
    run.store.close()
    run = opened_run(opened)
    run.publish()
    run.judge(14, accuracy=0.4)
    run.publish(10)
    assert kept_versions(run.store) == [2, 23, 24]
    run.judge(24, accuracy=0.7)
    run.publish(10)
    assert kept_versions(run.store) == [24, 33, 34]


def test_a_version_that_was_rolled_back_is_no_longer_the_best(opened: Opener) -> None:
    run = opened_run(opened)
    run.publish(4)
    run.judge(3, accuracy=0.5)
    run.publish(4)
    run.judge(7, accuracy=0.99)  # a bad version, by a judge that was fooled
    arguments = {"to": 3, "without": None, "first": 4}
    command = issue(run.store, "rollback", arguments, by="ann", now_s=0.0)
    with run.store.writing() as connection:
        mark(connection, command, version=8, at_s=1.0, reason="")
    run.publish(3)
    run.judge(10, accuracy=0.6)
    run.publish(5)
    assert best_version(run.store) == 10
    assert kept_versions(run.store) == [10, 15, 16]


def test_less_is_better_of_a_loss_and_nan_is_never_best(opened: Opener) -> None:
    run = opened_run(opened, best=metric("loss", "--keep-best"))
    run.publish(9)
    for version, loss in ((5, 0.5), (6, float("nan")), (7, 0.4), (8, 0.6)):
        run.judge(version, loss=loss)
    run.judge(9, accuracy=1.0)  # a judge may leave the metric out
    run.publish(9)
    assert kept_versions(run.store) == [7, 17, 18]


def test_a_version_may_be_kept_for_two_reasons(opened: Opener) -> None:
    store = opened(history=2, history_bytes=0, keep_every=10)
    store.create({}, b"model 0", b"state 0")
    run = Run(store)
    run.publish(12)
    run.judge(10, accuracy=0.5)
    run.publish(10)
    run.judge(21, accuracy=0.6)
    run.publish(5)
    assert kept_versions(store) == [10, 20, 21, 26, 27]


def test_a_best_that_could_not_be_marked_is_marked_later(opened: Opener, monkeypatch: Any) -> None:
    run = opened_run(opened)
    run.publish(9)

    def full(*_: object) -> None:
        raise StoreUnavailable("no room")

    with monkeypatch.context() as patched:
        patched.setattr(keeping, "keep_as_best", full)
        run.judge(8, accuracy=0.9)
    assert run.said[-1] == ("store_error", {"reason": "no room"})
    run.judge(9, accuracy=0.1)
    run.publish(9)
    assert best_version(run.store) == 8
    assert kept_versions(run.store) == [8, 17, 18]


def commands(store: Store) -> list[tuple[str, str]]:
    with store.reading() as connection:
        found = connection.execute(select(t.commands.c.kind, t.commands.c.arguments))
        return [(kind, arguments) for kind, arguments in found]


def test_a_target_ends_the_run_once(opened: Opener) -> None:
    run = opened_run(opened, best=None, target=target("accuracy=0.8"))
    run.publish(3)
    run.judge(1, accuracy=0.7)
    assert commands(run.store) == []
    run.judge(2, accuracy=0.85)
    run.judge(3, accuracy=0.9)
    [(kind, told)] = commands(run.store)
    assert kind == "end"
    assert "Version 2 has accuracy 0.85" in told
    assert [event for event, _ in run.said] == ["target_reached"]
    assert not end_run(run.store, "again")


def test_a_metric_that_the_judge_never_returns_is_told_once_with_those_there_are(
    opened: Opener,
) -> None:
    run = opened_run(opened, best=metric("acuracy", "--keep-best"), target=target("f1=0.9"))
    run.publish(2)
    assert run.keeper.notes() == []
    for version in (1, 2):
        run.judge(version, accuracy=0.5, loss=1.0)
    told = [facts["reason"] for event, facts in run.said if event == "metric_missing"]
    assert told == run.keeper.notes()
    assert told[0].startswith(
        "--keep-best acuracy has no effect: the evaluation has accuracy, loss. "
        "Did you mean 'accuracy'?"
    )
    assert told[1].startswith("--target f1 has no effect")
    run.judge(2, acuracy=0.5, f1=0.1)
    assert run.keeper.notes() == []


def test_who_asks_for_a_version_that_is_gone_is_told_what_is_near(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path / "run.db", rules={"m": 1}) as (service, client):
            for number in range(40):
                sent = body("ann", str(number), base_version=number, seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await until(lambda: service.published.newest.version == number + 1)  # noqa: B023
            run = service.run
            kept = kept_versions(service.store)
            gone = next(version for version in range(1, 40) if version not in kept)
            answer = await client.get(f"/v1/runs/{run}/models/{gone}")
            before, after = near(service.store, gone)
            assert before < gone < after
            assert answer.status_code == 404
            assert f"Kept next to it: {before} and {after}." in answer.json()["message"]
            for version in (before, after):
                found = await client.get(f"/v1/runs/{run}/models/{version}")
                assert found.headers["x-anarchic-version"] == str(version)
            answer = await client.get(f"/v1/runs/{run}/models/41")
            assert "Kept next" not in answer.json()["message"]

    asyncio.run(scenario())
