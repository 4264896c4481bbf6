"""Writes the tables and pictures of `docs/scaling.md` from the recorded results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes

from anarchic.report.figure import line_style, new_figure, save, style
from benchmarks.fleet import GB, Plan
from benchmarks.million import SUMMED, Simulated
from benchmarks.one_machine import BODIES, SENDERS, WORKERS
from benchmarks.record import Record, short, spread

DOCS = Path(__file__).parents[1] / "docs"
SILOS = 1_000  # workers of a cross-silo run, for comparison


def write_page(found: Simulated, plans: dict[str, Plan], measured: Record) -> None:
    page = DOCS / "scaling.md"
    text = page.read_text(encoding="utf-8")
    parts = {
        "measured": measured_table(measured),
        "inputs": inputs_table(plans["4 MB"]),
        "outputs": outputs_table(plans),
        "costs": costs_table(plans),
        "rows": rows_table(plans),
        "compared": compared_table(found),
    }
    for name, table in parts.items():
        text = put_between(text, name, table)
    page.write_text(text, encoding="utf-8")
    # Text is kept as text, and the same numbers give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        for name, draw in (
            ("arrivals", draw_day),
            ("waiting", draw_waits),
            ("staleness", draw_staleness),
        ):
            figure = new_figure(6, 3)
            draw(figure.subplots(), found)
            save(figure, DOCS / f"scaling-{name}.svg")


def put_between(text: str, name: str, table: str) -> str:
    """The text with ``table`` between the markers of that name."""
    pattern = rf"(<!-- benchmarks.scaling: {name} begin -->\n).*?(<!-- [\w.]+: {name} end -->)"
    changed, count = re.subn(
        pattern, lambda m: f"{m[1]}\n{table}\n\n{m[2]}", text, count=1, flags=re.S
    )
    if not count:
        raise ValueError(f"docs/scaling.md has no markers for {name!r}.")
    return changed


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured_table(record: Record) -> str:
    at = {(m.group, m.name): m for m in record.measures}
    machine = record.machine
    said = (
        f"{machine['name']}, {machine['cores']} cores, load {machine['load']} before the run, "
        f"{record.date}; medians, with the lowest and the highest in brackets."
    )
    pushes = markdown(
        ["updates/s accepted and durable", *(f"{n} sender{'s' * (n > 1)}" for n in SENDERS)],
        [[body, *(spread(at[body, f"{n} senders"]) for n in SENDERS)] for body in BODIES],
    )
    disk, gets = at["disk", "append and sync"], at["conditional GET", "8 senders"]
    rows = [
        ["the disk alone, 4 MB appended and synced", f"{spread(disk)} MB/s"],
        ["conditional GETs that find nothing new", f"{spread(gets)} /s"],
    ]
    for workers in WORKERS:
        table = at["timetable", f"{workers:,} workers"]
        what = f"timetable, {workers:,} workers, {table.facts['updates']:,.0f} updates"
        rows.append([what, f"{spread(table)} s, {table.facts['peak_gib']:.2f} GiB"])
    return f"{said}\n\n{pushes}\n\n{markdown(['', 'measured'], rows)}"


def inputs_table(plan: Plan) -> str:
    collector = plan.collector
    rows = [[says, f"{value:,.10g}", "assumed"] for says, value in plan.assumptions.rows()]
    rows += [
        ["seconds of a collector per update", f"{collector.update_s:.2g}", "measured"],
        ["seconds of a collector per MB", f"{collector.byte_s * 1e6:.2g}", "measured"],
        ["bytes per second that a disk writes", f"{collector.disk:,.0f}", "measured"],
        ["places of a collector", f"{collector.places}", "the server's default"],
        ["updates that may wait for them", f"{collector.room}", "the server's default"],
        ["squared variation of the service time", f"{collector.variability:.2g}", "measured"],
    ]
    return markdown(["input", "value", "from"], rows)


def outputs_table(plans: dict[str, Plan]) -> str:
    shown: list[tuple[str, Callable[[Plan], str]]] = [
        ("pushes per second, mean / peak", lambda p: f"{p.pushes:,.0f} / {p.peak_pushes:,.0f}"),
        ("bytes pushed per second at the peak", lambda p: f"{size(p.peak_pushes * p.size)}/s"),
        ("updates per second that a collector can take", lambda p: short(p.queue.capacity)),
        ("**collectors**", lambda p: f"**{p.collectors:,}**"),
        ("mean wait for a place at the peak", lambda p: f"{short(p.wait_s * 1e3)} ms"),
        ("share refused for lack of room at the peak", lambda p: at_least(p.refused)),
        ("uploads in progress at a collector", lambda p: f"{p.uploads:,.0f}"),
        ("memory that holds them", lambda p: size(p.upload_memory)),
        ("log written per second at the peak, all copies", lambda p: f"{size(p.log_rate)}/s"),
        (
            "**machines of the log** for the copies beyond the first",
            lambda p: f"**{p.log_machines:,}**",
        ),
        ("log held, all copies", lambda p: size(p.log_held)),
        ("**m**, updates per version", lambda p: f"**{p.m:,}**"),
        ("versions per day", lambda p: f"{p.versions_a_day:,.0f}"),
        ("seconds between versions at the peak", lambda p: f"{p.m / p.peak_pushes:,.0f}"),
        ("partial sums into the root, per version", lambda p: size(p.collectors * p.size)),
        ("**machines of the root**", lambda p: f"**{p.roots:,}**"),
        ("seconds to publish a version", lambda p: f"{p.publication_s:.2g}"),
        ("pulls that reach the origin", lambda p: f"{1 - p.hits:.1e}"),
        ("to devices, per month", lambda p: size(p.egress)),
    ]
    rows = [[what, *(show(plan) for plan in plans.values())] for what, show in shown]
    return markdown(["model", *plans], rows)


def costs_table(plans: dict[str, Plan]) -> str:
    costs = [plan.costs() for plan in plans.values()]
    rows = [[what, *(f"{cost[what]:,.0f}" for cost in costs)] for what in costs[0]]
    rows.append(["**together**", *(f"**{plan.cost:,.0f}**" for plan in plans.values())])
    cents = [plan.cost / plan.assumptions.devices * 100 for plan in plans.values()]
    rows.append(["cents per device and month", *(f"{cent:.2g}" for cent in cents)])
    return markdown(["$ per month", *plans], rows)


def rows_table(plans: dict[str, Plan]) -> str:
    def price(plan: Plan, bytes_held: float) -> str:
        a = plan.assumptions
        memory, disk = bytes_held / GB * a.memory_gb, bytes_held / GB * a.log_gb
        return f"{size(bytes_held)}: ${memory:,.0f} in memory, ${disk:,.0f} on disk"

    every = list(plans.values())
    devices = every[0].assumptions.devices
    cases = [
        (f"{devices:,.0f} workers, float32", 1.0),
        (f"{SILOS:,} workers, float32", SILOS / devices),
    ]
    rows = [[name, *(price(p, p.rows_memory(share)) for p in every)] for name, share in cases]
    return markdown(["AFA-CS rows, $ per month", *plans], rows)


def compared_table(found: Simulated) -> str:
    rows = [
        [r.name, f"{short(r.model)} {r.unit}".strip(), f"{short(r.simulated)} {r.unit}".strip(),
         f"{r.difference:+.1%}"]
        for r in found.rows
    ]  # fmt: skip
    facts = found.facts
    said = (
        f"{facts['workers']:,.0f} workers, {facts['updates']:,.0f} updates in one virtual day, "
        f"{facts['collectors']:.0f} collectors; the simulation took {facts['cpu_s']:.0f} s of one "
        f"core and {facts['peak_gib']:.2g} GiB. A version of {SUMMED:,} updates made of "
        f"{facts['collectors']:.0f} partial sums differs from one made in one sequence by at most "
        f"{facts['presum_difference']:.0e} of the largest change of a parameter."
    )
    return f"{said}\n\n{markdown(['', 'model', 'simulated', 'difference'], rows)}"


def size(count: float) -> str:
    """Bytes in a suitable unit."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} PB" if count < 1000 else f"{count:,.0f} PB"


