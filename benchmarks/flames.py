"""Stacks that a sampling profiler counted, drawn as a flame graph.

    py-spy record --native --format raw --output stacks.txt --pid PID
    python -m benchmarks.flames stacks.txt "W1, local steps" docs/profile-w1.svg

A line of the stacks is ``outer;...;inner count``. A frame is as wide as its share of the samples,
callers below, and says its share when pointed at. The picture is plain SVG without a script.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path

WIDTH, ROW, FONT = 1200, 17, 11
LEAST = 0.003  # of the samples; narrower frames are left out
COLOURS = {"ours": "#e8743b", "python": "#f2c14e", "native": "#9fb8ad"}


@dataclass
class Frame:
    name: str
    count: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)

    def add(self, names: list[str], count: int) -> None:
        self.count += count
        if names:
            inner = self.calls.setdefault(names[0], Frame(names[0]))
            inner.add(names[1:], count)


def main() -> int:
    stacks, title, out = sys.argv[1:]
    Path(out).write_text(drawn(read(Path(stacks).read_text()), title))
    return 0


def read(text: str) -> Frame:
    """The stacks as one tree; frames without a symbol go by the name of their library.

    >>> tree = read("a;b 3\\na;0x7f00 (libc.so) 1")
    >>> [(frame.name, frame.count) for frame in tree.calls["a"].calls.values()]
    [('b', 3), ('(libc.so)', 1)]
    """
    root = Frame("all")
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        names = [re.sub(r"^0x[0-9a-f]+ ", "", name) for name in stack.split(";")]
        root.add([name for name, _ in groupby(names)], int(count))
    return root


def drawn(root: Frame, title: str) -> str:
    boxes: list[str] = []
    rows = _draw(root, 0.0, 0, root.count, boxes)
    height = (rows + 2) * ROW
    shifted = f'<g transform="translate(0 {height})">{"".join(boxes)}</g>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="{FONT}"><rect width="100%" height="100%" '
        f'fill="#fff"/><text x="4" y="14">{escape(title)}: {root.count:,} samples</text>'
        f"{shifted}</svg>\n"
    )


def _draw(frame: Frame, start: float, row: int, samples: int, boxes: list[str]) -> int:
    """Append the boxes of a frame and of what it calls; returns the rows that they take."""
    share = frame.count / samples
    if share < LEAST:
        return row
    x, width, y = start * WIDTH, share * WIDTH, -(row + 1) * ROW
    shown = frame.name[: int(width / (0.56 * FONT))] if width > 30 else ""
    boxes.append(
        f"<g><title>{escape(frame.name)}: {share:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(0.5, width - 0.5):.1f}" height="{ROW - 1}" '
        f'fill="{COLOURS[_kind(frame.name)]}"/>'
        f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(shown)}</text></g>'
    )
    top = row + 1
    for inner in sorted(frame.calls.values(), key=lambda inner: inner.name):
        top = max(top, _draw(inner, start, row + 1, samples, boxes))
        start += inner.count / samples
    return top


def _kind(name: str) -> str:
    if "(anarchic/" in name:
        return "ours"
    return "python" if ".py:" in name or "(" not in name else "native"


if __name__ == "__main__":
    sys.exit(main())
