"""XGBoost and its like are refused, with the reason."""

from __future__ import annotations

from typing import NoReturn

from anarchic.errors import ConfigError

BOOSTERS = ("xgboost", "lightgbm", "catboost")
REASON = (
    "grows trees: a tree has no vector that workers could change a little and a server could "
    "average. Use a model with weights, such as SGDClassifier or MLPClassifier of scikit-learn"
)


def visit(worker: object, model: object) -> NoReturn:
    """Refuse: there is nothing that a server could average."""
    raise ConfigError(f"{type(model).__name__} {REASON}.")
