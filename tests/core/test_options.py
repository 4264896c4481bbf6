"""An option in the wrong place, or with another name, is refused in one sentence."""

from __future__ import annotations

import inspect

import pytest

import anarchic
from anarchic.core.options import says_options
from anarchic.data import Dataset, iid
from anarchic.errors import ConfigError, UnknownOption

DATA = Dataset.of([[0.0], [1.0]] * 10, [0, 1] * 10)
PARTS = iid(DATA.y_train, 2, 0)


def made(**options):
    return anarchic.make_task("logistic", DATA, PARTS, **options)


def experiment(**options):
    table = anarchic.Sampler(2, 1, anarchic.ConstantSteps(1)).timetable(0, 1)
    return anarchic.Experiment(made(), anarchic.AfaCd(1), table, **options)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: experiment(per_worker=True), "Experiment has no option 'per_worker': give it to"),
        (lambda: experiment(per_worker=True), r"Settings\(per_worker=\.\.\.\)"),
        (lambda: experiment(batch=3), r"LocalWork\(batch=\.\.\.\)"),
        (lambda: experiment(batch_size=3), r"has no option 'batch_size': give .*LocalWork\(batch="),
        (lambda: experiment(evalevery=3), "Did you mean 'eval_every'?"),
        (lambda: anarchic.Settings(learning_rate=1), "Did you mean 'local_lr'?"),
        (lambda: anarchic.Settings(num_clients=1), "Did you mean 'workers'?"),
        (lambda: anarchic.Settings(device="cuda"), r"give it to Compute\(device=\.\.\.\)"),
        (lambda: anarchic.Compute(dtype="float64"), r"Settings\(dtype=\.\.\.\)"),
        (lambda: anarchic.LocalWork(batch_size=1), "Did you mean 'batch'?"),
        (lambda: anarchic.LocalWork(optimiser=1), "Did you mean 'optimizer'?"),
        (lambda: anarchic.simulate(rounds=1), r"simulate .* give it to Settings\(rounds=\.\.\.\)"),
        (lambda: anarchic.simulate(outt="x"), "Did you mean 'out'?"),
        (lambda: anarchic.simulate(checkpoint_s=1), "Did you mean 'checkpoint_every'?"),
        (lambda: anarchic.simulate_many({}, progress=True), r"simulate\(progress=\.\.\.\)"),
        (lambda: Dataset.of([1.0], [1], label="y"), r"Dataset.of .* Did you mean 'target'?"),
        (lambda: Dataset.of([1.0], [1], test_size=0.1), "Did you mean 'test'?"),
        (lambda: anarchic.Worker("http://x", tokenfile="y"), "Did you mean 'token_file'?"),
        (lambda: anarchic.Worker("http://x", retry=1), r"give it to Connection\(retry=\.\.\.\)"),
        (lambda: anarchic.Sampler(clients=3, m=1, steps=1), "Did you mean 'workers'?"),
        (lambda: anarchic.KeepBest(metrics="f1"), "Did you mean 'metric'?"),
        (lambda: anarchic.EarlyStop(patience=1, min_delta=1), "Its options: patience"),
        (lambda: anarchic.Metric(max, zzz=1), "Its options: function, of, tensors, targets_first"),
    ],
)
def test_an_option_that_is_not_there_is_told_with_what_to_do(call, says):
    with pytest.raises(UnknownOption, match=says) as error:
        call()
    assert isinstance(error.value, ConfigError | TypeError)


def test_options_of_a_torch_task_reach_softmax_regression_too():
    torch = pytest.importorskip("torch")
    with pytest.raises(
        UnknownOption, match=r"TorchTask has no option 'los'\. Did you mean 'loss'\?"
    ):
        made(los=torch.nn.functional.cross_entropy)
    task = made(loss=torch.nn.CrossEntropyLoss(label_smoothing=0.5))
    assert task.evaluate(task.init())["loss"] > 0.6
    with pytest.raises(UnknownOption, match=r"TorchTask has no option 'model'\. .* 'module'\?"):
        anarchic.TorchTask(model=torch.nn.Linear(1, 2), data=DATA, parts=PARTS)


def test_what_is_right_is_as_it_was():
    @says_options
    def add(one, *, other=1):
        """Sum."""
        return one + other

    assert add(2, other=3) == 5
    assert add.__doc__ == "Sum."
    assert list(inspect.signature(add).parameters) == ["one", "other"]
    assert list(inspect.signature(anarchic.LocalWork).parameters)[:2] == ["rule", "lr"]
    with pytest.raises(TypeError, match="missing 1 required"):
        add()


def test_a_callback_of_a_trainer_checks_its_options_when_it_is_made():
    pytest.importorskip("torch")
    from anarchic.bridges.trainers import OPTIONS, TrainerVisits
    from anarchic.torch import visit

    with pytest.raises(UnknownOption, match=r"VisitCallback .* Did you mean 'every_n_steps'?"):
        TrainerVisits(None, every_steps=3)
    known = list(inspect.signature(visit).parameters)
    assert known == ["worker", "model", "train", *OPTIONS]
