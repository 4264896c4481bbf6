"""The pictures are what the timetables give, small, and still for those who asked for that."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from anarchic import AfaCd, AfaCs
from tests.docs import pictures

MADE = sorted(pictures.PICTURES)


def shown(name: str) -> str:
    return (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in MADE if name != "curves"])
def test_a_picture_is_what_the_timetables_give(name: str):
    assert shown(name) == pictures.PICTURES[name](), "run: python -m tests.docs.pictures"


@pytest.mark.slow
def test_the_curves_are_those_of_the_runs():
    """To a tenth of a point: another processor may round otherwise."""
    ours, kept = (
        np.array(re.findall(r"[\d.]+", "".join(re.findall(r'd="(M[^"]+L[^"]+L[^"]+)"', text))))
        for text in (pictures.curves(), shown("curves"))
    )
    assert len(kept) > 200
    np.testing.assert_allclose(ours.astype(float), kept.astype(float), atol=1.0)


@pytest.mark.parametrize("name", MADE)
def test_a_picture_is_small_and_needs_no_motion(name: str):
    text = shown(name)
    assert len(text) < 30_000
    assert ElementTree.fromstring(text).find("{*}title") is not None
    assert "prefers-reduced-motion" in text
    assert "<script" not in text


def test_every_picture_is_committed_and_no_other():
    assert sorted(path.stem for path in pictures.FOLDER.glob("*.svg")) == MADE


def test_the_weights_of_a_step_are_those_of_the_rule():
    """By hand: three updates make a step; AFA-CS counts everybody heard so far equally."""
    table = pictures.timetables()[1]
    first = table.worker[:3].tolist()
    assert len(set(first)) == 3
    step = pictures.weights(AfaCd(m=3, server_lr=1.0), table, 1)[0]
    assert [step[worker] for worker in first] == pytest.approx([1 / 3] * 3)
    steps = pictures.weights(AfaCs(m=3, server_lr=1.0), table, 14)
    assert steps.sum(axis=1) == pytest.approx(np.ones(14))
    assert steps[-1] == pytest.approx(np.full(6, 1 / 6))
