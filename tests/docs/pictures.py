"""The pictures of docs/concepts.md, from timetables and runs: ``python -m tests.docs.pictures``.

They are SVG of a few kilobytes. Where they move, a style sheet moves them: no script, and nothing
moves for readers who have asked their system for less motion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import anarchic
from anarchic.participation import SpeedClasses, Synchronous

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WORKERS, M, SEED = 6, 3, 4
WORK = anarchic.Work(
    anarchic.ConstantSteps(5), step_s=0.2, speeds=SpeedClasses({"fast": (0.7, 1), "slow": (0.3, 4)})
)
FREE = anarchic.ContinuousTime(anarchic.Exponential(mean_idle_s=0.5), WORK)
WAITING = Synchronous(WORKERS, M, WORK)
SECONDS = 14.0
INK, PALE, PAPER = "#37474f", "#b0bec5", "#ffffff"
COLOURS = ("#3949ab", "#00897b", "#f4511e", "#8e24aa", "#c0ca33", "#6d4c41")
STALE = ("#2e7d32", "#9e9d24", "#f9a825", "#ef6c00", "#c62828")
ON_STALE = ("#ffffff", "#1c2024", "#1c2024", "#1c2024", "#ffffff")  # contrast of 4.5 and more
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#37474f}.small{font-size:11px}"
    ".mid{text-anchor:middle}.head{font-weight:600;font-size:14px}"
    "@keyframes open{0%,8%{transform:translateX(640px)}8.01%{transform:translateX(0)}"
    "80%,100%{transform:translateX(640px)}}"
    ".curtain{animation:open 16s linear infinite}"
    "@media (prefers-reduced-motion:reduce){.curtain{animation:none;opacity:0}}"
)


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: object, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{fill}" {more}/>'
    )


def curtain(name: str, x: float, y: float, width: float, height: float) -> list[str]:
    """Opens from left to right over what was drawn before."""
    hidden = box(x, y, width, height, PAPER, 'class="curtain"')
    return [
        f'<clipPath id="{name}">{box(x, y, width, height, PAPER)}</clipPath>',
        f'<g clip-path="url(#{name})">{hidden}</g>',
    ]


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, more: str = "") -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{stroke}" {more}/>'


@dataclass(frozen=True)
class Panel:
    """Workers as rows, time from left to right, and the versions of the server below."""

    table: anarchic.Timetable
    left: float
    top: float
    width: float
    row: float = 20.0

    @property
    def floor(self) -> float:
        return self.top + self.table.workers * self.row

    def x(self, seconds: float) -> float:
        return self.left + self.width * seconds / SECONDS

    def rows(self) -> Iterator[tuple[int, float, float, int]]:
        """Worker, pull, push and staleness of every update that came in time."""
        table = self.table
        assert table.pull_s is not None
        assert table.push_s is not None
        columns = (table.worker, table.pull_s, table.push_s, table.staleness)
        for worker, pull, push, late in zip(*(c.tolist() for c in columns), strict=True):
            if push <= SECONDS:
                yield worker, pull, push, late

    def versions(self) -> list[float]:
        assert self.table.version_s is not None
        return [s for s in self.table.version_s.tolist() if s <= SECONDS]

    def names(self) -> list[str]:
        places = range(self.table.workers)
        return [
            text(8, self.top + self.row * (i + 0.7), f"worker {i + 1}", "small") for i in places
        ]

    def bars(self, *, stale: bool = False) -> list[str]:
        drawn = []
        for worker, pull, push, late in self.rows():
            y = self.top + self.row * worker + 4
            colour = STALE[min(late, 4)] if stale else COLOURS[worker]
            width = max(self.x(push) - self.x(pull), 2.0)
            drawn.append(box(self.x(pull), y, width, self.row - 8, colour, 'rx="3"'))
            if stale and width > 12:
                place = self.x(push) - 10, y + 10
                ink = ON_STALE[min(late, 4)]
                drawn.append(f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" '
                             f'style="fill:{ink}" class="small">{late}</text>')  # fmt: skip
        return drawn

    def ticks(self) -> list[str]:
        """The versions; their numbers where there is room."""
        drawn, last = [], -1e9
        for number, at in enumerate(self.versions(), 1):
            x = self.x(at)
            drawn.append(line(x, self.top, x, self.floor + 6, PALE, 'stroke-dasharray="2 3"'))
            drawn.append(f'<circle cx="{x:.1f}" cy="{self.floor + 8:.1f}" r="4" fill="{INK}"/>')
            if x - last > 16:
                drawn.append(text(x, self.floor + 26, number, "small mid"))
                last = x
        return [*drawn, text(8, self.floor + 12, "server", "small")]


def timetables() -> tuple[anarchic.Timetable, anarchic.Timetable]:
    """Rounds that wait, and anarchy, of workers with the same speeds."""
    waiting = WAITING.timetable(np.random.default_rng(SEED), rounds=40)
    return waiting, anarchic.make_timetable(FREE, workers=WORKERS, m=M, rounds=400, rng=SEED)


def anarchy() -> str:
    """The same workers twice, with a curtain that opens as time goes on."""
    parts: list[str] = []
    heads = "The server waits: it picks 3 workers per round", "Anarchy: each comes when it likes"
    for place, (table, head) in enumerate(zip(timetables(), heads, strict=True)):
        panel = Panel(table, left=70, top=40 + 205 * place, width=620)
        count = sum(1 for _ in panel.rows())
        told = f"{head}. {count} updates, {len(panel.versions())} versions"
        parts += [text(8, panel.top - 14, told, "head"), *panel.names(), *panel.ticks()]
        parts += panel.bars()
        parts += curtain(f"room{place}", 66, panel.top - 6, 640, 175)
    return svg(710, 415, "Six workers, two of them slow: with rounds and without", parts)


def staleness() -> str:
    """Every update has the number of versions that came while its worker was at work."""
    table = timetables()[1]
    panel = Panel(table, left=70, top=40, width=430)
    head = "The number in a bar: versions that came while its worker was at work"
    parts = [text(8, 22, head, "head"), *panel.names(), *panel.ticks(), *panel.bars(stale=True)]
    shares = np.bincount(np.minimum(table.staleness, 4), minlength=5) / len(table)
    parts.append(text(535, 50, f"All {len(table):,} updates", "small"))
    for late, share in enumerate(shares.tolist()):
        y = 60 + 22 * late
        parts += [text(520, y + 12, late if late < 4 else "4+", "small")]
        parts += [box(545, y, 90 * share / shares.max(), 14, STALE[late], 'rx="2"')]
        parts += [text(550 + 90 * share / shares.max(), y + 12, f"{100 * share:.0f} %", "small")]
    return svg(710, 195, "Staleness of the updates of a run", parts)


def weights(rule: anarchic.Rule, table: anarchic.Timetable, versions: int) -> np.ndarray:
    """How much each worker counts in each step, (versions, workers): what the rule does with
    updates that are 1 in the place of their worker and 0 elsewhere."""
    state = rule.init(np.zeros(table.workers))
    steps = []
    for worker, base in zip(table.worker.tolist(), table.base_version.tolist(), strict=True):
        before, version = state.params.copy(), state.version
        unit = np.eye(table.workers)[worker]
        update = anarchic.Update(f"{worker}", base, local_steps=1, local_lr=1.0, direction=unit)
        state = rule.receive(state, update)
        if state.version > version:
            steps.append(before - state.params)
        if len(steps) == versions:
            break
    return np.array(steps)


def square(x: float, y: float, share: float) -> str:
    """A weight as a square around a place: its area and its ink are the share of the heaviest."""
    side = 18 * share**0.5
    ink = f'opacity="{0.25 + 0.75 * share:.2f}"'
    return box(x - side / 2, y - side / 2, side, side, COLOURS[0], ink)


def rules() -> str:
    """What the last steps of both rules were made of, a column per step."""
    table, parts = timetables()[1], []
    kinds = {
        "AFA-CD: the newest 3 updates": anarchic.AfaCd(m=M, server_lr=1.0),
        "AFA-CS: the last update of everybody": anarchic.AfaCs(m=M, server_lr=1.0),
    }
    drawn = [weights(rule, table, 14) for rule in kinds.values()]
    heaviest = max(float(steps.max()) for steps in drawn)
    for place, (head, steps) in enumerate(zip(kinds, drawn, strict=True)):
        left, top = 70 + 330 * place, 44
        parts.append(text(left, 26, head, "head"))
        for t, step in enumerate(steps.tolist()):
            parts += [
                square(left + 20 * t + 9, top + 20 * i + 9, w / heaviest)
                for i, w in enumerate(step)
                if w > 0
            ]
            parts.append(text(left + 20 * t + 9, top + 135, t + 1, "small mid"))
        parts += curtain(f"room{place}", left, top - 2, 285, 140)
    parts += [text(8, 44 + 20 * (i + 0.7), f"worker {i + 1}", "small") for i in range(WORKERS)]
    parts.append(text(8, 179, "step", "small"))
    return svg(710, 195, "Whose updates make a step, and with what weight", parts)


COMPARED = anarchic.Settings(
    workers=10,
    labels_per_worker=1,
    m=5,
    local_steps=5,
    server_lr=5.0,
    local_lr=0.05,
    batch=16,
    participation="exponential",
    slow_share=0.4,
    slow_factor=10.0,
    rounds=150,
    eval_every=2,
    seed=1,
)


def curves() -> str:
    """Both rules with workers of which some are ten times slower, one label each."""
    left, top, width, height = 50, 40, 480, 160
    parts = [
        text(8, 22, "Accuracy on the digits; some of ten workers are ten times slower", "head")
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = top + height * (1 - share)
        parts += [line(left, y, left + width, y, PALE), text(8, y + 4, f"{100 * share:.0f} %")]
    for place, (name, rule) in enumerate({"AFA-CD": "afa-cd", "AFA-CS": "afa-cs"}.items()):
        run = anarchic.simulate(replace(COMPARED, rule=rule))
        points = [
            f"{left + width * row['round'] / COMPARED.rounds:.1f} "
            f"{top + height * (1 - row['accuracy']):.1f}"
            for row in run.metrics
        ]
        colour = (COLOURS[2], COLOURS[0])[place]
        parts.append(f'<path d="M{"L".join(points)}" fill="none" stroke="{colour}" '
                     'stroke-width="2"/>')  # fmt: skip
        last = top + height * (1 - run.metrics[-1]["accuracy"])
        mean = np.mean([row["accuracy"] for row in run.metrics[-10:]])
        y = last + 4 + (14 if place == 0 else -6)
        parts.append(f'<text x="{left + width + 8}" y="{y:.1f}" style="fill:{colour}">'
                     f"{name}, {100 * mean:.0f} %</text>")  # fmt: skip
    parts.append(text(left, top + height + 20, f"versions, 0 to {COMPARED.rounds}", "small"))
    return svg(710, 230, "Accuracy of AFA-CD and AFA-CS by version", parts)


PICTURES = {"anarchy": anarchy, "staleness": staleness, "rules": rules, "curves": curves}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
