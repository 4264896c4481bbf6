"""The measured tables of docs/comparison.md, from the kept results of the benchmarks:
``python -m tests.docs.comparison``. The rest of that page is written by hand.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.page import OURS, multiples, order, rates_of
from benchmarks.record import Measure, Record, read, short

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
TRAINING = ("w1", "w2", "w3")
SERVER, PUSHES, TWO = "w6", "answered", "4 MB updates, 2 workers, "
PLAIN = "plain loop"


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{measured(read())}\n\n{END}{rest.partition(END)[2]}"


def measured(records: dict[str, Record]) -> str:
    training = [records[name] for name in TRAINING]
    return "\n\n".join(
        [
            "Local steps per second, the best setting of each; in brackets as a multiple of a "
            "plain PyTorch loop:",
            rates(training),
            told(training[0]),
            "Updates of 4 MB per second that a server takes from two workers:",
            pushes(records[SERVER]),
            told(records[SERVER]),
        ]
    )


def rates(records: list[Record]) -> str:
    best = {record.title: fastest(record) for record in records}
    names = sorted({name for found in best.values() for name in found}, key=order)
    lines = [f"| | {' | '.join(best)} |", f"| --- |{' ---: |' * len(best)}"]
    for name in names:
        cells = []
        for record, found in zip(records, best.values(), strict=True):
            many = multiples(record).get(name)
            cells.append(f"{short(found[name])} ({short(many)})" if many else "not measured")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def fastest(record: Record) -> dict[str, float]:
    """By contestant the rate of its best setting."""
    found: dict[str, float] = {}
    for m in rates_of(record):
        name = m.name.partition(",")[0]
        found[name] = max(found.get(name, 0.0), m.median)
    return found


def pushes(record: Record) -> str:
    found = [m for m in record.measures if m.group.startswith(TWO) and m.name == PUSHES]
    lines = ["| | updates/s |", "| --- | ---: |"]
    lines += [f"| {m.group.removeprefix(TWO)} | {short(m.median)} |" for m in by_rate(found)]
    return "\n".join(lines)


def by_rate(found: list[Measure]) -> list[Measure]:
    return sorted(found, key=lambda m: (m.group != TWO + OURS, -m.median))


def told(record: Record) -> str:
    """When, where, and with which versions."""
    contestants = ("anarchic", "flwr", "appfl", "pfl", "flsim", "fedjax")
    versions = [
        f"{name} {record.versions[name]}" for name in contestants if name in record.versions
    ]
    return (
        f"*{record.date}, {record.machine['name']}, {record.machine['cores']} cores; "
        f"{', '.join(versions)}.*"
    )


if __name__ == "__main__":
    main()
