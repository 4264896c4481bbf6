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
one line per cell and seed to ``results.jsonl`` as batches finish, and make the pictures
and ``README.md``. Commit these with the results, and ``docs/reproduction.md``, which
``anarchic reproduce all --report`` makes; a test compares them with the raw results.

Prose. ``notes.md`` in the experiment's folder is written by hand. The page opens with its first
part, what was done and what the paper leaves open, and ends with what follows the line
``<!-- Here the page has its tables. -->``: what the numbers show. Numbers belong into tables, which
are made of the results.

Cells. Runs of one task are trained as lanes of one batch, ``Study.at_once`` of them. For what
``Settings`` cannot say, give one of

* ``train=make``: ``make(job) -> Experiment`` (your own task, rule or timetable), still trained in
  lanes. ``settings`` is then a mapping with everything that the result depends on; it is recorded,
  and a result with other settings does not count.
* ``measure=function``: ``function(job) -> {"exponent": -1.02, "low": -1.1, "curve": {...}}``, any
  numbers by name, for what is not a training run or needs several. ``job.cell.settings`` are your
  settings, ``job.seed`` the seed; with ``job.smoke`` it must finish within a second or two and need
  no data files. A ``curve`` is a mapping of columns of equal length and is kept thinned.

``value`` names the number that is "ours" in the table (``last10`` of a trained cell by default);
``read`` takes other numbers from a finished run, such as rounds to a target or a virtual time.
Begin with the usual ones: ``read=lambda run: {**accuracies(run), "rounds_to_85": ...}``;
``run.metrics`` has one row of metrics per evaluation. ``Study.show`` lists more numbers for tables,
and ``Study.tables`` has functions of ``Findings`` that give a task's table another form. Cells run
in the order of the table but for ``turn``: those with a lower one come first. A task that is for a
GPU is named in ``Study.devices``, and in ``Study.precisions`` where it does not multiply in plain
float32; all results of a cell must have one precision.
In a smoke run ``Settings`` become tiny, on the embedded digits; your ``train`` and ``measure`` look
at ``job.smoke`` themselves, and find ``job.cell.settings`` with ``smoke=True`` added. Where these
name settings of a run, ``job.settings_of`` makes ``Settings`` of them, tiny ones in a smoke run.

Findings. Claims, pictures and ``Study.more_tables`` (further tables, in Markdown) are functions of
``Findings``, which have one ``Outcome`` per cell:
``found.where(task="lr", p=(2, 5)).one(setting="biased").ours``, ``.spread``, ``.difference``,
``.mean("best")``, ``.values("best")`` by seed, ``.results`` with their ``curve``. A claim is
computed once all cells selected by ``of`` have results. A picture's ``draw`` returns a matplotlib
figure, or None while there is nothing to draw; begin with ``new_figure`` and ``style`` of
``anarchic.report.figure``, or use ``anarchic.study.draw``. Without matplotlib the page is made with
the pictures that exist.

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
