"""Experiments: cells run over seeds, raw results kept, tables and pages made of them.

How to write one. Make ``experiments/NAME/run.py``; ``anarchic reproduce`` finds it by its folder.
Put all settings at its top as plain data, and end with a ``STUDY``::

    from pathlib import Path

    from anarchic.sim.settings import Settings
    from anarchic.study import Cell, Claim, Picture, Study, main

    ROUNDS = 150
    PAPER = {1: 0.8916, 10: 0.9114}  # p -> accuracy

    STUDY = Study(
        folder=Path(__file__).parent,
        title="What it is, in one line",
        cells=[
            Cell(
                name=f"p{p}",
                task="lr",  # what --task selects
                settings=Settings(data="mnist", labels_per_worker=p, rounds=ROUNDS),
                columns={"p": p},  # where it is in the table
                paper=paper,
            )
            for p, paper in PAPER.items()
        ],
        seeds={"lr": 5},
        claims=[
            Claim(
                text="the mean absolute difference to the paper",
                of={"task": "lr"},
                value=lambda found: found.mean_difference,
                at_most=0.005,
            )
        ],
    )

    if __name__ == "__main__":
        main(STUDY)

``anarchic reproduce NAME`` and ``python experiments/NAME/run.py`` run it with the same flags, write
one line per cell and seed to ``results.jsonl`` as batches finish, and make the pictures and
``README.md``. Commit these with the results, and ``docs/reproduction.md``, which ``anarchic
reproduce all --report`` makes; a test compares them with the raw results.

Prose. ``notes.md`` in the experiment's folder is written by hand. The page opens with what was done
and what the paper leaves open, and ends with what follows the line
``<!-- Here the page has its tables. -->``: what the numbers show. Numbers belong into tables.

Cells. Runs of one task are trained as lanes of one batch, ``Study.at_once`` of them. For what
``Settings`` cannot say, ``settings`` is a mapping with everything that the result depends on, and
one of these is given:

* ``train=make``: ``make(job) -> Experiment`` (your own task, rule or timetable).
* ``measure=function``: ``function(job) -> {"exponent": -1.02, "low": -1.1, "curve": {...}}``, any
  numbers by name, for what is not a training run or needs several. A ``curve`` is a mapping of
  columns of equal length and is kept thinned.

In a smoke run ``Settings`` become tiny, on the embedded digits; ``train`` and ``measure`` look at
``job.smoke`` themselves, must finish within a second or two, and need no data files. Where
``job.cell.settings`` name settings of a run, ``job.settings_of`` makes ``Settings`` of them, with
``job.seed``, tiny in a smoke run.

``value`` names the number that is "ours" in the table (``last10`` of a trained cell by default);
``read`` takes other numbers from a finished run, such as rounds to a target:
``read=lambda run: {**accuracies(run), "rounds_to_85": ...}``; ``run.metrics`` has one row per
evaluation. Cells run in the order of the table but for ``turn``: those with a lower one come first.
A task that is for a GPU is named in ``Study.devices``, and in ``Study.precisions`` where it does
not multiply in plain float32; all results of a cell must have one precision.

Findings. Claims, pictures and tables are functions of ``Findings``, which have one ``Outcome`` per
cell: ``found.where(task="lr", p=(2, 5)).one(setting="biased").ours``, ``.spread``, ``.difference``,
``.mean("best")``, ``.values("best")`` by seed, ``.results`` with their ``curve``. A claim is
computed once all cells selected by ``of`` have results. A picture's ``draw`` returns a matplotlib
figure, or None while there is nothing to draw; begin with ``new_figure`` and ``style`` of
``anarchic.report.figure``, or use ``anarchic.study.draw``.

An experiment whose results are another's, as a figure drawn from a table's runs, sets
``results_of="table-1"`` and ``cells=sibling(__file__, "table-1").cells``; it trains nothing. Where
``run.py`` becomes long, ``beside(__file__, "data")`` loads ``data.py`` in the same folder.

Everything here runs with NumPy, PyTorch and safetensors alone, from ``src``; Rich and matplotlib
are used where they are installed.
"""

from anarchic.study.cell import Cell, Job
from anarchic.study.find import beside, sibling
from anarchic.study.findings import Findings, Outcome
from anarchic.study.flags import Flags, main
from anarchic.study.results import Result, accuracies, curve_of
from anarchic.study.study import Claim, Picture, Study

__all__ = [
    "Cell",
    "Claim",
    "Findings",
    "Flags",
    "Job",
    "Outcome",
    "Picture",
    "Result",
    "Study",
    "accuracies",
    "beside",
    "curve_of",
    "main",
    "sibling",
]
