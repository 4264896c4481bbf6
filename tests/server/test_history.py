"""A live run read as a recorded one."""

from __future__ import annotations

from contextlib import closing

import pytest

from anarchic.errors import RunError
from anarchic.server.history import history, store_name
from anarchic.server.store import open_store
from tests.server.make import begun
from tests.server.stored import new, next_version


def train(store, versions=3, m=2, **facts):
    """Versions of m updates each, one second apart; every version is evaluated."""
    epoch = store.lead()
    store.add_evaluation(0, {"accuracy": 0.1, "loss": 2.0})
    for version in range(1, versions + 1):
        known = {"base_version": version - 1, "local_steps": 5, "received_s": 1000.0 + version}
        sent = [new(f"w{n}", f"{version}", **known | facts) for n in range(m)]
        seqs = [receipt.seq for receipt in store.append(sent)]
        store.publish(next_version(store, epoch, seqs))
        numbers = {"accuracy": 0.1 * version, "loss": float("nan") if version == 2 else 1.0}
        store.add_evaluation(version, numbers)


def test_evaluations_are_the_metrics_and_wall_time_is_the_time(place):
    with closing(open_store(place)) as store:
        begun(store, m=2, server_lr=0.5)
        train(store)
        found = history(store)
    assert found.rules.server_lr == 0.5
    assert found.rows[0] == {
        "accuracy": 0.1, "loss": 2.0, "round": 0, "virtual_s": 0.0, "updates": 0, "local_steps": 0,
    }  # fmt: skip
    assert found.rows[3] == {
        "accuracy": pytest.approx(0.3), "loss": 1.0, "round": 3, "virtual_s": 2.0, "updates": 6,
        "local_steps": 30,
    }  # fmt: skip
    assert found.rows[2]["loss"] is None  # it was not a number
    assert (found.ended, found.local_lrs) == (False, (0.1, 0.1))


def test_a_store_without_a_run_is_refused(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store, pytest.raises(RunError, match="no run"):
        history(store)


def test_an_address_is_shown_without_its_password():
    assert store_name("postgresql://ann:s3cret@host:5432/trial?sslmode=require") == "trial"
    assert store_name("runs/a.db") == store_name("sqlite:///runs/a.db") == "a.db"