def at_least(share: float) -> str:
    return "below 1e-9" if share < 1e-9 else f"{share:.0e}"


def draw_day(axes: Axes, found: Simulated) -> None:
    day = found.day
    axes.plot(day["hour"], day["simulated"], ".", markersize=3, label="simulated", color="#D55E00")
    axes.plot(day["hour"], day["model"], label="model", **line_style(0))
    workers = found.facts["workers"]
    style(axes, title=f"{workers:,.0f} diurnal workers", x="hour", y="updates per second")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def draw_waits(axes: Axes, found: Simulated) -> None:
    for index, variability in enumerate(sorted({dot["variability"] for dot in found.sweep})):
        dots = [dot for dot in found.sweep if dot["variability"] == variability]
        loads = [dot["load"] for dot in dots]
        name = "exponential service" if variability == 1 else "service as measured"
        look = line_style(index)
        axes.plot(loads, [1e3 * dot["model_s"] for dot in dots], label=f"{name}, model", **look)
        seen = [1e3 * dot["simulated_s"] for dot in dots]
        axes.plot(loads, seen, "o", color=look["color"], label=f"{name}, simulated")
    axes.set_yscale("log")
    style(axes, title="Mean wait for a place of a collector", x="load", y="ms")
    axes.legend(frameon=False, fontsize=8)


def draw_staleness(axes: Axes, found: Simulated) -> None:
    tau = found.staleness["tau"]
    axes.bar(tau, found.staleness["simulated"], label="simulated", color="#E69F00")
    axes.plot(tau, found.staleness["model"], marker=".", label="model", **line_style(0))
    style(
        axes, title=f"Staleness at the peak, m = {found.facts['m']:,.0f}", x="versions",
        y="share of updates",
    )  # fmt: skip
    axes.legend(frameon=False)
