from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")
pytest.importorskip("httpx")

from tests.public_names import PAGE, names, packages


def test_the_page_lists_the_public_names_of_every_package():
    listed: dict[str, list[str]] = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        listed[part.split("`")[1]] = re.findall(r"^\| `(\w+)` \|", part, re.M)
    known = {package: names(package) for package in packages()}
    assert listed == known, "run: python -m tests.public_names"
    assert {"anarchic.data", "anarchic.participation", "anarchic.theory"} <= known.keys()
