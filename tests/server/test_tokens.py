"""Tokens that expire, are rotated and move to another run, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from threading import Barrier, Thread

import pytest

from anarchic.errors import ConfigError, StoreError
from anarchic.server import access as access_module
from anarchic.server.access import SOON_S, USED_S, Access
from anarchic.server.accounts import (
    accounts,
    accounts_mark,
    change_account,
    new_token,
    note_used,
    put_account,
)
from anarchic.server.refusals import Refusal
from anarchic.server.settings import ServerSettings
from anarchic.server.store import open_store
from anarchic.server.tokens import (
    add_token,
    export_tokens,
    import_tokens,
    list_tokens,
    parse_end,
    parse_span,
    revoke_token,
    rotate_token,
)

NOW, DAY = 1_800_000_000.0, 86_400.0  # 2027-01-15 08:00 UTC


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now_s = self._latest_s = NOW

    def time(self):
        return self.now_s

    def monotonic(self):
        self._latest_s = max(self._latest_s, self.now_s)
        return self._latest_s


class World:
    """One store, its access, and the lines of its log."""

    def __init__(self, opened):
        self.clock, self.lines, self.store = Clock(), [], opened()
        self.access = Access(self.store, ServerSettings(), self._log, self.clock)

    def _log(self, event, **facts):
        self.lines.append((event, facts))

    def told(self, token):
        """What becomes of a push with this token."""
        self.access.read()
        try:
            return self.access.may_push(f"Bearer {token}", "192.0.2.1").worker
        except Refusal as refusal:
            return refusal.status, refusal.code


@pytest.fixture
def world(opened):
    return World(opened)


def test_a_token_ends_at_its_time_by_the_clock_of_the_server(world, place):
    token = add_token(place, "ann", expires_s=NOW + 10)
    found = []
    for moved_s in (0, 9.99, 10, 1e6, -1e6):  # a clock that is set back makes it valid again
        world.clock.now_s = NOW + moved_s
        found.append(world.told(token))
    assert found == ["ann", "ann", (401, "expired"), (401, "expired"), "ann"]
    world.clock.now_s = NOW + 11
    with pytest.raises(Refusal, match="expired on 2027-01-15 08:00 UTC") as refused:
        world.access.may_pull(f"Bearer {token}", "192.0.2.1")
    assert refused.value.retry_after_s == 60
    assert world.access.named(f"Bearer {token}") == {"worker": "ann"}
    assert world.told("ann.wrong") == (401, "unauthorized")  # who guesses learns nothing
    revoke_token(place, "ann")
    assert world.told(token) == (403, "revoked")


def test_both_tokens_are_taken_until_the_overlap_is_over(world, place):
    old = add_token(place, "ann", rights="pull,push,operate")
    new = rotate_token(place, "ann", overlap_s=DAY, clock=world.clock)
    assert old != new
    assert [world.told(old), world.told(new)] == ["ann", "ann"]
    assert world.access.may_operate(f"Bearer {new}") == "ann"
    pusher = world.access.may_push(f"Bearer {old}", "192.0.2.1")
    world.clock.now_s += DAY
    assert [world.told(old), world.told(new)] == [(401, "unauthorized"), "ann"]
    with pytest.raises(Refusal, match="revoked"):  # an upload that began before
        world.access.admit(pusher, "ann")
    newest = rotate_token(place, "ann", overlap_s=0, clock=world.clock)
    assert [world.told(new), world.told(newest)] == [(401, "unauthorized"), "ann"]


def test_revoking_ends_the_old_token_too(world, place):
    old = add_token(place, "ann")
    new = rotate_token(place, "ann", overlap_s=DAY, clock=world.clock)
    revoke_token(place, "ann")
    assert [world.told(old), world.told(new)] == [(403, "revoked")] * 2
    with pytest.raises(ConfigError, match="is revoked, so there is none to rotate"):
        rotate_token(place, "ann", overlap_s=DAY, clock=world.clock)
    again = add_token(place, "ann")
    assert [world.told(t) for t in (old, new, again)] == [(401, "unauthorized")] * 2 + ["ann"]


def test_an_old_token_does_not_outlive_its_end(world, place):
    old = add_token(place, "ann", expires_s=NOW + 60)
    new = rotate_token(place, "ann", overlap_s=DAY, expires_s=NOW + 9 * DAY, clock=world.clock)
    world.clock.now_s += 59
    assert [world.told(old), world.told(new)] == ["ann", "ann"]
    world.clock.now_s += 1
    assert [world.told(old), world.told(new)] == [(401, "unauthorized"), "ann"]
    world.clock.now_s += 9 * DAY
    with pytest.raises(ConfigError, match="has expired, and a new one would have too"):
        rotate_token(place, "ann", overlap_s=DAY, clock=world.clock)
    last = rotate_token(
        place, "ann", overlap_s=DAY, expires_s=world.clock.now_s + DAY, clock=world.clock
    )
    assert [world.told(new), world.told(last)] == [(401, "unauthorized"), "ann"]


def test_the_log_tells_once_and_a_week_before_which_token_ends(world, place):
    for name, days in {"ann": 8.0, "bob": 2.0, "cleo": -1.0, "dora": 3.0}.items():
        add_token(place, name, expires_s=NOW + days * DAY)
    add_token(place, "eve")
    revoke_token(place, "dora")

    def look():
        world.lines.clear()
        world.access._look()
        return [(event, facts["worker"], facts["days"]) for event, facts in world.lines]

    assert look() == [("token_expires_soon", "bob", 2)]
    add_token(place, "eve")  # the accounts are read again
    assert look() == []
    world.clock.now_s += 8 * DAY - SOON_S + 1
    assert look() == [("token_expires_soon", "ann", 6)]
    add_token(place, "bob", expires_s=world.clock.now_s + DAY / 2)
    assert look() == [("token_expires_soon", "bob", 0)]
    assert look() == []


def test_when_tokens_were_used_is_stored_once_a_minute(world, place, monkeypatch):
    monkeypatch.setattr(access_module, "ACCOUNTS_S", 0.01)
    writes = []
    monkeypatch.setattr(
        access_module, "note_used",
        lambda store, used: (writes.append(dict(used)), note_used(store, used)),
    )  # fmt: skip
    ann, bob = add_token(place, "ann"), add_token(place, "bob")
    expired = add_token(place, "cleo", expires_s=NOW - 1)
    world.told(expired)

    async def scenario():
        watching = asyncio.create_task(world.access.watch())
        for step in range(3):
            for _ in range(50):
                world.told(ann)
            if step == 0:
                world.told(bob)
            await asyncio.sleep(0.1)
            assert len(writes) == step
            world.clock.now_s += USED_S
            async with asyncio.timeout(5):
                while len(writes) == step:
                    await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        watching.cancel()

    mark = accounts_mark(world.store)
    asyncio.run(scenario())
    assert writes == [{"ann": NOW, "bob": NOW}, {"ann": NOW + USED_S}, {"ann": NOW + 2 * USED_S}]
    found = {account.worker: account.used_s for account in list_tokens(place)}
    assert found == {"ann": NOW + 2 * USED_S, "bob": NOW, "cleo": None}
    assert accounts_mark(world.store) == mark  # no server reads the accounts again for that
    note_used(world.store, {"ann": NOW})  # by a replica that is late
    assert accounts(world.store)["ann"].used_s == NOW + 2 * USED_S


def test_a_store_that_cannot_note_a_use_stops_nothing(world, place, monkeypatch):
    def full(store, used):
        raise StoreError("The disk is full.")

    monkeypatch.setattr(access_module, "note_used", full)
    world.told(add_token(place, "ann"))
    asyncio.run(world.access.store_used())
    assert world.lines == [("store_error", {"reason": "The disk is full."})]


def test_changes_at_the_same_time_are_not_lost(opened, place):
    """Rotating reads and writes: an account that is revoked meanwhile must stay so."""
    tokens = {name: add_token(place, name) for name in ("ann", "bob")}
    assert tokens
    stores, start = [opened() for _ in range(4)], Barrier(4)

    def add_up(store):
        start.wait()
        for _ in range(5):
            change_account(store, "ann", lambda a: replace(a, expires_s=(a.expires_s or 0.0) + 1))

    threads = [Thread(target=add_up, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accounts(stores[0])["ann"].expires_s == 20


def test_tokens_move_to_another_run(world, place, tmp_path):
    old = add_token(place, "ann", rights="pull,push,operate", expires_s=NOW + DAY)
    new = rotate_token(place, "ann", overlap_s=60, clock=world.clock)
    bob = add_token(place, "bob")
    revoke_token(place, "bob")
    note_used(world.store, {"ann": NOW})
    text = export_tokens(place)
    for token in (old, new, bob):
        assert token.partition(".")[2] not in text
    there = str(tmp_path / "next.db")
    assert import_tokens(text.encode(), there) == ["ann", "bob"]
    store = open_store(there)
    moved = Access(store, ServerSettings(), print, world.clock)
    moved.read()
    for token in (old, new):
        assert moved.may_operate(f"Bearer {token}") == "ann"
    with pytest.raises(Refusal, match="revoked"):
        moved.may_pull(f"Bearer {bob}", "192.0.2.1")
    assert accounts(store)["ann"].used_s is None
    store.close()


def test_an_import_replaces_nothing_unless_told_to(place, tmp_path):
    there = str(tmp_path / "next.db")
    for name in ("ann", "bob"):
        add_token(there, name)
    text = export_tokens(there).encode()
    before = add_token(place, "bob")
    with pytest.raises(ConfigError, match=r"has tokens of bob already\. Nothing was imported"):
        import_tokens(text, place)
    assert [account.worker for account in list_tokens(place)] == ["bob"]
    import_tokens(text, place, replace=True)
    found = {account.worker: account for account in list_tokens(place)}
    assert found == {account.worker: account for account in list_tokens(there)}
    assert found["bob"].token_hash != new_token("bob")[1].token_hash
    assert before


GOOD = {
    "worker": "ann", "token_hash": "0f" * 32, "revoked": False, "rights": "pull",
    "expires_s": None, "old_hash": None, "old_until_s": None,
}  # fmt: skip


def damaged():
    wrong = {
        "worker": ["", "..", "a b", "a/b", 7, None, "x" * 65],
        "token_hash": ["", "00", None, 7, "z" * 64, "00" * 33],
        "revoked": [0, None, "no"],
        "rights": ["", "steer", "pull,pull", None, ["pull"]],
        "expires_s": [True, -1.0, "soon", float("nan"), float("inf"), [1.0]],
        "old_hash": ["00", 7],
        "old_until_s": ["later"],
    }
    yield [GOOD, GOOD]
    yield [{**GOOD, "more": 1}]
    yield [{k: v for k, v in GOOD.items() if k != "rights"}]
    for name, values in wrong.items():
        for value in values:
            yield [{**GOOD, name: value}]


def test_fields_of_an_import_are_checked(tmp_path):
    from anarchic.server.tokens import _checksum

    path = tmp_path / "run.db"
    for tokens in damaged():
        text = json.dumps({"anarchic_tokens": 1, "sha256": _checksum(tokens), "tokens": tokens})
        with pytest.raises(ConfigError, match=r"no exported tokens: .*Nothing was imported"):
            import_tokens(text.encode(), path)
    assert not path.exists()
    text = json.dumps({"anarchic_tokens": 1, "sha256": _checksum([GOOD]), "tokens": [GOOD]})
    assert import_tokens(text.encode(), path) == ["ann"]


def test_a_damaged_import_is_refused_whole(tmp_path):
    for number in range(20):
        add_token(tmp_path / "a.db", f"w{number}", expires_s=NOW)
    text = export_tokens(tmp_path / "a.db").encode()
    assert len(import_tokens(text, tmp_path / "whole.db")) == 20
    path = tmp_path / "b.db"
    spoilt = [text[:at] for at in range(0, len(text), 97)]
    spoilt += [text[:at] + b"7" + text[at + 1 :] for at in range(150, len(text), 311)]
    spoilt += [b"", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"anarchic_tokens": 2}']
    for bad in spoilt:
        if bad != text:
            with pytest.raises(ConfigError, match="Nothing was imported"):
                import_tokens(bad, path)
    assert not path.exists()


def test_times_and_days():
    clock = Clock()
    spans = {"90d": 90 * DAY, "24h": DAY, "30m": 1800.0, "2w": 14 * DAY, "0h": 0.0}
    assert {text: parse_span(text) for text in spans} == spans
    assert parse_end("90d", clock) == NOW + 90 * DAY
    assert parse_end("2027-01-31", clock) == 1_801_440_000.0  # the day is part of it
    assert parse_end("2027-01-15", clock) == 1_800_057_600.0  # today
    for text in ("", "d", "-1d", "1.5d", "90", "90 d", "90y", "9999999999d", "٣d"):
        with pytest.raises(ConfigError, match="A time is a number with m, h, d or w"):
            parse_span(text)
    for text in ("0d", "2027-01-14", "9999-12-31", "200w2027", "2027-02-30", "999999999w"):
        with pytest.raises(ConfigError, match=r"A (token ends|time is)"):
            parse_end(text, clock)


def test_putting_an_account_keeps_all_of_it(opened, place):
    store = opened()
    _, account = new_token("ann", rights="pull", expires_s=NOW)
    whole = replace(account, old_hash=b"\1" * 32, old_until_s=NOW, used_s=NOW)
    put_account(store, whole)
    assert accounts(opened()) == {"ann": whole}
