"""AFA-CS with every visit's sum of gradients divided by c."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from anarchic.core.rules import AfaCs
from anarchic.core.types import Update, Updates
from tests.experiments.run_files import names_of

run = names_of("figures-5-6")


def rule():
    return run.DividedByC(AfaCs(m=1, server_lr=1.0, population=2), c=5)


def test_a_visit_of_twice_c_steps_counts_twice():
    update = Update("a", 0, local_steps=10, local_lr=0.5, direction=np.array([2.0]))
    state = rule().receive(rule().init(np.array([10.0])), update)
    assert state.params[0] == 9.0  # 10 - (0.5 * 10/5 * 2) / 2


def test_a_block_is_folded_as_its_updates_are():
    block = Updates(
        workers=["a", "b"],
        base_versions=np.array([0, 0]),
        local_steps=np.array([10, 1]),
        local_lrs=np.array([0.5, 0.5]),
        directions=np.array([[2.0], [10.0]]),
        samples=np.array([1, 1]),
    )
    state = rule().receive_many(rule().init(np.array([10.0])), block)
    assert state.params[0] == pytest.approx(7.5)  # 10 - 2/2 = 9, then 9 - (2 + 1)/2


def test_uniform_cells_are_those_of_table_1():
    table = {(c.task, c.name): c for c in names_of("table-1").STUDY.cells}
    uniform = [c for c in run.STUDY.cells if c.columns["arrivals"] == "uniform"]
    assert len(uniform) == 12
    assert all(table[c.task, c.name].asked == c.asked for c in uniform)
