from __future__ import annotations

import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anarchic.cli import app
from anarchic.server.accounts import accounts, change_account, note_used
from anarchic.server.store import open_store


def test_tokens_are_given_listed_and_revoked(anarchic, tmp_path):
    store = tmp_path / "run.db"
    token = anarchic("token", "add", "ann", "--store", store).output.strip()
    assert token.startswith("ann.")
    assert "valid" in anarchic("token", "list", "--store", store).output
    anarchic("token", "revoke", "ann", "--store", store)
    assert "revoked" in anarchic("token", "list", "--store", store).output
    opened = open_store(store)
    assert [account.revoked for account in accounts(opened).values()] == [True]
    opened.close()


def test_tokens_are_exported_as_they_are_listed(anarchic, refused, tmp_path):
    store = tmp_path / "run.db"
    anarchic("token", "add", "ann", "--store", store)
    exported = anarchic("token", "export", store).output
    assert "ann" in exported
    assert exported == anarchic("token", "export", "--store", store).output
    assert "Name one store" in refused(2, "token", "export")
    assert "Name one store" in refused(2, "token", "export", store, "--store", store)


def test_a_directory_of_runs_is_no_store(refused, tmp_path):
    (tmp_path / "runs").mkdir()
    for name in ("mnist", "faces"):
        open_store(tmp_path / "runs" / f"{name}.db").close()
    told = refused(1, "token", "add", "ann", "--store", tmp_path / "runs")
    assert f"{tmp_path / 'runs' / 'NAME.db'} (there are faces, mnist)." in told


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


DOCS = Path(__file__).parents[2] / "docs"
HOUR, DAY = 3_600.0, 86_400.0


def change(path, worker, **facts):
    store = open_store(path)
    change_account(store, worker, lambda account: replace(account, **facts))
    store.close()


def test_the_list_says_what_each_token_is_worth(anarchic, tmp_path):
    store, now = tmp_path / "run.db", time.time()
    for name in ("ann", "bob", "cleo", "dora"):
        anarchic("token", "add", name, "--store", store)
    anarchic("token", "add", "ops", "--store", store, "--rights", "pull,operate")
    anarchic("token", "revoke", "bob", "--store", store)
    change(store, "ann", expires_s=now + 9.5 * DAY, old_hash=b"0" * 32, old_until_s=now + HOUR)
    change(store, "cleo", expires_s=now - 5.5 * HOUR, old_hash=b"0" * 32, old_until_s=now - 1)
    opened = open_store(store)
    note_used(opened, {"ann": now - 3.5 * DAY, "bob": now + 50})
    opened.close()
    lines = anarchic("token", "list", store).output.splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert rows[0] == ["name", "rights", "state", "last used"]
    assert [row[:2] for row in rows[2:]] == [
        *([name, "pull,push"] for name in ("ann", "bob", "cleo", "dora")),
        ["ops", "pull,operate"],
    ]
    states = [row[2].partition("; old token until ") for row in rows[2:]]
    assert [state for state, _, _ in states] == [
        "valid, expires in 9 days", "revoked", "expired 5 hours ago", "valid", "valid",
    ]  # fmt: skip
    assert [bool(old) for _, _, old in states] == [True, False, False, False, False]
    assert [row[3] for row in rows[2:4]] == ["3 days ago", "just now"]
    found = json.loads(anarchic("token", "list", "--store", store, "--json").output)
    assert [each["state"] for each in found] == ["valid", "revoked", "expired", "valid", "valid"]
    assert found[3] == {
        "name": "dora", "rights": ["pull", "push"], "state": "valid",
        "expires": None, "old_until": None, "last_used": None,
    }  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found[0]["expires"])


def test_a_list_is_of_one_store(refused, tmp_path):
    assert "Name one store" in refused(2, "token", "list")
    assert "Name one store" in refused(2, "token", "list", "a.db", "--store", "b.db")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "ann", "--rights", "push,steer"), "one or more of pull, push, operate"),
        (("add", "ann", "--expires", "soon"), "such as 90d or 24h; got 'soon'"),
        (("add", "ann", "--expires", "2020-01-01"), "got '2020-01-01'"),
        (("rotate", "ann", "--overlap", "1y"), "such as 90d or 24h; got '1y'"),
        (("import", "none.json"), "none.json cannot be read: No such file"),
        (("import", "."), ". cannot be read: It is a directory"),
    ],
)
def test_what_cannot_be_done_changes_nothing(refused, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert told in refused(2, "token", *words, "--store", "run.db")
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_there_is_not_cannot_be_rotated(anarchic, refused, tmp_path):
    anarchic("token", "add", "ann", "--store", tmp_path / "run.db")
    words = ("token", "rotate", "bob", "--store", tmp_path / "run.db")
    assert "Worker 'bob' has no token" in refused(2, *words)


def test_the_commands_of_the_page_work_in_their_order(anarchic, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "operate.md").read_text().partition("## Tokens")[2]
    block = section.partition("```bash\n")[2].partition("```")[0]
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        assert words.pop(0) == "anarchic"
        into = words.index(">") if ">" in words else len(words)
        shown = anarchic(*words[:into])
        assert shown.exit_code == 0, (line, shown.output)
        if into < len(words):
            Path(words[into + 1]).write_text(shown.output)
    assert len(block.splitlines()) == 7
    tokens = {name: Path(f"{name}.token").read_text() for name in ("ann", "ops")}
    for token in tokens.values():
        assert token.strip().partition(".")[2] not in Path("tokens.json").read_text()
    moved = json.loads(anarchic("token", "list", "next.db", "--json").output)
    assert [(each["name"], each["state"]) for each in moved] == [
        ("ann", "revoked"),
        ("ops", "valid"),
    ]
    again = ("token", "import", "tokens.json", "--store", "next.db")
    assert "has tokens of ann, ops already" in refused(2, *again)
    assert "2 tokens were imported" in anarchic(*again, "--replace").output


def test_tokens_come_from_standard_input_too(anarchic, tmp_path):
    anarchic("token", "add", "ann", "--store", tmp_path / "run.db")
    text = anarchic("token", "export", "--store", tmp_path / "run.db").output
    found = {}
    for given in (text, text[:-20]):
        store = tmp_path / f"{len(given)}.db"
        shown = CliRunner().invoke(
            app, ["token", "import", "-", "--store", str(store)], input=given
        )
        found[shown.exit_code] = shown.output
    assert found[0] == "1 token was imported.\n"
    assert "Nothing was imported" in found[2]
