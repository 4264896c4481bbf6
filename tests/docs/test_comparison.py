"""The measured numbers of the comparison are those that were kept."""

from __future__ import annotations

import re

from benchmarks.record import read

from tests.docs import comparison


def test_the_page_has_the_kept_results():
    text = comparison.PAGE.read_text(encoding="utf-8")
    assert text.count(comparison.BEGIN) == text.count(comparison.END) == 1
    assert text == comparison.filled(text), "run: python -m tests.docs.comparison"
    assert "2,617 (0.871)" in text  # pfl-research, W1: 2616.6 of 3003.6 steps per second


def test_the_features_are_of_the_versions_that_were_measured():
    heading = re.search(r"^\| \| anarchic .*$", comparison.PAGE.read_text(encoding="utf-8"), re.M)
    assert heading is not None
    versions = read()["w1"].versions
    names = {"Flower": "flwr", "APPFL": "appfl", "pfl-research": "pfl"}
    names |= {"FLSim": "flsim", "FedJAX": "fedjax", "anarchic": "anarchic"}
    for name, package in names.items():
        assert f"| {name} {versions[package]} |" in heading[0]
