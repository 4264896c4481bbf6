from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anarchic.errors import ConfigError
from anarchic.server.access import NEIGHBOURS, Access, bearer
from anarchic.server.accounts import new_token, put_account
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Limits, ServerSettings
from anarchic.server.slots import network
from anarchic.server.store import open_store

NOW = 1_800_000_000.0
DOCS = Path(__file__).parents[2] / "docs"


def test_a_token_proves_its_worker_and_is_not_in_the_account():
    token, account = new_token("ann")
    assert token.startswith("ann.")
    assert token.partition(".")[2].encode() not in account.token_hash
    for scheme in ("Bearer", "bearer"):
        assert bearer(f"{scheme} {token}", {"ann": account}, NOW) == (account, account.token_hash)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ann.wrong", "Bearer bob.x", "x"])
def test_anything_else_proves_nothing(header):
    _, account = new_token("ann")
    with pytest.raises(Refusal) as refused:
        bearer(header, {"ann": account}, NOW)
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")


def test_the_scheme_matters_and_so_does_every_character():
    token, account = new_token("ann")
    for header in (f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}", token):
        with pytest.raises(Refusal):
            bearer(header, {"ann": account}, NOW)


def test_the_placeholder_account_is_never_accepted():
    with pytest.raises(Refusal):
        bearer("Bearer .", {}, NOW)


def test_a_revoked_token_is_told_so():
    token, account = new_token("ann")
    with pytest.raises(Refusal) as refused:
        bearer(f"Bearer {token}", {"ann": replace(account, revoked=True)}, NOW)
    assert (refused.value.status, refused.value.code) == (403, "revoked")


def test_a_replaced_token_is_no_token_as_the_pages_say():
    former, _ = new_token("ann")
    with pytest.raises(Refusal) as refused:
        bearer(f"Bearer {former}", {"ann": new_token("ann")[1]}, NOW)
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    lines = (DOCS / "protocol.md").read_text().splitlines()
    assert "replaced" in next(line for line in lines if "| 401 | `unauthorized`" in line)
    told = " ".join((DOCS / "commands.md").read_text().split())
    assert "is refused without reading the rest of it: nothing of it is stored" in told


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b", "ä", ".."])
def test_names_are_plain(name):
    with pytest.raises(ConfigError, match="worker's name"):
        new_token(name)


def test_a_name_may_have_dots_as_in_the_protocol():
    token, account = new_token("ann.phone")
    accounts = {"ann.phone": account, "ann": new_token("ann")[1]}
    assert bearer(f"Bearer {token}", accounts, NOW)[0].worker == "ann.phone"


@pytest.fixture
def access(tmp_path):
    """Open enrolment, with a token of ann; hardly anything comes back into a bucket."""
    store = open_store(tmp_path / "run.db")
    limits = Limits(burst=2, updates_per_minute=1e-6)
    found = Access(store, ServerSettings(limits=limits, open_enrolment=True), print)
    found.token, account = new_token("ann")
    put_account(store, account)
    found.read()
    yield found
    store.close()


def test_an_address_has_a_pace_whatever_names_it_uses(access):
    for number in range(2 * NEIGHBOURS):
        access.admit(access.may_push(None, "192.0.2.1"), f"worker-{number}")
    with pytest.raises(Refusal, match="slow_down"):
        access.may_push(None, "192.0.2.1")
    access.may_push(None, "192.0.2.2")
    access.may_push(f"Bearer {access.token}", "192.0.2.1")


def test_a_name_that_has_a_token_costs_its_worker_nothing(access):
    for _ in range(5):
        with pytest.raises(Refusal, match="name_taken"):
            access.admit(access.may_push(None, "192.0.2.1"), "ann")
    for _ in range(2):
        access.admit(access.may_push(f"Bearer {access.token}", "192.0.2.1"), "ann")
    with pytest.raises(Refusal, match="slow_down"):
        access.may_push(f"Bearer {access.token}", "192.0.2.1")


def test_neighbours_in_ipv6_are_one_address():
    assert network("2001:db8::1") == network("2001:db8::ffff:1") != network("2001:db9::1")
    assert network("::ffff:192.0.2.1") == network("192.0.2.1") == "192.0.2.1"
    assert network("") == ""


def test_a_token_does_what_its_rights_say_and_no_more(tmp_path):
    store = open_store(tmp_path / "run.db")
    made = {"ann": "pull,push", "eye": "pull", "ops": "operate", "all": "pull,push,operate"}
    tokens = {}
    for name, rights in made.items():
        tokens[name], account = new_token(name, rights=rights)
        put_account(store, account)
    access = Access(store, ServerSettings(), print)
    access.read()
    asked = {
        "pull": lambda header: access.may_pull(header, "192.0.2.1"),
        "push": lambda header: access.may_push(header, "192.0.2.1").worker,
        "operate": access.may_operate,
    }
    for name, rights in made.items():
        for right, ask in asked.items():
            if right in rights:
                assert ask(f"Bearer {tokens[name]}") == name
            else:
                with pytest.raises(Refusal) as refused:
                    ask(f"Bearer {tokens[name]}")
                assert (refused.value.status, refused.value.code) == (403, "not_allowed")
                assert right in refused.value.remedy
    for header in (None, "Bearer ops.wrong"):
        with pytest.raises(Refusal) as refused:
            access.may_operate(header)
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    store.close()


@pytest.mark.parametrize("rights", ["", "steer", "pull,", "pull,pull", "pull, push", "pullpush"])
def test_rights_that_there_are_not_are_refused(rights):
    with pytest.raises(ConfigError, match="rights are one or more of pull, push, operate"):
        new_token("ann", rights=rights)
