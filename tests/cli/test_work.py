import json
import signal
import sys
from pathlib import Path

import pytest

from anarchic import Prox, wire
from anarchic.worker import Connection, Hours, Summary, UniformSteps, WorkPlan
from tests.cli.test_app import COMMANDS
from tests.waiting import until
from tests.worker import faulty

TASKS = """
import numpy as np
from anarchic import Layout
from anarchic.worker import FunctionTask
task = FunctionTask(Layout.of({"x": ((2,), "F32")}), lambda x: (x - 1, 0.5, 1))
"""


@pytest.fixture
def listening():
    running = faulty.Listening(faulty.Scripted())
    yield running
    running.close()


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "own_tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ANARCHIC_TOKEN", raising=False)
    return tmp_path


def arguments(listening, *more):
    return [
        "work",
        "--server",
        listening.url,
        "--task",
        "own_tasks:task",
        "--local-steps",
        2,
        *more,
    ]


def events(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_file_that_is_no_token_is_named(refused, here, listening):
    (here / "model.safetensors").write_bytes(b"\x90\x00")
    told = refused(2, *arguments(listening, "--token-file", "model.safetensors"))
    assert "model.safetensors holds no token" in told


def test_a_worker_without_a_task_or_without_flower_is_told(refused, here, listening, monkeypatch):
    who = ("work", "--server", listening.url, "--name", "ann")
    assert "Give --task MODULE:NAME or --flower MODULE:NAME" in refused(2, *who)
    monkeypatch.syspath_prepend(here)
    flower = (*who, "--flower", "own_tasks:task")
    assert "--local-steps has no use with --flower" in refused(2, *flower, "--local-steps", 2)
    assert "--flower-config takes NAME=VALUE" in refused(2, *flower, "--flower-config", "lr")
    for name in ("flwr", "flwr.clientapp"):  # another test may have imported it
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install 'flwr>=" in refused(2, *flower)


@pytest.mark.slow
def test_one_line_per_push_and_a_summary(process, here, listening):
    program = process(*arguments(listening, "--name", "ann", "--updates", 2))
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0, err
    assert out.startswith("2 updates accepted, 0 too old, 0 refused")
    lines = events(err)
    assert [line["event"] for line in lines] == ["push", "push"]
    assert (lines[1]["worker"], lines[1]["base_version"], lines[1]["loss"]) == ("ann", 1, 0.5)
    (spool,) = (here / "state" / "anarchic" / "spool").glob("*/ann")
    assert {path.name for path in spool.iterdir()} == {"lock"}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["file", "variable"])
def test_a_token_comes_by_file_or_variable_and_is_never_shown(
    process, here, listening, monkeypatch, by
):
    (here / "token").write_text("bob.s3cret\n")
    if by == "variable":
        monkeypatch.setenv("ANARCHIC_TOKEN", "bob.s3cret")
    given = ["--token-file", "token"] if by == "file" else []
    listening.scripted.push = lambda body: listening.scripted.answer(202, "accepted")
    program = process(*arguments(listening, *given, "--updates", 1))
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0, err
    assert set(listening.scripted.authorizations) == {"Bearer bob.s3cret"}
    assert "s3cret" not in out + err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_with_the_update_spooled(process, here, listening, number):
    listening.scripted.faults = [503] * 100_000
    program = process(*arguments(listening, "--name", "ann", "--spool", here / "spool"))
    until(lambda: len(listening.scripted.posts) >= 2)
    program.send_signal(number)
    out, err = program.communicate(timeout=20)
    assert program.returncode == 0, err
    assert "1 left in the spool" in out
    assert events(err)[-1]["status"] == "spooled"
    assert len(list((here / "spool").glob("*.update"))) == 1


