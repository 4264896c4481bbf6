"""Figures 2 to 4: accuracy by round under the four settings of Table 1."""

from functools import partial
from pathlib import Path

from anarchic.study import Findings, Picture, Study, main, sibling
from anarchic.study.draw import END, draw_panels
from anarchic.study.tables import fixed, markdown

TABLE = sibling(__file__, "table-1")  # whose runs are drawn
SETTINGS = ("sync-constant", "sync-dynamic", "async-constant", "async-dynamic")
FIGURES = {  # file: caption, the cells it shows, the p of each of its panels
    "figure-2.png": (
        "LR on MNIST, 5 of 10 workers, 5 local steps",
        {"task": "lr", "M": 10, "local_steps": 5},
        (1, 2, 5, 10),
    ),
    "figure-3.png": (
        f"CNN on CIFAR-10, 5 of 10 workers, 5 local steps. {END}",
        {"task": "cnn", "M": 10, "local_steps": 5},
        (1, 2, 5, 10),
    ),
    "figure-4.png": (
        "LSTM on Shakespeare, 72 of 143 workers, 50 local steps",
        {"task": "rnn", "M": 143, "local_steps": 50},
        (None,),
    ),
}
EXPLAIN = """
## How much the curves zig-zag

The standard deviation of accuracy over the evaluations of the last fifty rounds, mean over the
seeds.
""".strip()


def draw(found: Findings, *, caption: str, shown: dict, panels: tuple):
    chosen = found.where(**shown)
    if not chosen.run.outcomes:
        return None
    name = caption.split(",")[0]
    return draw_panels(
        {
            caption if p is None else f"{name}, p = {p}": [
                (setting, chosen.one(p=p, setting=setting)) for setting in SETTINGS
            ]
            for p in panels
        }
    )


def zigzag(found: Findings) -> str:
    """How much the curves vary at their end, by setting."""
    if not found.complete:
        return ""
    spread = {
        (shown["task"], p): [
            found.one(**shown, p=p, setting=setting).mean("last50_spread") for setting in SETTINGS
        ]
        for _, shown, panels in FIGURES.values()
        for p in panels
    }
    rows = [
        [TABLE.task_name(task), str(p or ""), *(fixed(value, 4) for value in row)]
        for (task, p), row in spread.items()
    ]
    return f"{EXPLAIN}\n\n{markdown(('', 'p', *SETTINGS), rows)}"


STUDY = Study(
    folder=Path(__file__).parent,
    title="Figures 2 to 4: accuracy by round under the four settings",
    cells=[
        cell
        for cell in TABLE.cells
        for _, shown, _ in FIGURES.values()
        if shown.items() <= {"task": cell.task, **cell.columns}.items()
    ],
    seeds=TABLE.seeds,
    at_once=TABLE.at_once,
    devices=TABLE.devices,
    precisions=TABLE.precisions,
    results_of=TABLE.name,
    more_tables=zigzag,
    pictures=[
        Picture(
            file=file,
            caption=caption,
            draw=partial(draw, caption=caption, shown=shown, panels=panels),
        )
        for file, (caption, shown, panels) in FIGURES.items()
    ],
)

if __name__ == "__main__":
    main(STUDY)
