"""Names of runs become paths and schemas, and nothing else does."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url

from anarchic.core.names import RUN_NAME
from anarchic.errors import ConfigError, StoreUnavailable
from anarchic.server.places import in_schema, places_at

WRONG = ["", ".", "..", "a/b", "A", "a.b", "-a", "_a", "a" * 49, "a b", 'a"', "a;b", "é", "a\n"]
WRONG += ["pg_temp", "information_schema", "0123456789abcdef"]


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("where", ["runs", "postgresql://h/db"])
def test_what_is_no_name_leads_nowhere(tmp_path, name, where):
    places = places_at(where if "://" in where else tmp_path)
    with pytest.raises(ConfigError, match="A run's name"):
        places.place(name)
    with pytest.raises(ConfigError, match="A run's name"):
        places.create(name)


@pytest.mark.parametrize("name", ["a", "0", "mnist-2_b", "a" * 48, "0123456789abcdeg", "public"])
def test_names_are_small_letters_and_digits(tmp_path, name):
    assert RUN_NAME.fullmatch(name)
    assert places_at(tmp_path).place(name) == str(tmp_path / f"{name}.db")


def test_a_directory_has_the_runs_of_its_files(tmp_path):
    for name in ("b.db", "a.db", "a.db-journal", "a.db.lock", "C.db", "notes.txt", ".db"):
        (tmp_path / name).touch()
    assert places_at(tmp_path).names() == ["a", "b"]
    with pytest.raises(StoreUnavailable, match="cannot be read: No such file"):
        places_at(tmp_path / "none").names()
    with pytest.raises(ConfigError, match="the store of one run"):
        places_at(tmp_path / "a.db")
    with pytest.raises(ConfigError, match="got mysql"):
        places_at("mysql://h/db")


def test_an_address_with_a_run_leads_to_its_schema():
    place = places_at("postgres://u:secret@h/db?host=/tmp").place("a-b")
    assert place == "postgresql://u:secret@h/db?host=%2Ftmp&run=a-b"
    found = in_schema(make_url(place))
    assert dict(found.query) == {"host": "/tmp", "options": '-csearch_path="a-b"'}
    with pytest.raises(ConfigError, match="A run's name"):
        in_schema(make_url('postgresql://h/db?run=a"b'))
    with pytest.raises(ConfigError, match="names the schema of one run"):
        places_at("postgresql://h/db?run=a")
