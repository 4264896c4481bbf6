from __future__ import annotations

import json

import pytest

from anarchic.errors import ConfigError
from anarchic.study.results import result_of
from anarchic.study.sweeps import grid_of
from anarchic.study.trainer import FAILED, attempts, from_record, to_record


def jobs(count):
    return grid_of(rule=["afa-cd"], seed=range(count)).jobs()


def test_a_job_survives_json():
    (job,) = grid_of(
        workers=2, arrival_probs=(0.9, 0.1), server_opt="momentum", seed=3,
        **{"server_options.beta": 0.5},
    ).jobs()  # fmt: skip
    again = from_record(json.loads(json.dumps(to_record(job))))
    assert (again.cell.settings, again.seed) == (job.cell.settings, 3)
    assert (again.compute, again.cell.read, again.name) == (job.compute, job.cell.read, job.name)


def test_a_batch_that_fails_is_tried_job_by_job():
    tried = []

    def train(batch):
        tried.append([job.seed for job in batch])
        if any(job.seed == 1 for job in batch):
            raise ConfigError("Not this one.")
        return [result_of(job, {"value": 1.0}) for job in batch]

    found = [result for results in attempts(jobs(3), train) for result in results]
    assert tried == [[0, 1, 2], [0], [1], [2]]
    assert [result.stopped_at for result in found] == [None, FAILED, None]
    assert found[1].numbers == {"reason": "Not this one."}


def test_an_error_of_others_is_named_and_cannot_write_to_the_terminal():
    def train(batch):
        raise ZeroDivisionError("\x1b[2Jdivided")

    ((found,),) = attempts(jobs(1), train)
    assert found.numbers["reason"].startswith("ZeroDivisionError: ")
    assert "\x1b" not in found.numbers["reason"]


def test_an_interruption_is_no_failure():
    def train(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(attempts(jobs(2), train))
