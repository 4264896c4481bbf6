from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from anarchic.cli.app import app
from anarchic.cli.trace import wasted_facts
from anarchic.sim.record import RunDirectory
from tests.server.live import serving
from tests.server.make import body

pytest.importorskip("torch")


def simulate(*words):
    return CliRunner().invoke(app, ["simulate", *map(str, words)])


@pytest.fixture
def store(tmp_path):
    """Of a server that four workers pushed nine updates to, two a step."""

    async def scenario():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (_, client):
            for number in range(9):
                sent = body(f"w{number % 4}", str(number), seed=number)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
                await asyncio.sleep(0.05)

    asyncio.run(scenario())
    return tmp_path / "run.db"


def test_a_server_s_trace_drives_the_simulator(store, tmp_path):
    done = simulate("--trace", store, "--out", tmp_path / "sim", "--batch", "8")
    assert done.exit_code == 0, done.output
    record = RunDirectory(tmp_path / "sim")
    table = record.timetable()
    assert (table.workers, table.m, table.rounds) == (4, 2, 4)
    assert table.worker.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert table.local_steps.tolist() == [2] * 8
    assert record.summary()["updates"] == 8
    assert record.settings()["trace"] == str(store)


def test_a_trace_may_have_fewer_workers_than_updates_per_step(tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    few = ("--workers", 2, "--m", 3, "--replace", "--rounds", 4, "--batch", 8)
    assert simulate(*few, "--out", first).exit_code == 0
    done = simulate("--trace", first, "--batch", 8, "--out", again)
    assert done.exit_code == 0, done.output
    assert RunDirectory(again).timetable() == RunDirectory(first).timetable()


def test_a_run_s_timetable_drives_another_and_resumes(store, tmp_path):
    first = tmp_path / "first"
    assert (
        simulate("--rounds", 6, "--batch", 8, "--max-staleness", 2, "--out", first).exit_code == 0
    )
    again = tmp_path / "again"
    done = simulate("--trace", first, "--rule", "afa-cs", "--batch", 8, "--out", again)
    assert done.exit_code == 0, done.output
    assert RunDirectory(again).timetable() == RunDirectory(first).timetable()
    resumed = simulate("--resume", "--out", again)
    assert resumed.exit_code == 0, resumed.output
    assert "had finished" in resumed.output


def test_a_run_goes_on_with_more_of_its_trace(tmp_path):
    first, again, whole = (tmp_path / name for name in ("first", "again", "whole"))
    settings = ("--rounds", 16, "--max-staleness", 2, "--batch", 8)
    assert simulate(*settings, "--out", first).exit_code == 0
    traced = ("--trace", first, "--batch", 8, "--checkpoint-every", 2)
    assert simulate(*traced, "--rounds", 7, "--out", again).exit_code == 0
    assert RunDirectory(again).timetable() == RunDirectory(first).timetable().cut(7)
    assert simulate("--resume", "--out", again).exit_code == 0
    further = simulate("--resume", "--rounds", 16, "--out", again)
    assert further.exit_code == 0, further.output
    assert simulate(*traced, "--out", whole).exit_code == 0
    for name in ("model.safetensors", "timetable.safetensors"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
    too_far = simulate("--resume", "--rounds", 17, "--out", again)
    assert too_far.exit_code == 2
    assert "The trace has rounds=16, not 17" in too_far.output


def test_what_contradicts_the_trace_is_refused(store, tmp_path):
    done = simulate("--trace", store, "--workers", 7, "--out", tmp_path / "sim")
    assert done.exit_code == 2
    assert "The trace has workers=4, not 7" in done.output
    missing = simulate("--trace", tmp_path / "nowhere.db")
    assert missing.exit_code == 1
    assert "There is no trace" in missing.output
    assert not (tmp_path / "nowhere.db").exists()
    assert not (tmp_path / "sim").exists()
    damaged = tmp_path / "t.safetensors"
    damaged.write_text(json.dumps({}))
    assert simulate("--trace", damaged).exit_code == 1


def test_shares_are_of_what_was_sent_and_of_all_visits():
    total = {"refused": 20, "retried": 5, "skipped": 60, "stopped": 15, "lost": 25}
    facts = wasted_facts({**total, "local_steps": 100, "bytes": 2000}, updates=80)
    assert facts == [
        ("refused updates", "20, 20.0 % of the updates sent"),  # 80 + 20
        ("of these retried", "5, 25.0 % of the refused updates"),
        ("skipped visits", "60, 30.0 % of the visits"),  # 100 + 60 + 15 + 25
        ("stopped visits", "15, 7.5 % of the visits"),
        ("lost visits", "25, 12.5 % of the visits"),
        ("local steps in vain", "100"),
        ("bytes in vain, down and up", "2,000"),
    ]


def test_nothing_in_vain_is_no_line():
    assert wasted_facts({"refused": 0, "retried": 0}, updates=5) == wasted_facts(None, 5) == []
