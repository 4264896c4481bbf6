from __future__ import annotations

import json

import numpy as np
import pytest

from anarchic.data import Dataset
from anarchic.errors import ConfigError
from anarchic.study.grid import Grid
from anarchic.study.sweeps import grid_of
from anarchic.train.compute import Compute


def test_every_combination_is_a_cell_with_its_settings():
    grid = grid_of(rule=["afa-cd", "fedbuff"], server_lr=[0.5, 2.0], rounds=7, seed=range(3))
    cells = grid.cells()
    assert [cell.name for cell in cells] == [
        "rule=afa-cd+server_lr=0.5",
        "rule=afa-cd+server_lr=2",
        "rule=fedbuff+server_lr=0.5",
        "rule=fedbuff+server_lr=2",
    ]
    assert [(c.settings.rule, c.settings.server_lr, c.settings.rounds) for c in cells[1:3]] == [
        ("afa-cd", 2.0, 7),
        ("fedbuff", 0.5, 7),
    ]
    assert grid.size == len(grid.jobs()) == 12
    assert [job.seed for job in grid.jobs()] == [0] * 4 + [1] * 4 + [2] * 4


def test_cases_are_settings_that_go_together():
    cases = [{"rule": "afa-cd", "server_lr": 0.5}, {"rule": "fedbuff", "server_lr": 2.0}]
    grid = grid_of(cases=cases, max_staleness=[0, 4])
    assert grid.names == ["rule", "server_lr", "max_staleness"]
    found = [
        (c.settings.rule, c.settings.server_lr, c.settings.max_staleness) for c in grid.cells()
    ]
    assert found == [
        ("afa-cd", 0.5, 0),
        ("afa-cd", 0.5, 4),
        ("fedbuff", 2.0, 0),
        ("fedbuff", 2.0, 4),
    ]


def test_an_entry_of_a_mapping_is_named_with_a_dot():
    grid = grid_of({"server_opt": "momentum"}, **{"server_options.beta": [0.5, 0.9]})
    assert [c.settings.server_options for c in grid.cells()] == [{"beta": 0.5}, {"beta": 0.9}]


def test_names_that_would_be_equal_get_numbers():
    grid = grid_of(
        data_options=[{"path": "a/b", "target": "y"}, {"path": "a-b", "target": "y"}], data="csv"
    )
    names = [cell.name for cell in grid.cells()]
    assert names == ["data_options=path=a-b-target=y", "data_options=path=a-b-target=y.2"]


def test_a_combination_that_cannot_be_fails_alone():
    grid = grid_of(rule=["afa-cd", "fedavg"], max_staleness=[0, 4])
    *fine, refused = grid.cells()
    assert all(cell.measure is None for cell in fine)
    with pytest.raises(ConfigError, match="synchronous and has no use for max_staleness=4"):
        refused.measure(None)


def test_where_no_combination_can_be_the_first_error_is_raised():
    with pytest.raises(ConfigError, match="no use for max_staleness=4"):
        grid_of(rule="fedavg", max_staleness=[4, 5]).cells()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"server_lrr": [1.0]}, "no setting 'server_lrr'. Did you mean 'server_lr'"),
        ({"server_lr": []}, "values of server_lr, got none"),
        ({"server_lr": [1.0, 1.0]}, "value 1.0 twice"),
        ({"seed": [0, 0]}, "seed has the value 0 twice"),
        ({"seed": [-1]}, "whole numbers from 0 on, got -1"),
        ({"seed": range(200_000)}, "at most 100,000 runs"),
        ({"cases": []}, "needs cases, got none"),
        ({"cases": [{"seed": 3}]}, "give them as seed"),
        ({"rule.beta": [1.0]}, "no setting 'rule.beta'"),
    ],
)
def test_what_cannot_be_a_sweep_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        grid_of(**wrong)


def test_data_of_ones_own_are_refused_with_the_remedy():
    mine = Dataset.of(np.ones((9, 2)), np.arange(9) % 3)
    for given in ({"data": mine}, {"cases": [{"data": mine}]}):
        with pytest.raises(ConfigError, match=r'data is not .*data="my_module:my_data"'):
            grid_of(**given).record()


def test_a_definition_survives_json():
    grid = grid_of(
        rule=["afa-cd"], workers=2, arrival_probs=(0.9, 0.1), seed=range(2),
        compute=Compute(lookahead=3),
    )  # fmt: skip
    again = Grid.from_record(json.loads(json.dumps(grid.record())))
    assert again.record() == grid.record()
    assert [c.settings for c in again.cells()] == [c.settings for c in grid.cells()]
    assert again.compute.lookahead == 3
