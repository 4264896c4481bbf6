"""Figures without a window; the ending of the file name chooses the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")

# Okabe and Ito's colours, which most colour-blind readers can tell apart; yellow is left out as
# it is too faint for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")  # for the second seven lines, the third, ...


def check_format(path: str | os.PathLike[str]) -> Path:
    """Refuse a file name whose ending is not a supported format."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"A picture is saved as {', '.join(FORMATS)}, got {path.name!r}: change the ending."
        )
    return path


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, with a canvas of its own: pyplot's state is left alone."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "A picture needs matplotlib, which is not installed: pip install 'anarchic[plots]'."
        ) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write the figure, make its directory if needed, and return the path."""
    path = check_format(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ConfigError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from error
    return path


def style(axes: Axes, *, title: str, x: str, y: str) -> None:
    """The common style: a title, named axes, no frame."""
    axes.set_title(title, loc="left", fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def line_style(index: int) -> dict[str, Any]:
    """Colour and dash of the index-th line."""
    turn, place = divmod(index, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": DASHES[turn % len(DASHES)]}
