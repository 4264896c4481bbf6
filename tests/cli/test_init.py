import json
import shlex
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

from anarchic import wire


def test_logistic_begins_with_zeros(anarchic, tmp_path):
    out = tmp_path / "model.safetensors"
    shown = anarchic("init", "--model", "logistic", "--out", out)
    assert (shown.exit_code, shown.output) == (0, f"Wrote {out}: 2 tensors, 650 numbers.\n")
    tensors = load_file(out)
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "weight": (10, 64),
        "bias": (10,),
    }
    assert not any(tensor.any() for tensor in tensors.values())


def test_other_models_begin_at_random_but_repeatably(anarchic, tmp_path):
    pytest.importorskip("torch")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        anarchic("init", "--model", "mlp", "--seed", seed, "--out", tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


TASKS = """
import numpy as np
from anarchic import Layout
from anarchic.worker import FunctionTask
layout = Layout.of({"x": ((2,), "F32")})
good = FunctionTask(layout, None, init=lambda: np.array([1.0, 2.0], np.float32))
blank = FunctionTask(layout, None)
wrong = FunctionTask(layout, None, init=lambda: np.zeros(3))
"""


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    name = f"first_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_task_says_what_it_begins_with(anarchic, tasks, tmp_path):
    anarchic("init", "--task", f"{tasks}:good", "--out", "model")
    layout, params, _ = wire.load_model(tmp_path / "model")
    assert (layout.names, params.tolist()) == (("x",), [1.0, 2.0])


def test_a_task_by_name_is_enough(anarchic, tmp_path):
    anarchic("init", "--task", "digits:1/4", "--out", tmp_path / "model")
    assert wire.load_model(tmp_path / "model")[0].dim == 650


@pytest.mark.parametrize(
    ("name", "message"), [("blank", "has no init()"), ("wrong", "2 finite numbers")]
)
def test_a_task_that_does_not_know_is_refused(refused, tasks, name, message):
    assert message in refused(2, "init", "--task", f"{tasks}:{name}", "--out", "model")


def test_nothing_is_overwritten(refused, tmp_path):
    (tmp_path / "model").write_text("precious")
    assert "exists already" in refused(
        2, "init", "--model", "logistic", "--out", tmp_path / "model"
    )
    assert (tmp_path / "model").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give --model, --task or --from"),
        (["--model", "logistic", "--task", "a:b"], "Give --model, --task or --from"),
        (["--model", "mlp", "--seed", -1], "at least 0, got -1"),
        (["--model", "nope"], "no model 'nope'"),
        (["--model", "logistic", "--from-option", "a=1"], "are for --from"),
        (["--model", "logistic", "--buffers", "mean"], "no policy for buffers 'mean'"),
        (["--task", "digits:1/4", "--buffers", "average"], "A task says itself"),
        (["--from", "nothing"], "MODULE:NAME or a safetensors file, and there is no file nothing"),
        (["--from", "a:b", "--from-option", "width"], "takes NAME=VALUE, such as width=32"),
        (["--model", "logistic", "--data", "nope"], "no data set 'nope'"),
    ],
)
def test_misuse_is_refused(refused, tmp_path, arguments, message):
    assert message in refused(2, "init", *arguments, "--out", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named(refused, tmp_path):
    out = tmp_path / "no" / "model"
    assert "There is no directory" in refused(2, "init", "--model", "logistic", "--out", out)


OWN = "tests.models.own_modules"


def saved(path, **others):
    """A state dict with a BatchNorm, as somebody saved it."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from tests.models.own_modules import Normed

    save_file({**Normed().state_dict(), **others}, path)
    return torch


def test_a_module_of_ones_own_is_written_with_its_policy(anarchic, tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "model.safetensors"
    words = ["--from", f"{OWN}:Normed", "--from-option", "width=6", "--buffers", "average"]
    shown = anarchic("init", *words, "--out", out)
    assert shown.exit_code == 0, shown.output
    assert "9 tensors, 63 numbers, 3 of them averaged buffers." in shown.stdout
    layout, params, metadata = wire.load_model(out)
    assert len(layout.buffers) == 3
    assert layout.split(params)["bn.running_var"].tolist() == [1.0] * 6
    assert metadata["module"] == f"{OWN}:Normed"
    assert json.loads(metadata["module_options"]) == {"width": 6}


def test_local_buffers_are_not_in_the_file(anarchic, tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "model.safetensors"
    shown = anarchic("init", "--from", f"{OWN}:Normed", "--buffers", "local", "--out", out)
    assert "3 buffers stay with each worker" in shown.stdout
    layout, _, metadata = wire.load_model(out)
    assert not any("running" in name for name in layout.names)
    assert wire.buffers_of(metadata)[0] == "local"


DATA_MODELS = """
from tests.models.own_modules import of_digits
def model(data): return of_digits()
"""


@pytest.mark.parametrize("policy", ["average", "local"])
def test_a_model_for_data_shows_which_buffers_change(anarchic, tmp_path, monkeypatch, policy):
    pytest.importorskip("torch")
    name = f"for_data_{policy}"
    (tmp_path / f"{name}.py").write_text(DATA_MODELS)
    monkeypatch.chdir(tmp_path)
    words = ["--model", f"{name}:model", "--buffers", policy, "--train", "bn|last"]
    shown = anarchic("init", *words, "--out", "model")
    assert shown.exit_code == 0, shown.output
    layout, _, metadata = wire.load_model(tmp_path / "model")
    assert wire.buffers_of(metadata)[0] == policy
    assert len(wire.buffers_of(metadata)[1]) == 3
    assert len(layout.buffers) == (3 if policy == "average" else 0)
    assert "first.weight" not in layout.names


def test_running_statistics_in_a_file_need_a_policy_which_the_sentence_names(
    anarchic, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    saved("state.safetensors")
    told = refused(2, "init", "--from", "state.safetensors", "--out", "model.safetensors")
    assert "variances negative" in told
    command = told.partition("`anarchic ")[2].partition("`")[0]
    assert anarchic(*command.split()).exit_code == 0
    layout, _, _ = wire.load_model(tmp_path / "averaged.safetensors")
    assert len(layout.buffers) == 3
    again = anarchic("init", "--from", "averaged.safetensors", "--out", "again.safetensors")
    assert again.exit_code == 0  # the file says its policy
    assert wire.load_model(tmp_path / "again.safetensors")[0] == layout


def test_only_chosen_tensors_of_a_file_travel(anarchic, tmp_path):
    torch = saved(tmp_path / "state.safetensors")
    saved(tmp_path / "ids.safetensors", position_ids=torch.arange(3))
    words = ["--buffers", "local", "--train", "^last", "--out", tmp_path / "model"]
    shown = anarchic("init", "--from", tmp_path / "ids.safetensors", *words)
    assert "position_ids hold whole numbers, which no step changes: left out." in shown.stderr
    assert "every worker has its own" in shown.stderr
    assert wire.load_model(tmp_path / "model")[0].names == ("last.bias", "last.weight")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "m.pt", "m.pth", "m.ckpt", "m.safetensors"])
def test_a_pickle_is_refused(refused, tmp_path, name):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(2)}, tmp_path / name)
    told = refused(2, "init", "--from", tmp_path / name, "--out", tmp_path / "model")
    assert "can run any program when it is read" in told


@pytest.mark.slow
def test_what_is_said_about_a_pickle_converts_it(anarchic, refused, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    tied = torch.ones(2)
    torch.save({"state_dict": {"w": tied, "same": tied}}, "m.ckpt")
    told = refused(2, "init", "--from", "m.ckpt", "--out", "model.safetensors")
    command = told.partition("convert it: ")[2].partition("; then say")[0]
    words = [sys.executable, *shlex.split(command)[1:]]
    subprocess.run(words, check=True, capture_output=True)
    converted = told.rpartition("--from ")[2].removesuffix(".")
    assert anarchic("init", "--from", converted, "--out", "model.safetensors").exit_code == 0
    assert wire.load_model(tmp_path / "model.safetensors")[1].tolist() == [1.0] * 4
