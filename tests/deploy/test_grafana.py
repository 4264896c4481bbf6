"""The dashboard: what Grafana needs to import it, and whether a server has what it asks for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from anarchic.server.app import make_app
from anarchic.server.optional_parts import OptionalParts
from anarchic.server.service import Service
from anarchic.server.settings import ServerSettings
from anarchic.server.store import open_store
from tests.deploy.programs import DEPLOY
from tests.server.make import begun

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
KINDS = {"row", "stat", "timeseries", "heatmap", "state-timeline"}  # all come with Grafana
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


def expressions() -> Iterator[str]:
    """The queries of all panels, as Grafana sends them if everything is chosen."""
    for panel in PANELS:
        for target in panel["targets"]:
            chosen = target["expr"].replace("$__rate_interval", "1m")
            yield chosen.replace("$job", ".*").replace("$run", ".*")


class _Evaluated:
    """Stands for an evaluator that has evaluated something."""

    latest = {"version": 1, "accuracy": 0.5}  # noqa: RUF012

    def offer(self, model: object) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture(scope="module")
def exposed(tmp_path_factory) -> set[str]:
    """Names of the series of a server with TLS and --evaluate that has refused a request."""
    store = open_store(tmp_path_factory.mktemp("run") / "run.db")
    begun(store)
    settings = ServerSettings(open_enrolment=True)
    parts = OptionalParts(evaluator=_Evaluated())
    service = Service(store, settings, lambda event, **facts: None, parts)

    async def scrape() -> str:
        import httpx

        await service.start()
        service.metrics.certificate_expires(2e9)
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            assert (await client.post("/v1/updates", content=b"?")).status_code == 415
            text = (await client.get("/metrics")).text
        await service.stop()
        return text

    found = asyncio.run(scrape())
    store.close()
    return {sample.name for family in parse(found) for sample in family.samples}


def names(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    return set(re.findall(r"\b(?:anarchic|process)_\w+", expression))


def test_a_server_exposes_every_metric_that_the_panels_ask_for(exposed):
    for expression in expressions():
        assert names(expression), f"{expression} asks for nothing"
        assert names(expression) <= exposed, expression
    asked = {name for variable in VARIABLES.values() for name in names(str(variable["query"]))}
    assert asked <= exposed


def test_a_server_exposes_every_metric_that_the_alerts_ask_for(exposed):
    told = re.findall(r"expr: (.*?)\n +(?:for|labels):", ALERTS.read_text(), re.S)
    assert len(told) == ALERTS.read_text().count("- alert:")
    assert {name for expression in told for name in names(expression)} <= exposed


def test_every_metric_of_a_run_is_on_the_dashboard(exposed):
    shown = {name for expression in expressions() for name in names(expression)}
    own = {name for name in exposed if name.startswith("anarchic_")}
    apart = {name for name in own if name.endswith(("_created", "_sum", "_count"))}
    assert own - apart - shown == {"anarchic_evaluation_version"}


def test_grafana_finds_what_it_needs_to_import_the_dashboard():
    assert DASHBOARD["id"] is None  # one of its own would replace another dashboard
    assert re.fullmatch(r"[\w-]{1,40}", DASHBOARD["uid"])
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 36  # from which on a data source is an object
    assert "__inputs" not in DASHBOARD  # the variable asks for the data source
    assert (VARIABLES["datasource"]["type"], VARIABLES["datasource"]["query"]) == (
        "datasource",
        "prometheus",
    )
    assert next(iter(VARIABLES)) == "datasource"  # the others are asked of it
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_grafana_knows_everything_that_the_file_says():
    """By the models that Grafana generates from its own schema: what they do not know is lost."""
    pytest.importorskip("grafana_foundation_sdk", reason="pip install grafana-foundation-sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    known = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(DASHBOARD)))
    assert list(missing(DASHBOARD, known)) == []


def missing(told: Any, known: Any, where: str = "") -> Iterator[str]:
    """Where something that is told is not known; what is empty may be left out."""
    if isinstance(told, dict):
        for name, value in told.items():
            if value or name in known:
                yield from missing(value, known.get(name), f"{where}/{name}")
    elif isinstance(told, list) and isinstance(known, list) and len(told) == len(known):
        for index, value in enumerate(told):
            yield from missing(value, known[index], f"{where}/{index}")
    elif told != known:
        yield f"{where}: {told!r} is {known!r}"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_the_chosen_data_source_and_says_what_it_shows(panel):
    assert panel["type"] in KINDS
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    letters = [target["refId"] for target in panel["targets"]]
    assert letters == sorted(set(letters))
    for source in (panel, *panel["targets"]):
        assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= {*VARIABLES, "__rate_interval"}
        assert target["expr"].count("(") == target["expr"].count(")")
        heat = panel["type"] == "heatmap"
        assert target["format"] == ("heatmap" if heat else "time_series")
        assert not heat or "sum by (le)" in target["expr"]


def test_panels_do_not_lie_upon_each_other():
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        return {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }

    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
