"""Random sequences of updates, commands and kills: nothing is lost and a replay agrees."""

from __future__ import annotations

from contextlib import contextmanager, suppress

import numpy as np
import pytest

from anarchic.errors import ConfigError, StoreUnavailable
from anarchic.server.commands import commands
from tests.server.make import body
from tests.server.operated import RULES, Died, worlds

ACTS = ["push"] * 20 + ["turn"] * 8 + ["kill", "late", "timer"] + ["die", "fail"] * 2
ACTS += ["pause", "resume", "resume", "set", "set", "to", "without", "revise"]
WORKERS = ("ann", "bob", "cyn", "eve")


def act(run, name, rng):
    version = run.version
    if name == "push":
        run.push(str(rng.choice(WORKERS)), base=int(rng.integers(max(0, version - 3), version + 1)))
    elif name == "turn":
        run.turns(int(rng.integers(1, 4)))
    elif name == "timer":
        run.clock.now += 60
        run.turns()
    elif name in ("pause", "resume"):
        run.give(name)
    elif name == "set":
        run.give("set", m=int(rng.integers(1, 5)), server_lr=float(rng.uniform(0.1, 2)))
    elif name == "revise":
        run.give("set", staleness_power=float(rng.uniform(0, 1)), clip=float(rng.uniform(0.1, 9)))
    elif name == "to" and version:
        run.give("rollback", to=int(rng.integers(0, version)), withdrawn=True)
    elif name == "without" and version:
        to = int(rng.integers(1, version + 1)) if rng.random() < 0.5 else None
        with suppress(ConfigError):  # the worker has no update yet
            run.give("rollback", without=str(rng.choice(WORKERS)), to=to, withdrawn=True)
    elif name == "late" and version:  # checked before a rollback, stored after it
        base = int(rng.integers(max(0, version - 3), version + 1))
        late_update(run, str(rng.choice(WORKERS)), base)
    elif name == "kill":
        run.kill()


def late_update(run, worker, base):
    run.sent += 1
    id = str(run.sent)
    new, decoded = run.service.check.check(bytearray(body(worker, id, base, seed=run.sent)), None)
    run.service.pending.reserve(worker)
    run.service.pending.accept([(new, decoded)])
    run.accepted[id] = worker


def interrupted(run, rng, error):
    """Turns during which the process dies, or the store fails, at a random transaction."""
    left, after = int(rng.integers(1, 4)), bool(rng.random() < 0.5)
    database = run.store._database
    writing = database.writing

    @contextmanager
    def broken():
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise error
        with writing() as connection:
            yield connection
        if left == 0:
            raise error

    database.writing = broken
    try:
        run.turns(4)
    except Died:
        run.kill()
    finally:
        vars(database).pop("writing")


def whatever_is_done(run, rng):
    for name in rng.choice(ACTS, 60):
        if name in ("die", "fail"):
            act(run, str(rng.choice(["set", "to", "without", "push"])), rng)
            gone = StoreUnavailable("The disk is gone.")
            interrupted(run, rng, Died() if name == "die" else gone)
        else:
            act(run, str(name), rng)
    run.kill()
    run.turns(4)
    assert all(command.outcome != "waiting" for command in commands(run.store))
    run.check()
    run.give("end")
    run.turns(len(run.accepted) + 8)
    assert run.service.pending.count == 0
    assert all(row.version is not None for row in run.check())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(RULES)))
def test_whatever_is_done_nothing_is_lost_and_a_replay_agrees(in_file, seed):
    whatever_is_done(in_file([*RULES.values()][seed]), np.random.default_rng(seed))


@pytest.mark.slow
def test_whatever_is_done_nothing_is_lost_in_postgresql(postgres):
    with worlds(postgres.new_place()) as make:
        whatever_is_done(make(RULES["adam"]), np.random.default_rng(1))


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_whatever_is_done_a_hundred_times(in_file, seed):
    whatever_is_done(in_file([*RULES.values()][seed % len(RULES)]), np.random.default_rng(seed))
