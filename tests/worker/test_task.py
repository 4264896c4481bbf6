import numpy as np
import pytest

from anarchic import Layout
from anarchic.data import Dataset, load, random_quadratics
from anarchic.errors import ConfigError
from anarchic.train.quadratic import QuadraticTask
from anarchic.worker import FromTask, FunctionTask, SoftmaxTask, digits_task, load_task
from anarchic.worker.visit_loop import _check_buffers

TASKS = """
from anarchic import Layout
from anarchic.worker import FunctionTask
task = FunctionTask(Layout.of({"x": ((2,), "F32")}), lambda x: (x, None, 1))
def make(): return task
class Shop:
    layout, made = task.layout, make
    def gradient(self, x): return x, 0.5, 3
shop = Shop()
nothing, number = (lambda: None), 3
"""


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    name = f"tasks_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(TASKS)
    (tmp_path / f"broken_{name}.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("name", ["task", "make", "Shop", "shop", "shop.gradient.__self__"])
def test_a_task_is_found_by_name(tasks, name):
    assert load_task(f"{tasks}:{name}").layout.dim == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tasks", "no task 'tasks'; there are digits"),
        (":task", "Expected module:name"),
        ("no_such_module:task", "no module 'no_such_module'"),
        ("{}:missing", "has no 'missing'"),
        ("{}:nothing", "without layout and gradient"),
        ("{}:number", "is a int without"),
        ("digits:9/8", "count from 1 to 8"),
        ("digits:0/8", "count from 1 to 8"),
        ("digits", "named as digits:3/8, 3 of 8; got 'digits'"),
        ("digits:3", "named as digits:3/8"),
    ],
)
def test_an_unusable_task_is_refused(tasks, spec, message):
    with pytest.raises(ConfigError, match=message):
        load_task(spec.format(tasks))


def test_a_module_that_fails_to_import_says_why(tasks):
    with pytest.raises(ConfigError, match=r"cannot be imported .*no_such_thing"):
        load_task(f"broken_{tasks}:task")


def test_digits_are_partitioned_with_label_skew():
    parts = [digits_task(f"digits:{n}/8") for n in range(1, 9)]
    held = [np.bincount(task._y, minlength=10) for task in parts]
    assert sum(map(sum, held)) == 1437
    assert np.mean([row.max() / row.sum() for row in held]) > 0.25  # 0.1 without skew
    assert load_task("digits:3/8").layout == parts[0].layout


def test_the_softmax_gradient_is_that_of_its_loss():
    rng = np.random.default_rng(0)
    task = SoftmaxTask(rng.normal(size=(1, 5)), [2], 3)
    x = rng.normal(size=task.layout.dim)
    gradient, _, samples = task.gradient(x)
    slopes = [
        (task.gradient(x + step)[1] - task.gradient(x - step)[1]) / 2e-5
        for step in 1e-5 * np.eye(len(x))
    ]
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)
    assert samples == 1


def test_softmax_is_the_model_logistic():
    torch = pytest.importorskip("torch")
    from anarchic.models import make
    from anarchic.train.torch_task import TorchTask

    data = load("digits")
    theirs = TorchTask(make("logistic", data), data, [np.array([5])])
    ours = SoftmaxTask(data.x_train[5:6], data.y_train[5:6], 10, batch=1)
    assert ours.layout == theirs.layout
    assert ours.init().tolist() == theirs.init().tolist()
    x = np.linspace(-1, 1, ours.layout.dim, dtype=np.float32)
    expected = theirs.gradient(torch.from_numpy(x), 0, {"sample": torch.tensor([5])})
    np.testing.assert_allclose(ours.gradient(x)[0], expected, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"x": []}, {"y": [1, 2]}, {"batch": 0}])
def test_a_softmax_without_samples_is_refused(wrong):
    settings = {"x": np.ones((1, 2)), "y": [0], "batch": 1, **wrong}
    with pytest.raises(ConfigError, match="needs samples with labels"):
        SoftmaxTask(settings["x"], settings["y"], 2, batch=settings["batch"])


