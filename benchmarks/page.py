"""Write the results to ``docs/performance.md``: ``python -m benchmarks.page``.

Those of the event queue are written to ``docs/participation.md``. Only the part of a page between
its two markers is written; the rest is written by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from anarchic.report.figure import COLOURS, new_figure, save
from benchmarks.record import Measure, Record, read, said, short, spread

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
QUEUE = PAGE.with_name("participation.md")
CHART = "performance.svg"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
NAMES = (
    "w1",
    "w1_again",
    "w2",
    "w3",
    "w4",
    "w5",
    "w6",
    "w7",
    "postgres",
    "many_runs",
    "viewers",
    "cuda",
)
RATE = "local steps/s"
OURS = "anarchic"


def main() -> int:
    records = kept()
    if not records:
        print("There are no results: make bench.")
        return 1
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(text, section(records)), encoding="utf-8")
    raced = [record for record in records if rates_of(record) and record.name != "w1_again"]
    draw(raced, PAGE.with_name(CHART))
    if (queue := read().get("event_queue")) is not None:
        text = QUEUE.read_text(encoding="utf-8")
        QUEUE.write_text(filled(text, queue_table(queue), QUEUE.name), encoding="utf-8")
    return 0


def kept() -> list[Record]:
    """The committed results."""
    records = read()
    turns = [name for name in records if name.startswith("before ")]  # benchmarks.before_after
    return [records[name] for name in (*NAMES, *turns) if name in records]


def filled(text: str, between: str, name: str = PAGE.name) -> str:
    """The page of this name with ``between`` between its markers."""
    pattern = re.compile(f"({BEGIN}\n).*?({END})", re.S)
    if not pattern.search(text):
        raise SystemExit(f"{name} has lost its markers: put {BEGIN} and {END} back.")
    return pattern.sub(lambda found: f"{found[1]}\n{between}\n{found[2]}", text)


def section(records: list[Record]) -> str:
    blocks = [f"![Local steps per second, as a multiple of the plain loop]({CHART})"]
    for record in records:
        shown = table(record) if rates_of(record) else grid(record)
        blocks += [f"### {record.title}", shown, notes(record)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def queue_table(record: Record) -> str:
    """What a visit costs in the event queue; the first line says what was run."""
    about = f"{record.title}. Time is that of one core."
    return f"{about}\n\n{grid(record)}\n\n{notes(record)}\n"


def table(record: Record) -> str:
    rates = rates_of(record)
    ours = max((m.median for m in rates if m.name == OURS), default=None)
    lines = [
        "| | local steps/s | lowest to highest | after the first tenth | ready after, s | "
        "test accuracy | ours / this |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for m in sorted(rates, key=lambda m: -m.median):
        ratio = times(ours / m.median) if ours and m.name != OURS else ""
        lines.append(
            f"| {m.name} | {short(m.median)} | {short(m.lowest)} to {short(m.highest)} | "
            f"{short(m.facts['warm'])} | {short(m.facts.get('ready_s'))} | "
            f"{m.facts['accuracy']:.1%} | {ratio} |"
        )
    lines += [f"| {name} | not measured: {why} | | | | | |" for name, why in record.absent.items()]
    return "\n".join(lines)


def times(ratio: float) -> str:
    """With enough digits to see whether it is above 1."""
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}"


def grid(record: Record) -> str:
    """One line per group, one column per measure and ratio."""
    cells: dict[str, dict[str, str]] = {}
    for m in record.measures:
        cells.setdefault(m.group, {})[f"{m.name}, {m.unit}"] = spread(m)
    for ratio in record.ratios:
        cells.setdefault(ratio.group, {})[ratio.name] = short(ratio.value)
    columns = list(dict.fromkeys(name for line in cells.values() for name in line))
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for group, line in cells.items():
        lines.append(f"| {group} | {' | '.join(line.get(name, '-') for name in columns)} |")
    empty = " |" * (len(columns) - 1)
    lines += [f"| {name} | not measured: {why} |{empty}" for name, why in record.absent.items()]
    return "\n".join(lines)


def notes(record: Record) -> str:
    lines = []
    if rates_of(record):  # not in the table
        others = [m for m in record.measures if m.unit != RATE]
        lines += [f"- {m.name}, {m.unit}: {spread(m)}." for m in others]
        fastest = [r for r in record.ratios if "fastest peer" in r.name]
        lines += [f"- {r.name}: {short(r.value)}." for r in fastest]
    lines += [f"- {b.name}: {said(b)}: {'met' if b.met else '**missed**'}." for b in record.bounds]
    repeats = {m.repeats for m in record.measures}
    versions = ", ".join(f"{name} {v}" for name, v in sorted(record.versions.items()))
    lines.append(
        f"- Medians of {' and '.join(map(str, sorted(repeats)))} repeats, with the lowest and the "
        f"highest in brackets, {record.date}, "
        f"{record.machine['name']}, {record.machine['cores']} cores, load before the run "
        f"{record.machine['load']}. Versions: {versions}."
    )
    return "\n".join(lines)


def rates_of(record: Record) -> list[Measure]:
    return [m for m in record.measures if m.unit == RATE]


def draw(records: list[Record], path: Path) -> None:
    """Bars: the best setting of each contestant as a multiple of the plain loop's."""
    figure = new_figure(7.5, 3.2)
    axes = figure.subplots()
    shares = {record.name.upper(): multiples(record) for record in records}
    names = sorted({who for found in shares.values() for who in found}, key=order)
    width = 0.85 / len(names)
    for index, who in enumerate(names):
        places = [i for i, found in enumerate(shares.values()) if who in found]
        heights = [list(shares.values())[i][who] for i in places]
        left = [i + (index - (len(names) - 1) / 2) * width for i in places]
        axes.bar(left, heights, width, label=who, color=COLOURS[index % len(COLOURS)])
    axes.set_yscale("log")
    axes.set_xticks(range(len(shares)), list(shares))
    axes.axhline(1.0, color="#666666", linewidth=0.8)
    axes.set_ylabel("times the plain loop")
    axes.legend(fontsize=7, ncols=2)
    save(figure, path)


def order(who: str) -> tuple[bool, bool, str]:
    return who != OURS, who != "plain loop", who


def multiples(record: Record) -> dict[str, float]:
    best: dict[str, float] = {}
    for m in rates_of(record):
        who = m.name.partition(",")[0]
        best[who] = max(best.get(who, 0.0), m.median)
    plain = best.get("plain loop")
    return {who: rate / plain for who, rate in best.items()} if plain else {}


if __name__ == "__main__":
    sys.exit(main())
