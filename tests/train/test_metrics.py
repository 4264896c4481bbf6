"""Metrics of one's own: what they get, and what they may return."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from anarchic import Experiment, Metric, Settings, build, make_task, simulate, simulate_many
from anarchic.data import iid, load_digits
from anarchic.errors import ConfigError
from anarchic.sim.record import RunDirectory
from anarchic.train.metrics import check_metrics, measure

OUTPUTS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
TARGETS = np.array([0, 1, 1])
SMALL = Settings(rounds=6, batch=8, eval_every=2)


def share_right(predicted, targets):
    return (predicted == targets).mean()


def undefined(predicted, targets):
    return float("nan")


def value(function, outputs=OUTPUTS, targets=TARGETS, **options):
    return measure({"it": Metric(function, **options)}, outputs, targets)["it"]


def test_a_function_gets_predicted_classes_and_targets():
    assert value(share_right) == pytest.approx(2 / 3)
    assert value(lambda p, t: p.tolist() == [0, 1, 0] and t.tolist() == [0, 1, 1]) == 1


def test_outputs_or_probabilities_are_given_to_those_that_ask():
    assert value(lambda outputs, targets: outputs.sum(), of="outputs") == 7
    sums = value(lambda shares, targets: shares.sum(), of="probabilities")
    assert sums == pytest.approx(3)
    assert value(lambda p, t: p[1, 1], of="probabilities") == pytest.approx(1 / (1 + np.exp(-1)))


def test_targets_that_are_no_classes_are_compared_with_outputs():
    outputs, targets = np.array([[1.0], [2.0]]), np.array([[1.5], [2.5]])
    assert value(lambda o, t: np.abs(o - t).max(), outputs, targets) == 0.5


def test_classes_of_sequences_are_one_long_list():
    outputs = np.eye(3)[np.array([[0, 1], [2, 2]])]  # (2 sequences, 2 places, 3 classes)
    assert value(share_right, outputs, np.array([[0, 1], [2, 0]])) == 0.75


def test_labels_to_be_ignored_do_not_count_and_classes_may_come_second():
    torch = pytest.importorskip("torch")
    outputs = torch.eye(3)[torch.tensor([[0, 1], [2, 2]])].movedim(-1, 1)  # (2, 3 classes, 2)
    assert value(share_right, outputs, torch.tensor([[0, 1], [0, -100]])) == pytest.approx(2 / 3)


def test_targets_come_first_where_the_function_says_so():
    def missed(y_true, y_pred):
        return ((y_true == 1) & (y_pred == 0)).sum()

    assert value(missed) == 1
    assert value(partial(missed)) == 1
    assert value(lambda p, t: ((p == 1) & (t == 0)).sum()) == 0


def order_of(names, **options):
    """Which of its arguments a function with such names gets first."""
    first = names.split(", ")[0]
    function = eval(f"lambda {names}: {first}.tolist() == [0, 1, 1]")  # only the targets are so
    return "targets first" if value(function, **options) else "predictions first"


@pytest.mark.parametrize(
    "names",
    [
        *("y_true, y_pred", "y_test, y_pred", "ytrue, yhat", "gt, pred", "expected, got"),
        *("ground_truth, prediction", "reference, output", "labels, logits", "truth, scores"),
        *("actual, predicted", "true, p", "y, y_hat", "t, preds", "labels_true, labels_pred"),
        *("yTrue, yPred", "expected_output, actual_output", "a, y_score", "target, input"),
    ],
)
def test_either_name_may_say_that_targets_come_first(names):
    assert order_of(names) == "targets first"
    swapped = ", ".join(reversed(names.split(", ")))
    assert order_of(swapped) == "predictions first"


@pytest.mark.parametrize("names", ["t, p", "a, b", "p, t", "x, z", "y, y_true", "input, target"])
def test_predictions_come_first_where_names_do_not_say_otherwise(names):
    assert order_of(names) == "predictions first"
    assert order_of(names, targets_first=True) == "targets first"
    assert order_of("y_true, y_pred", targets_first=False) == "predictions first"


def test_the_forward_of_a_module_says_the_order():
    torch = pytest.importorskip("torch")

    class Missed(torch.nn.Module):
        def forward(self, y_true, y_pred):
            return ((y_true == 1) & (y_pred == 0)).sum()

    assert value(Missed()) == 1


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_output_is_one_probability_and_one_class(shape):
    outputs, targets = np.array([[-800.0], [0.5], [800.0]]), TARGETS.reshape(shape)
    chances = np.reshape([0, 1 / (1 + np.exp(-0.5)), 1], shape)
    for of, expected in (("probabilities", chances), ("classes", chances.round())):
        assert value(lambda p, t, e=expected: np.allclose(p, e), outputs, targets, of=of) == 1
        assert value(lambda p, t: p.shape == t.shape, outputs, targets, of=of) == 1


def test_an_own_function_of_y_score_gets_probabilities_of_class_1():
    def mean_score(y_true, y_score):
        return y_score.mean()

    powers = np.exp(OUTPUTS)
    assert value(mean_score) == pytest.approx((powers[:, 1] / powers.sum(1)).mean())
    numbers = np.array([1.5, 2.5, 3.5])  # no labels: the outputs as they are
    assert value(mean_score, numbers + 1, numbers) == 3.5


def test_an_object_that_counts_begins_anew():
    class Counting:
        def __init__(self):
            self.reset()

        def reset(self):
            self.seen = 0

        def __call__(self, predicted, targets):
            self.seen += len(targets)
            return self.seen

    counting = Counting()
    assert (value(counting), value(counting), counting.seen) == (3, 3, 0)


@pytest.mark.parametrize(
    ("function", "of"),
    [
        (lambda p, t: [1, 2], "a list"),
        (lambda p, t: {"f1": 1.0}, "a dict"),
        (lambda p, t: np.ones((3, 2)), r"a ndarray of shape \(3, 2\)"),
        (lambda p, t: None, "a NoneType"),
    ],
)
def test_what_is_not_one_number_is_refused_with_what_it_is(function, of):
    with pytest.raises(ConfigError, match=f"metric 'it': <lambda> returned {of}: .* one number"):
        value(function)


def test_what_a_metric_raises_is_said_with_what_it_was_called_with():
    def f1(y_true, y_pred):
        raise KeyError("positive")

    arrays = (
        r"targets \(an array of int64, shape \(3,\)\) and predicted classes \(an array of int64"
    )
    with pytest.raises(
        ConfigError, match=f"'it': f1 raised KeyError: 'positive'.*{arrays}"
    ) as told:
        value(f1)
    assert isinstance(told.value.__cause__, KeyError)
    with pytest.raises(ConfigError, match=r"len raised TypeError: len\(\) takes exactly one arg"):
        value(len)


@pytest.mark.parametrize("name", ["accuracy", "round", "two words", "", "a,b"])
def test_a_name_that_is_taken_or_cannot_be_typed_is_refused(name):
    with pytest.raises(ConfigError, match="A metric needs a name"):
        check_metrics({name: share_right})


def test_what_is_no_function_is_refused():
    with pytest.raises(ConfigError, match="a function of predictions and targets, got 3"):
        check_metrics({"three": 3})
    with pytest.raises(ConfigError, match="of classes, outputs or probabilities, got of='logits'"):
        Metric(share_right, of="logits")
    with pytest.raises(ConfigError, match="named as module:function, got <function"):
        Settings(metrics={"right": share_right})


def task(model, **options):
    data = load_digits()
    return make_task(model, data, iid(data.y_train, 10, 0), **options)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_task_has_metrics_beside_accuracy_and_loss(model):
    if model == "mlp":
        pytest.importorskip("torch")
    judged = task(model, metrics={"right": share_right, "none": undefined})
    found = judged.evaluate(judged.init())
    assert list(found) == ["accuracy", "loss", "right", "none"]
    assert found["right"] == pytest.approx(found["accuracy"])
    plain = task(model)
    assert plain.evaluate(plain.init()) == {n: found[n] for n in ("accuracy", "loss")}
    assert judged.digest() == plain.digest()  # a run may go on with other metrics


def test_metrics_of_validation_data_have_their_own_names_and_may_be_undefined():
    data = load_digits()
    split = replace(data, x_val=data.x_test[:50], y_val=data.y_test[:50])
    metrics = {"right": share_right, "none": undefined}
    judged = make_task("logistic", split, iid(data.y_train, 10, 0), metrics=metrics)
    run = simulate(replace(build(SMALL), task=judged))
    last = run.metrics[-1]
    assert last["val_right"] == pytest.approx(last["val_accuracy"])
    assert (last["none"], last["val_none"]) == (None, None)


def rows_of(run, *names):
    return [[row.get(name) for name in ("round", *names)] for row in run.metrics]


def test_metrics_are_recorded_and_an_undefined_one_is_left_empty(tmp_path):
    experiment = replace(build(SMALL), metrics={"right": share_right, "none": undefined})
    run = simulate(experiment, out=tmp_path / "run")
    for row in run.metrics:
        assert row["right"] == pytest.approx(row["accuracy"])
        assert row["none"] is None
    assert RunDirectory(tmp_path / "run").metrics() == run.metrics
    assert (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0].endswith("right,none")
    np.testing.assert_array_equal(run.params, simulate(SMALL).params)


class Cut(Exception):
    pass


def cut(progress):
    if progress.round == 4:
        raise Cut


def test_a_resumed_run_goes_on_with_its_metrics(tmp_path):
    settings = replace(SMALL, metrics={"right": f"{__name__}:share_right"})
    whole = simulate(settings)
    with pytest.raises(Cut):
        simulate(settings, out=tmp_path / "cut", checkpoint_every=4, watch=cut)
    resumed = simulate(out=tmp_path / "cut", resume=True)  # the settings name the metrics
    assert rows_of(resumed, "right") == rows_of(whole, "right")
    names = RunDirectory(tmp_path / "cut").metrics()[-1]
    assert names["right"] == whole.metrics[-1]["right"]


@pytest.mark.parametrize(("before", "after"), [({}, {"b": share_right}), ({"a": share_right}, {})])
def test_a_run_resumed_with_other_metrics_has_empty_places(tmp_path, before, after):
    experiment = build(SMALL)
    with pytest.raises(Cut):
        simulate(replace(experiment, metrics=before), out=tmp_path, checkpoint_every=4, watch=cut)
    resumed = simulate(replace(experiment, metrics=after), out=tmp_path, resume=True)
    (name,) = {**before, **after}
    known = [row.get(name) is not None for row in resumed.metrics]
    assert known == [bool(before)] * 3 + [bool(after)]
    assert [row[name] is not None for row in RunDirectory(tmp_path).metrics()] == known
    text = (tmp_path / "metrics.csv").read_text().splitlines()
    assert {line.count(",") for line in text} == {7}
    assert text[2].startswith("2,,10,")


def test_runs_that_share_a_batch_keep_their_own_metrics():
    def wrong(predicted, targets):
        return (predicted != targets).mean()

    base = build(SMALL)
    runs: dict[str, Experiment] = {
        "plain": base,
        "right": replace(base, metrics={"right": share_right}),
        "wrong": replace(base, metrics={"wrong": wrong}, eval_samples=100),
    }
    found = simulate_many(runs)
    for name, experiment in runs.items():
        assert rows_of(found[name], name) == rows_of(simulate(experiment), name)
    assert "right" not in found["plain"].metrics[-1]
    assert found["wrong"].metrics[-1]["wrong"] == pytest.approx(
        1 - found["right"].metrics[-1]["right"]
    )


def test_a_metric_that_fails_is_said_before_training():
    trained = []
    experiment = replace(build(SMALL), metrics={"broken": lambda p, t: 1 / 0})
    with pytest.raises(ConfigError, match=r"'broken': <lambda> raised ZeroDivisionError"):
        simulate(experiment, watch=trained.append)
    assert not trained


def test_some_test_samples_are_drawn_once_and_the_end_has_all():
    experiment = replace(build(SMALL), eval_samples=90)
    run = simulate(experiment)
    assert [row["test_samples"] for row in run.metrics] == [90, 90, 90, 360]
    plain = simulate(SMALL)
    assert run.metrics[-1]["accuracy"] == plain.metrics[-1]["accuracy"]
    assert rows_of(run, "loss")[:-1] != rows_of(plain, "loss")[:-1]
    assert rows_of(simulate(experiment), "loss") == rows_of(run, "loss")
    assert "test_samples" not in simulate(replace(experiment, eval_samples=999)).metrics[-1]


def test_a_run_that_stops_early_is_evaluated_on_all_test_samples_once(tmp_path):
    experiment = replace(build(SMALL), eval_samples=90, eval_every=1, target_accuracy=0.2)
    run = simulate(experiment, out=tmp_path / "run")
    assert run.summary["stopped_at"] == "target"
    assert run.summary["rounds"] < 6
    assert [row["test_samples"] for row in run.metrics][-2:] == [90, 360]
    rounds = [row["round"] for row in run.metrics]
    assert len(set(rounds)) == len(rounds)
    assert RunDirectory(tmp_path / "run").metrics() == run.metrics


def test_the_paper_s_measure_is_known_only_where_the_last_ten_rounds_were_evaluated():
    seldom = replace(SMALL, rounds=20, eval_every=5)
    assert simulate(seldom).summary["last10_accuracy"] is None
    asked = simulate(replace(seldom, last10=True))
    last = [row["accuracy"] for row in asked.metrics if row["round"] > 10]
    assert (len(last), asked.summary["last10_accuracy"]) == (10, pytest.approx(np.mean(last)))
    every = simulate(replace(seldom, eval_every=1))
    assert every.summary["last10_accuracy"] == asked.summary["last10_accuracy"]
