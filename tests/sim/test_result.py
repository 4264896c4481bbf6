"""What a run ends with: shown on a screen and in a notebook, and put into a module."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import anarchic
from anarchic import Experiment, Layout, LocalWork, Run, Settings, make_task, simulate
from anarchic.core.rules import AfaCd
from anarchic.data import iid, load_digits
from anarchic.errors import ConfigError
from anarchic.participation import ConstantSteps, Sampler
from anarchic.sim.chart import chart

SMALL = Settings(rounds=6, batch=8)


def test_a_run_fits_on_a_screen():
    run = simulate(SMALL)
    assert len(repr(run)) < 200
    assert f"accuracy {run.accuracy:.4g}, loss " in repr(run)
    assert "6 rounds, 30 updates; 7 evaluations, 650 parameters" in repr(run)


def test_a_notebook_shows_a_chart_of_accuracy_and_loss():
    page = ElementTree.fromstring(simulate(SMALL)._repr_html_().replace("<br>", "<br/>"))
    charts = page.findall(".//{http://www.w3.org/2000/svg}svg")
    titles = [svg.find("{http://www.w3.org/2000/svg}text").text for svg in charts]
    assert titles == ["accuracy", "loss"]
    line = charts[0].find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    assert len(line) == 7


def test_a_chart_goes_up_where_its_numbers_do():
    svg = ElementTree.fromstring(chart("f1", [(0, 0.5), (5, None), (10, 0.9)]))
    first, last = (
        tuple(map(float, point.split(",")))
        for point in svg.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    )
    assert first[0] < last[0]
    assert first[1] > last[1]  # y counts from above
    assert chart("f1", [(0, 0.5)]) == ""
    assert "polyline" in chart("flat", [(0, 1.0), (1, 1.0)])


def module():
    torch = pytest.importorskip("torch")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def trained(model):
    data = load_digits()
    task = anarchic.TorchTask(model, data, iid(data.y_train, 10, 0))
    table = Sampler(10, 5, ConstantSteps(5)).timetable(0, 30)
    return simulate(Experiment(task, AfaCd(5), table, LocalWork(lr=0.3)))


def test_the_last_model_is_put_into_a_module():
    torch = pytest.importorskip("torch")
    run = trained(module())
    fresh = module()
    assert run.load_into(fresh) is fresh
    data = load_digits()
    with torch.no_grad():
        predicted = fresh(torch.from_numpy(data.x_test)).argmax(-1).numpy()
    assert (predicted == data.y_test).mean() == pytest.approx(run.accuracy)
    assert run.accuracy > 0.8


def test_buffers_that_travelled_are_set_and_what_was_not_trained_stays():
    torch = pytest.importorskip("torch")
    layout = Layout.of(
        {"running_mean": ((2,), "F32"), "num_batches_tracked": ((), "F32"), "bias": ((2,), "F32")}
    )
    tensors = {
        "running_mean": np.array([1.0, 2.0], np.float32),
        "num_batches_tracked": np.array(2.6, np.float32),
        "bias": np.array([5.0, 6.0], np.float32),
    }
    run = Run(layout.join(tensors), [], {"final_accuracy": None}, layout)
    norm = run.load_into(torch.nn.BatchNorm1d(2))
    assert norm.running_mean.tolist() == [1, 2]
    assert (norm.num_batches_tracked.item(), norm.num_batches_tracked.dtype) == (3, torch.int64)
    assert norm.bias.tolist() == [5, 6]
    assert norm.weight.tolist() == [1, 1]


def test_a_module_of_another_kind_is_refused_and_left_alone():
    torch = pytest.importorskip("torch")
    run = trained(module())
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 9))
    before = other[1].bias.tolist()
    told = r"Sequential has 1.bias of shape \(9,\), the model \(10,\)"
    with pytest.raises(ConfigError, match=told):
        run.load_into(other)
    with pytest.raises(ConfigError, match=r"Linear has no 1.bias.*which the model has"):
        run.load_into(torch.nn.Linear(64, 10))
    assert other[1].bias.tolist() == before


def test_a_run_read_from_its_directory_loads_too(tmp_path):
    pytest.importorskip("torch")
    settings = replace(SMALL, model="mlp")
    simulate(settings, out=tmp_path / "run")
    again = simulate(out=tmp_path / "run", resume=True)
    data = load_digits()
    fresh = make_task("mlp", data, [np.arange(9)], seed=5).module
    again.load_into(fresh)
    assert fresh.state_dict()[again.layout.names[0]].ravel()[0].item() == again.params[0]


def test_dir_shows_what_there_is():
    wanted = {"TorchTask", "Worker", "simulate", "callbacks", "Metric", "Stop", "KeepBest"}
    assert wanted <= set(dir(anarchic))
    assert not {"import_module", "core", "Any"} & set(dir(anarchic))
