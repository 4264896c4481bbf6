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
        ([], "Give --model or --task"),
        (["--model", "logistic", "--task", "a:b"], "Give --model or --task"),
        (["--model", "mlp", "--seed", -1], "at least 0, got -1"),
        (["--model", "nope"], "no model 'nope'"),
        (["--model", "logistic", "--data", "nope"], "no data set 'nope'"),
    ],
)
def test_misuse_is_refused(refused, tmp_path, arguments, message):
    assert message in refused(2, "init", *arguments, "--out", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named(refused, tmp_path):
    out = tmp_path / "no" / "model"
    assert "There is no directory" in refused(2, "init", "--model", "logistic", "--out", out)
