"""What runs are made of, by digests: data, files and code of others."""

from __future__ import annotations

import pytest

from anarchic import Settings
from anarchic.errors import RunError
from anarchic.study.parts import check_same_parts, check_unchanged, parts_of

RULE = "from anarchic import AfaCd\n\n\ndef mine(m=5, server_lr=1.0):\n    return AfaCd(m, {lr})\n"


@pytest.fixture
def table(tmp_path):
    rows = "".join(f"{n % 7},{n % 5},{n % 2}\n" for n in range(60))
    (tmp_path / "t.csv").write_text("a,b,kind\n" + rows)
    return tmp_path / "t.csv"


def test_data_are_told_apart_by_their_values(table):
    asked = Settings(data="csv", data_options={"path": str(table), "target": "kind"})
    before = parts_of([asked])
    (name,) = before
    assert name == f"the data set csv path={table} target=kind"
    assert parts_of([asked, asked]) == before
    table.write_text(table.read_text().replace("a,b,kind\n0,", "a,b,kind\n6,"))
    assert parts_of([asked])[name] != before[name]
    assert list(parts_of([Settings(val_share=0.2)])) == ["the data set digits val_share=0.2"]


def test_code_of_others_is_told_apart_but_not_its_comments(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "parts_rule.py"
    file.write_text(RULE.format(lr="server_lr"))
    asked = Settings(rule="parts_rule:mine")
    before = parts_of([asked])
    assert set(before) == {"the data set digits", "the module parts_rule"}
    file.write_text("# A remark.\n" + RULE.format(lr="server_lr"))
    assert parts_of([asked]) == before
    file.write_text(RULE.format(lr="2 * server_lr"))
    assert parts_of([asked]) != before


def test_files_are_told_apart(tmp_path):
    trace = tmp_path / "trace.csv"
    asked = Settings(participation="exponential", availability=str(trace))
    assert list(parts_of([asked])) == ["the data set digits"]  # runs that need it will fail
    trace.write_text("worker,from_s,until_s\n0,0,9\n")
    before = parts_of([asked])
    trace.write_text("worker,from_s,until_s\n0,0,8\n")
    assert parts_of([asked]) != before


def test_what_has_changed_is_named(tmp_path):
    check_unchanged({"a": "1"}, {"a": "1", "b": "2"}, tmp_path)
    with pytest.raises(RunError, match=r"Changed since .* was begun: a\."):
        check_unchanged({"a": "1", "b": "2"}, {"a": "3", "b": "2"}, tmp_path)
    check_same_parts({"one": {"a": "1"}, "two": {"a": "1", "b": "2"}})
    with pytest.raises(RunError, match="In two, a is not what it was in one"):
        check_same_parts({"one": {"a": "1"}, "two": {"a": "3"}})
