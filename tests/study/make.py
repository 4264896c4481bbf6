"""Small studies for tests: measured cells, so that nothing needs training."""

from anarchic.study import Cell, Result, Study


def measured(job):
    """Seed 0 gives base, seed 1 base + 0.02, ..."""
    return {
        "value": job.cell.settings["base"] + 0.02 * job.seed,
        "curve": {"round": [0, 1], "accuracy": [0.0, job.cell.settings["base"]]},
    }


def cell(name="a", base=0.5, paper=None, task="t", **columns):
    return Cell(
        name=name,
        task=task,
        settings={"base": base},
        columns=columns,
        paper=paper,
        value="value",
        measure=measured,
    )


def study(folder, *cells, **options):
    return Study(folder=folder, cells=cells, **{"title": "A title", **options})


def result(cell, seed, stopped_at=None, precision="ieee", **numbers):
    return Result(
        task=cell.task,
        cell=cell.name,
        seed=seed,
        numbers=numbers,
        settings=cell.asked,
        stopped_at=stopped_at,
        share_s=30.0,
        precision=precision,
        hardware={"name": "A processor", "most_threads": 2},
        software={"anarchic": "0.1.0", "torch": "2.13.0"},
        date="2022-07-17",
    )
