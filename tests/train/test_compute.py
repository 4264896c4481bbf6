"""How a run is computed: what is refused, and that every switch is back afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from anarchic import AfaCd, Compute, Experiment, LocalWork, Settings, simulate, simulate_many
from anarchic.data import random_quadratics
from anarchic.errors import ConfigError, Diverged, RunError
from anarchic.kernels import loops
from anarchic.kernels.chunks import CHUNK, threads_in_use
from anarchic.participation import ConstantSteps, Sampler
from anarchic.train.compute import computing
from anarchic.train.quadratic import QuadraticTask

torch = pytest.importorskip("torch")
SMALL = Settings(rounds=2, batch=8)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"backend": "jax"}, "no backend 'jax'"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"threads": "2"}, "threads must be a whole number or None, got '2'"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"device": "cuda:x"}, "no device 'cuda:x'"),
        ({"device": "cuda", "precision": "fp8"}, "no precision 'fp8'"),
        ({"precision": "tf32"}, "precision='tf32' is for a GPU, got device='cpu'"),
        ({"graphs": True}, "graphs are recorded on a GPU"),
        ({"lookahead": 0}, "lookahead must be at least 1"),
    ],
)
def test_bad_choices_are_refused_with_a_sentence(choice, says):
    with pytest.raises(ConfigError, match=says):
        Compute(**choice)


def test_a_record_of_another_version_is_refused():
    assert Compute.from_record({"rounds": 3, "compute": {"threads": 2}}) == Compute(threads=2)
    assert Compute.from_record({}) == Compute()
    with pytest.raises(RunError, match=r"this version \(quantum\)"):
        Compute.from_record({"compute": {"quantum": True}})


def switches():
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    return torch.get_num_threads(), threads_in_use(), *flags


@pytest.fixture
def before():
    """What the process has, to be found again."""
    return switches()


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_threads_are_those_of_the_run_while_it_lasts(before, model):
    more, seen = max(before[:2]) + 1, []

    def watch(progress):
        seen.append(switches()[:2])

    settings = Settings(rounds=2, batch=8, model=model)
    simulate(settings, compute=Compute(threads=more), watch=watch)
    assert seen == [(more, more)] * 2
    assert switches() == before


def test_threads_stay_as_they_are_where_none_are_asked_for(before):
    seen = []
    simulate(Settings(rounds=1, model="mlp"), watch=lambda progress: seen.append(switches()))
    assert [*seen, switches()] == [before, before]


def test_switches_are_back_after_a_run_that_raises(before):
    def fail(progress):
        raise OSError("disk full")

    many = Compute(threads=max(before[:2]) + 1)
    with pytest.raises(OSError, match="disk full"):
        simulate(SMALL, compute=many, watch=fail)
    assert switches() == before
    with pytest.raises(Diverged):
        simulate(Settings(rounds=4, local_lr=1e30), compute=many)
    assert switches() == before


def test_runs_with_threads_of_their_own_are_not_one_group(before):
    most, seen = max(before[:2]), {}
    runs = {f"{threads}": quadratic(threads=threads) for threads in (most + 1, most + 2)}

    def watch(name, progress):
        seen[name] = threads_in_use()

    simulate_many(runs, watch=watch)
    assert seen == {f"{threads}": threads for threads in (most + 1, most + 2)}
    assert switches() == before


def test_short_vectors_are_folded_by_compiled_loops_only_while_a_long_run_lasts():
    vector = np.zeros(CHUNK + 1)
    before = loops.suit(vector)
    with computing(None, folded=loops.MANY - 1):
        assert loops.suit(vector) == before
    with computing(None, folded=loops.MANY):
        assert loops.suit(vector) == loops.CAN_COMPILE
    assert loops.suit(vector) == before


def quadratic(**options):
    table = Sampler(4, 2, ConstantSteps(1)).timetable(0, 2)
    task = QuadraticTask(random_quadratics(4, 3))
    return Experiment(task, AfaCd(2), table, LocalWork(lr=0.1), **options)
