"""A race on the embedded digits: FedAvg, which waits for stragglers, against anarchy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from anarchic.demo import demo_directory
from anarchic.report.curves import Curve, plot_race
from anarchic.report.runs import first_at
from anarchic.sim.record import MetricsRow
from anarchic.sim.run import Run, Watcher
from anarchic.sim.settings import Settings, make_table
from anarchic.sim.simulate import simulate

WORKERS = 20
TARGET = 0.9
GOAL = f"{100 * TARGET:.0f} %"
FEDAVG = Settings(
    workers=WORKERS,
    labels_per_worker=2,
    rule="fedavg",
    m=5,
    server_lr=1.0,
    local_steps=5,
    local_lr=0.05,
    batch=16,
    participation="exponential",
    slow_share=0.3,
    slow_factor=10.0,
    rounds=60,
    eval_every=1,
)
LABELS = {"fedavg": "FedAvg, waiting", "afa-cd": "AFA-CD", "afa-cs": "AFA-CS"}
PICTURE = "demo.png"

Watching = Callable[[str], AbstractContextManager[Watcher]]


@dataclass(frozen=True)
class Entry:
    """One run of the race, and when it first reached the target."""

    label: str
    settings: Settings
    run: Run
    reached: MetricsRow | None

    @property
    def seconds(self) -> float | None:
        """Virtual time to the target."""
        return None if self.reached is None else self.reached["virtual_s"]


@dataclass(frozen=True)
class Race:
    """The runs, the baseline first, and where their picture is."""

    entries: list[Entry]
    picture: Path

    def ratio(self, entry: Entry) -> float | None:
        """How many times sooner than the baseline it reached the target."""
        baseline = self.entries[0].seconds
        return None if not baseline or not entry.seconds else baseline / entry.seconds


def race(out: Path, *, seed: int = 0, watching: Watching | None = None) -> Race:
    """Run all three in the same virtual time, and record them and a picture in ``out``."""
    demo_directory(out, [*LABELS, PICTURE])
    baseline = replace(FEDAVG, seed=seed)
    horizon_s = _end_s(baseline)
    entries = []
    for rule, label in LABELS.items():
        settings = baseline if rule == "fedavg" else _anarchic(baseline, rule, horizon_s)
        with watching(label) if watching else nullcontext(None) as watch:
            run = simulate(settings, out=out / rule, watch=watch)
        entries.append(Entry(label, settings, run, first_at(run.metrics, TARGET)))
    done = Race(entries, out / PICTURE)
    curves = [Curve(_legend(entry), entry.run.metrics) for entry in entries]
    plot_race(curves, done.picture, target=TARGET, title=_title(done))
    return done


def sentences(done: Race) -> list[str]:
    """What the race showed, read off its numbers."""
    baseline, *others = done.entries
    if baseline.seconds is None:
        told = f"FedAvg did not reach {GOAL} accuracy in the time given."
    else:
        told = f"FedAvg, which waits for its slowest worker, took {baseline.seconds:.0f} s to "
        told += f"{GOAL} accuracy."
    return [told, *(_told(done, entry) for entry in others), _price(done.entries)]


def _told(done: Race, entry: Entry) -> str:
    ratio = done.ratio(entry)
    if entry.seconds is None:
        return f"{entry.label} did not reach {GOAL} accuracy in the time given."
    if ratio is None:
        return f"{entry.label} reached {GOAL} accuracy after {entry.seconds:.0f} s."
    if ratio >= 1:
        return f"{entry.label} took {entry.seconds:.0f} s: {ratio:.1f} times sooner."
    return f"{entry.label} took {entry.seconds:.0f} s: {1 / ratio:.1f} times later."


def _price(entries: list[Entry]) -> str:
    """Sooner is not cheaper: it may be, or more workers may simply be at work at once."""
    sent = {entry.label: entry.reached["updates"] for entry in entries if entry.reached}
    if not sent:
        return "Nobody got there, so there is no price to compare."
    listed = ", ".join(f"{label} {count:,.0f}" for label, count in sent.items())
    return f"Updates that it took to get there: {listed}."


def _legend(entry: Entry) -> str:
    when = f"after {entry.seconds:.0f} s" if entry.seconds else "not reached"
    return f"{entry.label}: {GOAL} {when}"


def _title(done: Race) -> str:
    ratios = [done.ratio(entry) or 0.0 for entry in done.entries[1:]]
    slow = f"some workers are {FEDAVG.slow_factor:.0f} times slower"
    if min(ratios) > 1:
        return f"Anarchy does not wait for stragglers: {slow}"
    return f"Accuracy by virtual time: {slow}"


def _anarchic(baseline: Settings, rule: str, horizon_s: float) -> Settings:
    """The same workers under another rule, for as many rounds as fit into the same time.

    FedAvg's step is that of AFA-CD with server_lr = K, so that the rates are comparable.
    """
    server_lr = (baseline.server_lr or 1.0) * baseline.local_steps
    settings = replace(baseline, rule=rule, server_lr=server_lr)
    return replace(settings, rounds=Settings.rounds, until_s=horizon_s)


def _end_s(settings: Settings) -> float:
    table = make_table(settings, WORKERS)
    assert table.version_s is not None, "the demo runs in continuous time"
    return float(table.version_s[-1])
