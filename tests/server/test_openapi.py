"""The description of the routes against a server that runs: what it says is what happens."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from anarchic.server.openapi import OPENAPI
from tests.chaos.servers import LAYOUT, ServerProcess, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("openapi")
    init = write_model(folder / "model.safetensors")
    words = ("--open-enrolment",)
    with ServerProcess(str(folder / "run.db"), init, folder / "log", *words) as server:
        yield server


schema = schemathesis.openapi.from_dict(OPENAPI)


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_matches_the_description(server, case):
    # That a body is a safetensors file of this model is more than a schema can say.
    refused = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
    case.call_and_validate(base_url=f"http://127.0.0.1:{server.port}", excluded_checks=refused)


@pytest.mark.slow
def test_the_model_is_unchanged_and_the_server_healthy(server):
    status = server.status()
    assert (status["version"], status["updates"]["accepted"]) == (0, 0)
    assert "Traceback" not in server.text()
    with Line(server.port) as line:
        assert line.push(encoded(LAYOUT, "ann", "1")).status == 202