def test_a_task_of_the_simulator_trains_live():
    functions = random_quadratics(3, 4, noise=0.0)
    live = FromTask(QuadraticTask(functions), 1)
    x = np.linspace(0, 1, 4)
    gradient, loss, samples = live.gradient(x)
    np.testing.assert_allclose(gradient, functions.gradient(x, 1))
    assert (loss, samples, live.layout.dim) == (None, 1, 4)
    assert live.init().tolist() == [0.0] * 4


def test_batches_are_drawn_anew_and_repeat_only_with_a_seed():
    functions = random_quadratics(2, 4, noise=1.0)

    def three(seed):
        live = FromTask(QuadraticTask(functions), 0, batch=2, seed=seed)
        return [live.gradient(np.zeros(4))[0].tolist() for _ in range(3)]

    assert three(7) == three(7)
    assert three(7) != three(8)
    assert three(None) != three(None)
    assert len({tuple(row) for row in three(7)}) == 3


def test_a_torch_task_trains_live():
    pytest.importorskip("torch")
    from anarchic.models import make
    from anarchic.train.torch_task import TorchTask

    data = load("digits")
    task = TorchTask(make("mlp", data), data, [np.arange(50), np.arange(50, 70)])
    live = FromTask(task, 1, batch=8)
    x = live.init()
    for _ in range(20):
        gradient, _, samples = live.gradient(x)
        x = x - 0.1 * gradient
    assert samples == 20
    assert task.evaluate(x)["loss"] < task.evaluate(live.init())["loss"]


@pytest.mark.parametrize("wrong", [{"worker": 2}, {"worker": -1}, {"worker": 0, "batch": 0}])
def test_wrong_workers_and_batches_are_refused(wrong):
    functions = random_quadratics(2, 4)
    with pytest.raises(ConfigError):
        FromTask(QuadraticTask(functions), **wrong)


def test_a_function_is_a_task():
    task = FunctionTask(Layout.of({"x": ((1,), "F32")}), lambda x: (2 * x, None, 0))
    assert task.gradient(np.ones(1))[0].tolist() == [2.0]


def normed(policy):
    torch = pytest.importorskip("torch")
    from anarchic import TorchTask
    from tests.models.own_modules import Normed

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(2, size=40)
    data = Dataset("normed", x, y, x[:8], y[:8], 2)
    return TorchTask(Normed(), data, [np.arange(20), np.arange(20, 40)], buffers=policy)


def test_a_gradient_brings_the_averaged_buffers_as_they_are_after_the_step():
    task = FromTask(normed("average"), 0, batch=8, seed=1)
    assert len(task.layout.buffers) == 3
    assert (task.local_buffers, task.kept()) == ((), {})
    tensors = task.layout.split(task.gradient(task.init())[0])
    assert tensors["bn.num_batches_tracked"] == 1
    assert (tensors["bn.running_var"] > 0).all()
    assert not (tensors["bn.running_var"] == 1).any()


def test_local_buffers_are_no_part_of_the_layout_and_can_be_restored():
    whole = normed("local")
    task = FromTask(whole, 0, batch=8, seed=1)
    assert task.layout.buffers == ()
    assert task.layout.dim == len(task.init()) == whole.layout.dim - len(whole.layout.buffer_places)
    first = task.kept()["buffers"]
    gradient, _, _ = task.gradient(task.init())
    averaged = FromTask(normed("average"), 0, batch=8, seed=1)
    full = averaged.gradient(averaged.init())[0]
    places = averaged.layout.buffer_places
    np.testing.assert_array_equal(gradient, np.delete(full, places))
    np.testing.assert_array_equal(task.kept()["buffers"], full[places])
    task.restore({"buffers": np.zeros(5, np.float32)})  # of another model
    np.testing.assert_array_equal(task.kept()["buffers"], first)
    task.restore({"buffers": full[places]})
    np.testing.assert_array_equal(task.kept()["buffers"], full[places])


def test_a_task_with_another_policy_than_the_run_is_refused():
    average, local = (FromTask(normed(policy), 0).layout for policy in ("average", "local"))
    _check_buffers(average, average, "average")
    _check_buffers(local, local, "local")
    with pytest.raises(ConfigError, match="averages 0 buffers, since each worker keeps its own"):
        _check_buffers(local, average, "local")
    with pytest.raises(ConfigError, match="averages 3 buffers, the task has 0"):
        _check_buffers(average, local, "average")
