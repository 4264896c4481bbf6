"""``anarchic.server.run``, as a Python caller calls it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from anarchic import server, wire
from anarchic.errors import ConfigError
from anarchic.server import Address, Limits, RuleSettings, RunSettings, ServerSettings
from tests.cli.test_serve import free_port
from tests.server.make import LAYOUT, first_params

OPEN = ServerSettings(open_enrolment=True, limits=Limits(per_worker=3))


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Calls ``run`` up to where it would listen; gives the service and the address."""
    wire.save_model(tmp_path / "model.safetensors", LAYOUT, first_params())
    met = []
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *given: met.append(given))

    def call(init="model.safetensors", settings=OPEN, **given):
        run = RunSettings(store=tmp_path / "run.db", init=init and tmp_path / init, history=5)
        address = Address(port=free_port())
        quiet = {"log": lambda event, **facts: None}
        server.run(run, settings=settings, address=address, **given, **quiet)
        service, listens_on = met[-1]
        assert listens_on is address
        return service

    return call


def test_a_run_is_begun_and_gone_on_with(served):
    first = served(rules=RuleSettings(m=3))
    assert (first.rules, first.settings) == (RuleSettings(m=3), OPEN)
    assert served(init=None).run == first.run  # what is not given need not agree
    assert served(rules={"m": 3}).run == first.run
    for rules in ({"m": 4}, RuleSettings()):
        with pytest.raises(ConfigError, match=r"m is 3 there and [45] here"):
            served(rules=rules)


def test_nothing_is_begun_where_nobody_may_push(served, tmp_path):
    with pytest.raises(ConfigError, match="Nobody may push"):
        served(settings=None)
    with closing(server.open_store(tmp_path / "run.db")) as store:
        assert store.run() is None


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, anarchic.server as s; s.RunSettings, s.Address, s.Limits;"
        "print([m for m in ('sqlalchemy', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_public_name_can_be_loaded():
    assert all(hasattr(server, name) for name in server.__all__)
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = server.walk
