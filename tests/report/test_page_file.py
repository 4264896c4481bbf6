from __future__ import annotations

import json
import re
from contextlib import closing

import pytest

from anarchic.errors import ConfigError
from anarchic.report.page_file import inlined, page_of, write_page
from anarchic.report.summary_figure import plot_report
from anarchic.server.records import NewUpdate, Publication
from anarchic.server.store import open_store
from tests.report.make import make_run
from tests.server.make import begun


def data_in(text):
    found = re.search(r'id="data">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def test_a_report_holds_its_data_and_needs_nothing_else(tmp_path):
    runs = [make_run(tmp_path / name) for name in ("one", "two")]
    text = page_of(runs)
    assert [run["name"] for run in data_in(text)["runs"]] == ["one", "two"]
    assert data_in(text)["rows"][0]["final"] == 0.8
    assert not re.search(r'(src|href)="', text)
    assert re.findall(r"https?://[^\"'\s)]+", text) == ["http://www.w3.org/2000/svg"]
    assert "import " not in re.sub(r"//.*", "", inlined()).replace("import anarchic", "")


def test_a_name_cannot_end_the_data(tmp_path):
    path = make_run(tmp_path / "<script>alert(1)<", rule="</script><script>alert(1)")
    (path / "metrics.csv").write_text("round,</script><b>\n0,1\n")
    with pytest.raises(ConfigError):  # there is no such rule
        page_of([path])
    path = make_run(tmp_path / "<b>bold<")
    text = page_of([path])
    assert "<b>bold" not in text
    assert data_in(text)["runs"][0]["name"] == "<b>bold<"


def test_the_modules_fit_into_one_script():
    declared = r"^(?:async )?(?:function|const|let|class) ([A-Za-z_$][\w$]*)"
    names = re.findall(declared, inlined(), re.M)
    assert len(names) > 30
    assert len(names) == len(set(names)), "two modules declare the same name"
    assert "export " not in inlined()


def test_a_report_is_of_some_runs(tmp_path):
    with pytest.raises(ConfigError, match="1 to 40 runs, got 0"):
        page_of([])


def test_where_it_cannot_be_written_the_error_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Choose another path"):
        write_page([make_run(tmp_path / "one")], tmp_path / "file" / "report.html")


@pytest.mark.parametrize("ending", ["png", "pdf"])
@pytest.mark.slow
def test_a_report_is_a_picture_too(tmp_path, ending):
    found = plot_report([make_run(tmp_path / "one")], tmp_path / f"report.{ending}")
    assert found.stat().st_size > 10_000


def test_norms_of_next_to_nothing_leave_a_page_that_a_browser_can_read(tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=2)
        epoch = store.lead()
        sent = [
            NewUpdate("ann", str(n), bytes([n]) * 32, 0, 1, 1e-312, 1, norm, 1e9 + n, b"x")
            for n, norm in enumerate([1e-312] * 3 + [50.0])
        ]
        folded = [(receipt.seq, n // 2 + 1) for n, receipt in enumerate(store.append(sent))]
        store.publish(Publication(epoch, 0, 2, folded, b"model", b"state"))
        store.resign()
    text = page_of([tmp_path / "run.db"])
    found = re.search(r'id="data">(.*?)</script>', text, re.S)[1]
    assert not re.search(r"\b(Infinity|NaN)\b", found)
    (picture,) = [run["picture"] for run in json.loads(found)["runs"]]
    assert picture["histograms"]["norms"]["newest"] == [{"worker": "ann", "times": None}]
