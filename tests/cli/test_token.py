from __future__ import annotations

import pytest

from anarchic.server.store import open_store


def test_tokens_are_given_listed_and_revoked(anarchic, tmp_path):
    store = tmp_path / "run.db"
    token = anarchic("token", "add", "ann", "--store", store).output.strip()
    assert token.startswith("ann.")
    assert "valid" in anarchic("token", "list", "--store", store).output
    anarchic("token", "revoke", "ann", "--store", store)
    assert "revoked" in anarchic("token", "list", "--store", store).output
    opened = open_store(store)
    assert [account.revoked for account in opened.accounts().values()] == [True]
    opened.close()


@pytest.mark.parametrize(
    "words", [("replay", "rum.db"), ("token", "list"), ("token", "revoke", "ann")]
)
def test_a_mistyped_path_leaves_nothing_behind(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    where = () if words[0] == "replay" else ("--store", "rum.db")
    assert "There is no store rum.db" in refused(2, *words, *where)
    assert list(tmp_path.iterdir()) == []


def test_a_timer_must_be_positive(refused, tmp_path):
    words = ("serve", "--store", tmp_path / "run.db", "--step-after-s", "0")
    assert "step_after_s must be positive, got 0.0" in refused(2, *words)
    assert list(tmp_path.iterdir()) == []