@pytest.mark.slow
def test_two_workers_on_one_spool_are_refused(process, here, listening):
    listening.scripted.faults = [503] * 100_000
    spool = ["--name", "ann", "--spool", here / "spool"]
    first = process(*arguments(listening, *spool))
    until(lambda: listening.scripted.posts)
    second = process(*arguments(listening, *spool))
    _, err = second.communicate(timeout=60)
    first.kill()
    first.communicate()
    assert second.returncode == 1
    assert "in use by another worker" in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "Who is this?"),
        (["--name", "a b"], "A worker's name"),
        (["--name", "ann", "--policy", "never"], "no policy 'never'"),
        (["--name", "ann", "--policy", "every:soon"], "no policy 'every:soon'"),
        (["--name", "ann", "--policy", "every:0"], "minutes > 0"),
        (["--name", "ann", "--local-rule", "nope"], "no local rule 'nope'"),
        (["--name", "ann", "--local-option", "mu=1"], "Sgd has no setting 'mu'"),
        (["--name", "ann", "--dtype", "F8"], "no dtype 'F8'"),
        (["--name", "ann", "--time-budget-s", "3"], "not both"),
        (["--name", "ann", "--updates", "0"], "at least 1 update"),
    ],
)
def test_misuse_is_refused(refused, here, more, message):
    arguments = ["--server", "http://127.0.0.1:9", "--task", "digits:1/2", "--local-steps", "3"]
    assert message in refused(2, "work", *arguments, *more)


@pytest.mark.usefixtures("here")
def test_the_model_that_a_worker_is_given_is_the_servers(anarchic, listening):
    """The task's own start plays no part."""
    listening.scripted.state.params[:] = 5.0
    told = "--name", "ann", "--updates", 1, "--local-lr", 0.5
    assert anarchic(*arguments(listening, *told)).exit_code == 0
    body = listening.scripted.posts[0]
    update = wire.decode_update(body, faulty.LAYOUT).update
    assert update.direction.tolist() == [3.0, 3.0]  # (4 + 2) / 2


WORKER = {  # what is given, and what the worker is made with
    "--run": ("mnist", "run", "mnist"),
    "--token-file": ("token", "token", Path("token")),
    "--spool": ("spool", "spool", Path("spool")),
}
CONNECTION = {
    "--ca-file": ("ca", "ca_file", Path("ca")),
    "--client-cert": ("cert", "client_cert", Path("cert")),
    "--client-key": ("key", "client_key", Path("key")),
    "--proxy": ("http://proxy:3128", "proxy", "http://proxy:3128"),
    "--timeout-s": ("7", "timeout_s", 7.0),
    "--dtype": ("BF16", "dtype", "BF16"),
}
PLAN = {
    "--policy": ("hours:22-6", "policy", Hours(22, 6)),
    "--local-steps": ("3-9", "steps", UniformSteps(3, 9)),
    "--local-lr": ("0.25", "local_lr", 0.25),
    "--local-rule": ("prox", "local_rule", Prox(0.5)),
    "--updates": ("4", "updates", 4),
}
ELSEWHERE = {  # part of those, or tried above
    *("--server", "--task", "--name", "--time-budget-s", "--local-option"),
    *("--flower", "--flower-config", "--config", "--check", "--json"),
}


def test_every_option_reaches_the_worker(anarchic, here, monkeypatch):
    met = {}

    class Noting:
        def __init__(self, url, **made_with):
            met.update(url=url, made=made_with)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def run(self, task, plan):
            met.update(plan=plan)
            return Summary()

    (here / "token").write_text("bob.s3cret\n")
    monkeypatch.setattr("anarchic.worker.settings.Worker", Noting)
    options = WORKER | CONNECTION | PLAN
    given = [word for flag, (value, *_) in options.items() for word in (flag, value)]
    given += ["--local-option", "mu=0.5"]
    shown = anarchic("work", "--server", "https://server", "--task", "own_tasks:task", *given)
    assert shown.exit_code == 0, shown.output
    assert met["url"] == ["https://server"]
    assert met["made"] == {
        "name": None,
        "connection": Connection(**{name: value for _, name, value in CONNECTION.values()}),
        **{name: value for _, name, value in WORKER.values()},
    }
    assert met["plan"] == WorkPlan(**{name: value for _, name, value in PLAN.values()})
    flags = {flag for parameter in COMMANDS["work"].params for flag in parameter.opts}
    assert flags == {*options, *ELSEWHERE}
