"""The paper's claim in short: synchronous workers against anarchic ones."""

from collections.abc import Mapping

from anarchic.study import Findings
from anarchic.study.tables import markdown

TASKS = ("lr", "cnn", "rnn")
HEADLINE = """
Test accuracy of AFA-CD with synchronous workers and with anarchic ones, for p labels per worker: 5
of 10 workers per round and K = 5, for Shakespeare 72 of 143 and K = 50. Each entry: ours over the
last ten evaluations, our best of a run, and in brackets the paper's number (the paper does not say
how it was measured). The last column says how many seeds the means are taken over, and in which
precision the runs were computed where it is not float32's.
""".strip()


def headline(found: Findings, names: Mapping[str, str]) -> str:
    """The paper's claim in short: synchronous workers against anarchic ones."""
    header = ("", "p", "synchronous, constant steps", "asynchronous, dynamic steps", "rests on")
    rows = []
    for task in TASKS:
        outcomes = found.where(task=task, M=(10, 143), local_steps=(5, 50))
        for base in outcomes.where(setting="sync-constant"):
            free = outcomes.one(p=base.get("p"), setting="async-dynamic")
            basis = Findings([base, free]).basis
            rows.append([names[task], str(base.get("p") or ""), both(base), both(free), basis])
    return f"{HEADLINE}\n\n{markdown(header, rows)}"


def both(outcome) -> str:
    ours = (
        "not run yet" if outcome.ours is None else f"{outcome.ours:.3f}, {outcome.mean('best'):.3f}"
    )
    return f"{ours} ({outcome.cell.paper:.3f})"
