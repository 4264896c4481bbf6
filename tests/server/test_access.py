from __future__ import annotations

from dataclasses import replace

import pytest

from anarchic.errors import ConfigError
from anarchic.server.access import bearer, new_token
from anarchic.server.refusals import Refusal


def test_a_token_proves_its_worker_and_is_not_in_the_account():
    token, account = new_token("ann")
    assert token.startswith("ann.")
    assert token.partition(".")[2].encode() not in account.token_hash
    assert bearer(f"Bearer {token}", {"ann": account}) == "ann"
    assert bearer(f"bearer {token}", {"ann": account}) == "ann"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ann.wrong", "Bearer bob.x", "x"])
def test_anything_else_proves_nothing(header):
    _, account = new_token("ann")
    with pytest.raises(Refusal) as refused:
        bearer(header, {"ann": account})
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")


def test_the_scheme_matters_and_so_does_every_character():
    token, account = new_token("ann")
    for header in (f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}", token):
        with pytest.raises(Refusal):
            bearer(header, {"ann": account})


def test_the_placeholder_account_is_never_accepted():
    with pytest.raises(Refusal):
        bearer("Bearer .", {})


def test_a_revoked_token_is_told_so():
    token, account = new_token("ann")
    with pytest.raises(Refusal) as refused:
        bearer(f"Bearer {token}", {"ann": replace(account, revoked=True)})
    assert (refused.value.status, refused.value.code) == (403, "revoked")


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b", "ä"])
def test_names_are_plain(name):
    with pytest.raises(ConfigError, match="worker's name"):
        new_token(name)
