"""The paper's numbers, through the command line."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

# Table 1 of the paper, LR/MNIST, 5 of 10 workers, K = 5: synchronous and asynchronous, constant.
PAPER = {(2, 0): 0.8906, (2, 4): 0.8901, (10, 0): 0.9114, (10, 4): 0.9129}
TOLERANCE = {2: 0.008, 10: 0.004}
HERE = os.path.isdir(os.path.join(os.environ.get("ANARCHIC_DATA", ""), "mnist"))


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="needs MNIST: set ANARCHIC_DATA to a folder that holds it")
@pytest.mark.parametrize(("p", "max_staleness"), PAPER)
def test_lr_on_mnist_reaches_the_paper_s_accuracy(p, max_staleness, tmp_path):
    from anarchic.cli.app import app

    found = []
    for seed in range(3):
        out = tmp_path / str(seed)
        command = (
            "simulate --data mnist --model logistic --workers 10 --m 5 --local-steps 5 --batch 64 "
            f"--local-lr 0.1 --server-lr 1.0 --rounds 150 --labels-per-worker {p} --last10 "
            f"--max-staleness {max_staleness} --seed {seed} --out {out}"
        )
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, result.output
        found.append(json.loads((out / "summary.json").read_text())["last10_accuracy"])
    assert abs(np.mean(found) - PAPER[p, max_staleness]) < TOLERANCE[p], found
