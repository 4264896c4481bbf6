"""The declared protocol of the room: every form is there, and so is its twin."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

import anarchic.kernels
from anarchic.kernels import FORMS, find


@pytest.mark.parametrize("name", FORMS)
def test_a_form_and_its_twin_exist(name: str) -> None:
    form = FORMS[name]
    missing = [package for package in form.needs if find_spec(package) is None]
    if missing:
        assert find(name) is None
        pytest.skip(f"{missing} are not installed")
    assert callable(find(name))
    module, _, attribute = form.twin.partition(":")
    twin = import_module(module)
    assert not attribute or callable(getattr(twin, attribute))
    assert not module.startswith("anarchic.kernels")


def test_a_form_that_lacks_a_package_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    find.cache_clear()
    monkeypatch.setattr(
        anarchic.kernels, "find_spec", lambda name: None if name == "numba" else find_spec(name)
    )
    try:
        assert find("fill_words") is None
        assert find("lstm") is not None or find_spec("torch") is None
    finally:
        find.cache_clear()


def test_a_name_that_nobody_has_is_not_found() -> None:
    assert find("resnet_cuda") is None
