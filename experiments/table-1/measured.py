"""What is measured beside the cells of table 1: the length of updates, and how data are dealt."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anarchic.core.wrappers import Reweighted
from anarchic.sim.engine import Engine
from anarchic.sim.settings import build, partition
from anarchic.study import Cell, Findings, Job, Outcome
from anarchic.study.tables import markdown

LAST = 5  # rounds of the short run whose updates are measured
P = (1, 2, 5, 10)
# Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks",
# arXiv:1812.06127, statistics of the data sets.
FEDPROX = {
    "workers": "143",
    "samples": "517,106",
    "samples_a_worker": "3,616",
    "spread": "6,808",
}
ROLES = {  # number in the results: its name in the table
    "workers": "roles",
    "samples": "samples",
    "samples_a_worker": "samples per role",
    "spread": "their standard deviation",
    "train": "training samples",
    "mean": "training samples per role",
    "deviation": "the standard deviation of these",
    "least": "the fewest",
    "most": "the most",
    "test": "test samples",
    "classes": "different characters",
}
BY_ROLE = """
A worker of Shakespeare is a role, with the first 80 % of its samples for training and the rest for
testing. FedProx (Li et al., arXiv:1812.06127) publishes how many samples its 143 roles have and
their deviation, not which roles they are. *ours* are the roles of the cells of *rnn*: drawn with
one of a thousand seeds, the one whose number of samples and their spread come nearest to FedProx's
number and to the spread over all 1,129 roles. *nearest* are those of *rnn-roles*: of the draws with
the seeds up to 99,999, the one nearest to FedProx's number and deviation. They were chosen by
these two numbers alone, before any run with them.
""".strip()
BY_LABEL = """
Every class has equally many holders, and each of them equally many samples of it: as many as the
rarest class allows. Samples beyond that are left out. Training samples per worker, the same for all
workers:
""".strip()


@dataclass(frozen=True)
class Lengths(Reweighted):
    """A rule that notes the norm of each update's eta_L * G and changes nothing."""

    seen: list[float] = field(default_factory=list)

    def factor(self, staleness: int, length: float) -> float:
        self.seen.append(length)
        return 1.0


def norms(settings: Mapping[str, Any]) -> Cell:
    """The norms of updates in the last rounds of a short synchronous run of the RNN."""
    m, M, K = (settings[name] for name in ("m", "workers", "local_steps"))
    return Cell(
        name=f"m{m}-M{M}-K{K}-sync-constant",
        task="rnn-norms",
        settings=settings,
        columns={"p": None, "m": m, "M": M, "local_steps": K, "setting": "sync-constant"},
        measure=measure_norms,
        value="median",
    )


def measure_norms(job: Job) -> dict:
    experiment = build(job.settings_of(job.cell.settings), job.compute)
    rule = Lengths(experiment.rule)
    engine = Engine(replace(experiment, rule=rule))
    with experiment.computing():
        while engine.version < experiment.timetable.rounds:
            engine.next_version()
    late = np.array(rule.seen[-LAST * rule.m :])
    names = ("least", "quartile", "median", "upper_quartile", "most")
    return dict(zip(names, np.quantile(late, (0, 0.25, 0.5, 0.75, 1)), strict=True))


def data_cells(ways: Iterable[tuple[str, int | None, int]], nearest: dict) -> list[Cell]:
    """One cell per data set, p and M of the table; again with other options where there are."""
    cells = [
        Cell(
            name=f"{data}{'' if p is None else f'-p{p}'}-M{M}",
            task="data",
            settings={"data": data, "workers": M, "labels_per_worker": p},
            columns={"p": p, "M": M, "setting": data},
            measure=measure_data,
            value="mean",
        )
        for data, p, M in dict.fromkeys(ways)
    ]
    others = [
        replace(
            cell,
            name=f"{cell.name}-nearest",
            settings={**cell.settings, "data_options": nearest[cell.columns["setting"]]},
            columns={**cell.columns, "nearest": True},
        )
        for cell in cells
        if cell.columns["setting"] in nearest
    ]
    return [*cells, *others]


def measure_data(job: Job) -> dict:
    data, parts = partition(job.settings_of(job.cell.settings))
    found = {"classes": data.classes, **samples(len(data.y_train), len(data.y_test), parts)}
    if data.roles:
        roles = np.concatenate([data.role_train, data.role_test])
        found["spread"] = np.bincount(roles).std()
    return found


def samples(train: int, test: int, parts: list) -> dict:
    """How many samples there are, and how many a worker has for training."""
    each = np.array([len(part) for part in parts])
    return {
        "workers": len(each),
        "dealt": each.sum(),
        "mean": each.mean(),
        "deviation": each.std(),
        "least": each.min(),
        "most": each.max(),
        "train": train,
        "test": test,
        "samples": train + test,
        "samples_a_worker": (train + test) / len(each),
    }


def data_table(found: Findings) -> str:
    """Shakespeare's roles beside FedProx's, then the samples per worker by p."""
    outcomes = found.where(task="data").run
    parts = []
    if by_role := outcomes.where(p=None).outcomes:
        rows = [
            [what, *(count(role, n) for role in by_role), FEDPROX.get(n, "")]
            for n, what in ROLES.items()
        ]
        names = ("ours", "nearest")[: len(by_role)]
        parts = [BY_ROLE, markdown(("Shakespeare", *names, "FedProx's"), rows)]
    ways = dict.fromkeys((x.get("setting"), x.get("M")) for x in outcomes if x.get("p"))
    header = ("data", "workers", *(f"p = {p}" for p in P))
    rows = [[data, str(M), *by_p(outcomes.where(setting=data, M=M))] for data, M in ways]
    return "\n\n".join([*parts, BY_LABEL, markdown(header, rows)])


def count(outcome: Outcome, name: str) -> str:
    value = outcome.mean(name)
    return "" if value is None else f"{value:,.0f}"


def by_p(outcomes: Findings) -> list[str]:
    return [" ".join(f"{x.ours:,.0f}" for x in outcomes.where(p=p)) for p in P]
