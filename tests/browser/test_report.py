"""Reports and views in a real browser."""

from __future__ import annotations

import re
import time
from contextlib import closing

import pytest

from anarchic import Settings, simulate
from anarchic.report.page_file import write_page
from anarchic.report.picture import pictures
from anarchic.server.store import open_store
from tests.browser.many import fill
from tests.browser.test_many import viewing
from tests.server.make import begun


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two simulations, the second with a clock."""
    folder = tmp_path_factory.mktemp("runs")
    simulate(Settings(rounds=60, workers=12, m=3, max_staleness=4), out=folder / "sampled")
    clock = {"participation": "exponential", "slow_share": 0.3, "rule": "afa-cs"}
    simulate(Settings(rounds=60, workers=12, m=3, **clock), out=folder / "timed")
    return [folder / "sampled", folder / "timed"]


def test_a_report_opens_from_disk_and_asks_for_nothing(tabs, runs, tmp_path):
    path, asked = write_page(runs, tmp_path / "report.html"), []
    tab = tabs()
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.goto(path.as_uri())
    tab.page.get_by_role("region", name="Comparison", exact=True).wait_for()
    for name in ("Workers", "Settings", "Staleness, local steps and norms"):
        for run in ("sampled", "timed"):
            tab.page.get_by_role("region", name=f"{run}: {name}", exact=True).wait_for()
    assert tab.page.get_by_role("img", name=re.compile("^accuracy")).count() == 3
    assert tab.page.get_by_text("anarchic simulate --workers 12").count() == 2
    assert asked == [path.as_uri()]
    assert tab.problems == []


def test_a_report_can_be_read_by_everybody(tabs, runs, tmp_path, axe):
    page = tabs(bypass_csp=True).page  # axe is injected
    page.goto(write_page(runs, tmp_path / "report.html").as_uri())
    page.get_by_role("region", name="timed: Settings", exact=True).wait_for()
    page.evaluate(axe)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found] == []


def test_a_view_shows_a_finished_run_and_offers_no_commands(tabs, runs):
    for path in runs:
        with pictures(path) as make, viewing(make) as address:
            tab = tabs()
            tab.page.goto(address)
            tab.page.locator("#state", has_text="finished").wait_for()
            tab.page.get_by_role("region", name="Workers").wait_for()
            assert tab.page.get_by_role("button", name="Pause").count() == 0
            assert tab.problems == []


def test_a_store_whose_server_has_gone_says_so_and_counts_from_its_first_update(tabs, tmp_path):
    path = tmp_path / "run.db"
    with closing(open_store(path)) as store:
        begun(store, m=2)
        fill(store, workers=3, updates=4000, m=2, now_s=time.time() - 90)
    with pictures(path) as make, viewing(make) as address:
        tab = tabs()
        tab.page.goto(address)
        tab.page.locator("#state", has_text="no server").wait_for()
        workers = tab.page.get_by_role("region", name="Workers", exact=True)
        workers.get_by_text("after the first update").wait_for()
        stands = tab.page.get_by_role("region", name="Where the run stands").inner_text()
        assert "last update" in stands
        assert "updates per second" not in stands
        assert tab.problems == []
