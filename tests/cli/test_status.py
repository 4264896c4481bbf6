"""What an operator sees, from a store and from a running server."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from anarchic.server.hosting import create_run
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token
from tests import status_page
from tests.chaos.servers import LAYOUT, ServerProcess, free_port, write_model
from tests.chaos.talk import Line
from tests.chaos.updates import encoded
from tests.server.live import serving, until
from tests.server.make import DIM, body
from tests.server.test_many_process import server_of

FACTS = {
    "format", "run", "state", "rule", "m", "server_lr", "parameters", "version", "rate_per_s",
    "buffered", "leader", "updates", "refusals", "rollbacks", "commands", "evaluation", "workers",
    "others", "at_s", "first", "listed",
}  # fmt: skip
OF_A_WORKER = {
    "worker", "updates", "waiting", "clipped", "set_aside", "share", "staleness_p50",
    "staleness_p95", "norm_last", "norm_p50", "norm_p95", "loss_last", "loss_mean", "refused",
    "first_s", "seen_s", "marks",
}  # fmt: skip


async def train(path):
    """Four workers; eve's updates are far too long, and mallory's are not finite."""
    limits = {"per_worker": 100}
    async with serving(path, rules={"m": 4}, limits=limits) as (service, client):
        for round_ in range(5):
            newest = service.published.newest.version
            for worker in ("ann", "bob", "cleo", "eve"):
                long = 1e3 if worker == "eve" else 1.0
                sent = body(
                    worker, f"{round_}", base_version=newest, seed=round_, loss=0.5,
                    local_lr=0.1 * long,
                )  # fmt: skip
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
            await until(lambda seen=newest: service.published.newest.version > seen)
        bad = body("mallory", "1", direction=np.full(DIM, np.inf, np.float32))
        assert (await client.post("/v1/updates", content=bad)).status_code == 422
        await asyncio.to_thread(service.store.add_evaluation, newest, {"accuracy": 0.75})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("status") / "run.db"
    asyncio.run(train(path))
    return path


def test_a_store_is_shown_without_a_server(anarchic, trained):
    shown = anarchic("status", trained)
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert lines[2] == "version    5"
    assert "20 accepted" in lines[4]
    assert lines[5] == "refused    1 not_finite"
    assert lines[6] == "to wait    none"
    assert lines[7].startswith("leader     none")
    assert lines[8] == "evaluation accuracy 0.75 at version 4"
    assert lines[9] == "commands   none waiting"
    header, _, *workers = lines[11:]
    assert header.split()[:3] == ["worker", "seen", "updates"]
    assert workers[0].startswith("eve")  # the largest share of influence first
    assert "! norm" in workers[0]
    assert {line.split()[0] for line in workers} == {"ann", "bob", "cleo", "eve", "mallory"}
    assert workers[-1].endswith("1 not_finite        0  ! refused")
    assert "\x1b" not in shown.output  # readable without colour


def test_json_has_the_names_that_are_documented(anarchic, trained):
    found = json.loads(anarchic("status", trained, "--json", "--sort", "worker").output)
    assert found.keys() == FACTS
    assert found["format"] == 1
    assert [worker["worker"] for worker in found["workers"]] == sorted(
        ("ann", "bob", "cleo", "eve", "mallory")
    )
    for worker in found["workers"]:
        assert worker.keys() == OF_A_WORKER
    page = (open_page("operate.md")).split("## See who takes part")[1].split("\n## ")[0]
    assert [name for name in FACTS | OF_A_WORKER if f"`{name}`" not in page] == []


def open_page(name):
    return (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")


def test_fewer_workers_can_be_asked_for(anarchic, trained):
    shown = anarchic("status", trained, "--limit", "2", "--sort", "updates").output
    assert shown.splitlines()[-1] == "and 3 more: --limit shows more of them."


def test_what_cannot_be_is_refused(refused, trained, tmp_path):
    assert "There is no store" in refused(2, "status", tmp_path / "none.db")
    assert "sort" in refused(2, "status", trained, "--sort", "size")
    assert "without a token" in refused(2, "status", trained, "--token-file", trained)
    (tmp_path / "token").write_text("ann.secret")
    asked = ("status", "http://127.0.0.1:1", "--token-file", tmp_path / "token")
    assert "cannot be asked" in refused(1, *asked)
    with closing(open_store(tmp_path / "empty.db")):
        pass
    assert "no run yet" in refused(1, "status", tmp_path / "empty.db")


@pytest.mark.slow
def test_a_running_server_tells_operators_only(anarchic, refused, process, tmp_path):
    path = tmp_path / "run.db"
    init = write_model(tmp_path / "model.safetensors")
    admin = free_port()
    words = ("--open-enrolment", "--m", "2", "--per-worker", "9", "--admin-port", str(admin))
    with ServerProcess(str(path), init, tmp_path / "log", *words) as server:
        for name, rights in (("ann", "pull,push"), ("boss", "operate")):
            words = ("--store", path, "--rights", rights, "--out", tmp_path / name)
            assert anarchic("token", "add", name, *words).exit_code == 0
        with Line(server.port) as line:
            for number in range(4):
                update = encoded(LAYOUT, ("cleo", "dan")[number % 2], str(number))
                assert line.push(update).status == 202
        url = f"http://127.0.0.1:{server.port}"
        time.sleep(2.5)  # tokens are read every second, activity is written every two
        asked = ("status", url, "--token-file")
        found = json.loads(anarchic(*asked, tmp_path / "boss", "--json").output)
        assert found.keys() == FACTS
        assert {w["worker"]: w["updates"] for w in found["workers"]} == {"cleo": 2, "dan": 2}
        assert found["leader"]["pid"] == server.pid
        offline = json.loads(anarchic("status", path, "--json").output)
        ignored = ("at_s", "rate_per_s", "leader")
        assert offline | dict.fromkeys(ignored) == {**found} | dict.fromkeys(ignored)
        told = anarchic("status", f"http://127.0.0.1:{admin}", "--json").output
        assert json.loads(told)["workers"] == found["workers"]  # no token is needed there
        watching = process("status", path, "--watch", "--every-s", "0.2", "--json")
        first = json.loads(watching.stdout.readline())
        assert first["version"] == 2
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=10)
        assert (watching.returncode, errors) == (0, "")
        assert "right" in refused(1, *asked, tmp_path / "ann")
        assert "operators only" in refused(2, "status", url)


@pytest.fixture
def several(tmp_path):
    """A directory of two runs."""
    for name, m in (("faces", 3), ("mnist", 2)):
        create_run(
            name, tmp_path / "runs", write_model(tmp_path / "model.safetensors"), rules={"m": m}
        )
    return tmp_path / "runs"


def test_one_of_several_runs_is_shown_by_its_name(anarchic, refused, several):
    shown = anarchic("status", several, "--run", "faces")
    assert "m = 3" in shown.output
    told = refused(2, "status", several)
    assert "--run NAME" in told
    assert f"'anarchic run list {several}'" in told
    assert "there are: faces, mnist" in refused(2, "status", several, "--run", "other")
    url = "http://127.0.0.1:1/v1/runs/mnist"
    assert "leave one out" in refused(2, "status", url, "--run", "faces")


@pytest.mark.slow
def test_a_server_of_several_runs_is_asked_for_one(anarchic, refused, several, tmp_path):
    admin = free_port()
    add_token(several / "mnist.db", "boss", rights="operate")
    (tmp_path / "boss").write_text(add_token(several / "faces.db", "boss", rights="operate"))
    words = ("--open-enrolment", "--admin-port", admin)
    with server_of(several, tmp_path / "log", *words) as (port, _):
        for url in (f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"):
            for asked in (
                (f"{url}/v1/runs/faces",),
                (f"{url}/v1/runs/faces/",),
                (url, "--run", "faces"),
                (f"{url}/v1/runs/faces", "--run", "faces"),
            ):
                told = anarchic("status", *asked, "--json", "--token-file", tmp_path / "boss")
                assert json.loads(told.output)["m"] == 3
            assert "--run NAME" in refused(1, "status", url, "--token-file", tmp_path / "boss")
        asked = (f"http://127.0.0.1:{admin}/v1/runs/mnist", "--json")
        assert json.loads(anarchic("status", *asked).output)["m"] == 2
        told = refused(1, "status", f"http://127.0.0.1:{admin}", "--run", "other")
        assert "There is no run 'other' here" in told


@pytest.mark.slow
def test_the_page_shows_what_the_program_shows():
    page = status_page.PAGE.read_text(encoding="utf-8")
    assert page == status_page.written(page, status_page.made()), "run: python -m tests.status_page"
