"""The page on models tells of every kind, and what it tells can be seen again."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
from anarchic import TorchTask
from anarchic.data import iid
from tests.bridges import library
from tests.kinds.libraries import LIBRARIES
from tests.kinds.outcome import Outcome
from tests.kinds.page import LOOPS, PAGE, RESULTS, written
from tests.kinds.refused import refusals
from tests.kinds.worlds import EVERY, batched, live, loop
from tests.train.kinds import KINDS

SLOW = ("ResNet", "LSTM", "GRU", "Transformer", "Next")


def test_the_page_is_what_was_measured_of_every_kind():
    results = json.loads(RESULTS.read_text())
    assert results.keys() >= {*EVERY, *LOOPS}
    assert len(results) >= 20
    assert PAGE.read_text() == written()
    for name in {*EVERY, *LOOPS}:
        assert all(Outcome(**each).learnt for each in results[name].values()), name


def test_the_sentences_are_those_of_today():
    results = json.loads(RESULTS.read_text())
    for name, worlds in refusals().items():
        assert {world: told["refused"] for world, told in results[name].items()} == worlds


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith(SLOW)])
def test_a_kind_learns_live(name, tmp_path):
    assert live(name, tmp_path).learnt


@pytest.mark.slow
def test_adapters_of_a_transformer_learn_in_a_batch():
    library("peft")
    kind = LIBRARIES["LoRA by PEFT"]
    task = TorchTask(kind.make(), kind.data(), iid(kind.data().y_train, 4, 0), **kind.options)
    assert all("lora_" in name for name in task.layout.names)
    assert batched("LoRA by PEFT").learnt


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Dropout", "CNN with BatchNorm, local", "Regression"])
def test_a_kind_learns_in_the_loop(name):
    assert loop(name).learnt
