from __future__ import annotations

import json
from math import inf, nan

from anarchic.page.numbers import encoded


def test_numbers_that_json_does_not_have_are_null():
    found = encoded({"a": [1.5, inf, (nan, "inf", -inf)], "b": {"c": nan, "d": None}, "e": True})
    expected = {"a": [1.5, None, [None, "inf", None]], "b": {"c": None, "d": None}, "e": True}
    assert json.loads(found, parse_constant=refuse) == expected


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")
