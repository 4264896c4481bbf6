"""A small line chart as SVG, for a notebook; pictures for papers come from ``report``."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 320, 180
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 22, 24  # margins
Points = Sequence[tuple[float | None, float | None]]


def chart(title: str, points: Points) -> str:
    """One line; nothing where fewer than two points are known."""
    known = [(float(x), float(y)) for x, y in points if x is not None and y is not None]
    if len(known) < 2:
        return ""
    (x0, x1), (y0, y1) = (_ends([point[axis] for point in known]) for axis in (0, 1))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        across, up = (x - x0) / (x1 - x0), (y - y0) / (y1 - y0)
        return f"{LEFT + across * wide:.1f},{HEIGHT - BOTTOM - up * high:.1f}"

    line = " ".join(place(x, y) for x, y in known)
    bottom = HEIGHT - BOTTOM
    texts = [
        _text(LEFT, 14, title, "start", bold=True),
        _text(LEFT - 4, TOP + 8, f"{y1:.3g}", "end"),
        _text(LEFT - 4, bottom, f"{y0:.3g}", "end"),
        _text(LEFT, HEIGHT - 6, f"{x0:g}", "middle"),
        _text(WIDTH - RIGHT, HEIGHT - 6, f"round {x1:g}", "end"),
    ]
    frame = f'<path d="M{LEFT},{TOP}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#999"/>'
    curve = f'<polyline points="{line}" fill="none" stroke="#0072B2" stroke-width="1.8"/>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{frame}{curve}{"".join(texts)}</svg>'


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="11" font-family="sans-serif" fill="currentColor" '
        f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
