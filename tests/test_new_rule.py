"""What a new rule costs: one file, and it is simulated, resumed, served, replayed and wrapped.

``examples/own_rule.py`` is the shortest; ``tests/core/rules/decaying.py`` keeps several things of
each worker and has a schedule. Both are known by ``module:Name`` alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from anarchic import Settings, Update, build, simulate, wire
from anarchic.server.accounts import new_token, put_account
from anarchic.server.replay import replay
from anarchic.server.runs import begin
from anarchic.server.settings import RuleSettings
from anarchic.server.store import open_store
from tests.server.live import newest_snapshot, serving, until
from tests.server.make import Recording

pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[1] / "examples"
WORKERS, M, ROUNDS = 6, 3, 12
RULES = ["own_rule:Median", "tests.core.rules.decaying:Decaying"]


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def settings(rule: str, **more: object) -> Settings:
    return Settings(
        rule=rule,
        workers=WORKERS,
        m=M,
        rounds=ROUNDS,
        batch=8,
        participation="exponential",
        **more,  # type: ignore[arg-type]
    )


def tokens_of(path: Path) -> dict[int, str]:
    """A token for every worker: a rule that remembers all who come is not for open enrolment."""
    store = open_store(path)
    tokens = {}
    for worker in range(WORKERS):
        tokens[worker], account = new_token(str(worker))
        put_account(store, account)
    store.close()
    return tokens


class Stopped(Exception):
    pass


@pytest.mark.parametrize("rule", RULES)
def test_a_run_is_resumed_to_the_same_bytes(rule: str, tmp_path: Path) -> None:
    def stop(progress) -> None:
        if progress.round == 7:
            raise Stopped

    with pytest.raises(Stopped):
        simulate(settings(rule), out=tmp_path / "run", checkpoint_every=2, watch=stop)
    resumed = simulate(out=tmp_path / "run", resume=True)
    assert resumed.params.tobytes() == simulate(settings(rule)).params.tobytes()


@pytest.mark.parametrize(
    "wrappers",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"clip": 0.5, "staleness_power": 0.5, "guard": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", RULES)
def test_a_simulated_run_is_served_and_replayed_to_the_same_bytes(
    rule: str, wrappers: dict[str, float], tmp_path: Path
) -> None:
    backend = Recording()
    experiment = replace(build(settings(rule, **wrappers)), backend=backend)
    expected = simulate(experiment).params
    task, table, path = experiment.task, experiment.timetable, tmp_path / "run.db"
    assert table.staleness.max() > 0
    store = open_store(path, keep_payloads=True)
    begin(store, RuleSettings(rule=rule, m=M, **wrappers), task.layout, task.init())
    store.close()

    async def serve(rows: range) -> bytes:
        limits = {"per_worker": M}
        async with serving(path, limits=limits, **enrolment) as (service, client):
            for row in rows:
                worker, visit = int(table.worker[row]), int(table.visit[row])
                direction = backend.directions[worker, visit]
                version, steps = int(table.base_version[row]), int(table.local_steps[row])
                update = Update(str(worker), version, steps, 0.1, direction, id=str(visit))
                body = wire.encode_update(task.layout, update, worker=update.worker)
                headers = {"Authorization": f"Bearer {tokens[worker]}"}
                answer = await client.post("/v1/updates", content=body, headers=headers)
                assert answer.status_code == 202, answer.text
                if (row + 1) % M == 0:
                    await until(lambda r=row: service.published.newest.version == (r + 1) // M)
            return newest_snapshot(service).params.tobytes()

    tokens, enrolment = tokens_of(path), {"open_enrolment": False}
    half = ROUNDS // 2 * M
    asyncio.run(serve(range(half)))  # started again, it goes on with what the store has
    assert asyncio.run(serve(range(half, len(table)))) == expected.tobytes()
    store = open_store(path, keep_payloads=True)
    again = replay(store)
    store.close()
    assert (again.version, again.updates, again.equal) == (ROUNDS, ROUNDS * M, True)
