"""The overview of a run, on both databases."""

from __future__ import annotations

from contextlib import closing

import pytest

from anarchic.cli.status import text_of
from anarchic.errors import ConfigError
from anarchic.server.accounts import new_token, put_account
from anarchic.server.activity import Activity
from anarchic.server.commands import issue
from anarchic.server.overview import listed, overview, sort_workers
from anarchic.server.store import open_store
from tests.server.make import LAYOUT, begun
from tests.server.stored import new, next_version


def test_a_run_is_shown_though_nothing_was_counted_yet(place):
    with closing(open_store(place)) as store:
        begun(store, m=2, server_lr=0.5)
        epoch = store.lead()
        facts = {"base_version": 0, "received_s": 1000.0}
        updates = [new(name, "1", **facts) for name in ("ann", "bob", "cleo")]
        seqs = [receipt.seq for receipt in store.append(updates)]
        store.publish(next_version(store, epoch, seqs[:2]))
        issue(store, "pause", {}, by="boss", now_s=990.0)
        found = overview(store, now_s=1010.0)
        assert (found["rule"], found["m"], found["server_lr"]) == ("afa-cd", 2, 0.5)
        assert (found["version"], found["buffered"], found["parameters"]) == (1, 1, LAYOUT.dim)
        assert found["updates"]["accepted"] == 3
        assert found["rate_per_s"] == pytest.approx(3 / 10)  # since the first
        assert [(c["kind"], c["issued_by"]) for c in found["commands"]] == [("pause", "boss")]
        assert found["state"] == "running"  # it waits
        shown = {w["worker"]: (w["updates"], w["waiting"]) for w in found["workers"]}
        assert shown == {"ann": (1, 0), "bob": (1, 0), "cleo": (0, 1)}
        assert overview(store, now_s=2000.0)["rate_per_s"] == 0.0
        Activity(store).tick(leads=True)  # once counted it is the same
        assert overview(store, now_s=1010.0) == found


def test_operators_are_no_workers_unless_they_have_pushed(place):
    with closing(open_store(place)) as store:
        begun(store, m=2)
        rights = {"olga": "operate", "otto": "pull,operate", "eva": "operate", "ann": "pull"}
        for name, may in rights.items():
            put_account(store, new_token(name, rights=may)[1])
        store.append([new("eva", "1", base_version=0)])  # before her token was changed
        activity = Activity(store)
        for name in rights:
            activity.refused("bad_command", name)
        activity.tick(leads=True)
        found = overview(store)
        assert sorted(w["worker"] for w in found["workers"]) == ["ann", "eva"]
        assert found["refusals"] == {"bad_command": 4}


def test_pages_are_pieces_of_the_whole(place):
    with closing(open_store(place)) as store:
        begun(store, m=2)
        epoch = store.lead()
        updates = [new(f"w{n:02}", "1", base_version=0, norm=1.0 + n) for n in range(20)]
        seqs = [receipt.seq for receipt in store.append(updates)]
        store.publish(next_version(store, epoch, seqs))
        whole = listed(store, limit=100)
        assert [w["worker"] for w in whole["workers"]] == [f"w{n:02}" for n in range(19, -1, -1)]
        pages = [listed(store, first=first, limit=7) for first in (0, 7, 14)]
        assert [w for page in pages for w in page["workers"]] == whole["workers"]
        assert {page["listed"] for page in pages} == {20}
        names = [w["worker"] for w in listed(store, sort="worker", limit=3)["workers"]]
        assert names == ["w00", "w01", "w02"]
        with pytest.raises(ConfigError, match="sort"):
            listed(store, sort="size")
        assert sum(w["share"] for w in whole["workers"]) == pytest.approx(1.0)


def test_who_was_told_to_wait_is_not_marked_as_refused(place):
    with closing(open_store(place)) as store:
        begun(store, m=2)
        store.append([new(name, "1", base_version=0) for name in ("ann", "bob", "cleo")])
        activity = Activity(store)
        later = ["too_many_updates"] * 9 + ["store_full", "busy"]
        for name, codes in {"ann": later, "bob": ["stale"], "cleo": ["slow_down"]}.items():
            for code in codes * 2:
                activity.refused(code, name)
        activity.tick(leads=True)
        found = overview(store)
        assert {w["worker"]: w["marks"] for w in found["workers"]} == {
            "ann": [],
            "bob": ["refused"],
            "cleo": ["too fast"],
        }
        assert sort_workers(found["workers"], "refused")[0]["worker"] == "bob"
        assert found["updates"]["refused"] == 26
        told = text_of(found, 9).splitlines()
        assert any("3 accepted, 0 duplicate, 2 refused" in line for line in told)
        assert "refused    2 stale" in told
        assert "to wait    18 too_many_updates, 2 busy, 2 slow_down, 2 store_full" in told
        [ann] = [line for line in told if line.startswith("ann")]
        assert ann.split()[-2:] == ["0", "22"]
