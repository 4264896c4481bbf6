from __future__ import annotations

import numpy as np
import pytest

from anarchic.data import Dataset
from anarchic.errors import DataError

X = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        ([0, 1], [0, 1, 1], "3 training inputs but 2 labels"),
        ([1, 2, 2], [0, 1, 1], "training labels go from 1 to 2, but there are 2 classes"),
        ([0, 1, 1], [-1, 1, 1], "test labels go from -1 to 1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(train, test, says):
    with pytest.raises(DataError, match=f"mine: .*{says}|mine: {says}"):
        Dataset("mine", X, np.array(train), X, np.array(test), classes=2)
