"""Data sets in the form in which tasks compute with them, made once for all tasks on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from anarchic.data.dataset import Dataset

T = TypeVar("T")

_FORMS: WeakKeyDictionary[Dataset, dict[Hashable, Any]] = WeakKeyDictionary()


def resident(data: Dataset, key: Hashable, make: Callable[[], T]) -> T:
    """What ``make`` gives for this data set and this key, as long as the data set is in use."""
    known = _FORMS.setdefault(data, {})
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found
