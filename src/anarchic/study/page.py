"""The page of an experiment: a README beside its run.py, made of its raw results."""

from __future__ import annotations

from math import fsum  # the same on every Python, which `sum` of floats is not
from pathlib import Path

from anarchic.errors import ConfigError
from anarchic.study.findings import Findings
from anarchic.study.results import FILE, Result
from anarchic.study.study import Claim, Study
from anarchic.study.tables import fixed, markdown, more_numbers, result_table
from anarchic.study.watch import say


def write_pages(study: Study, findings: Findings, into: Path) -> Path:
    """The pictures, and the page that shows them."""
    into.mkdir(parents=True, exist_ok=True)
    _draw(study, findings, into)
    page = into / "README.md"
    page.write_text(page_text(study, findings, into), encoding="utf-8")
    return page


def page_text(study: Study, findings: Findings, folder: Path) -> str:
    """The whole page; it shows the pictures that are in ``folder``."""
    about, discussion = study.prose()
    parts = [
        f"<!-- Made by anarchic reproduce {study.name} --report from the raw results. "
        "Do not edit. -->",
        f"# {study.title}",
        about,
        "\n".join(["```sh", *_commands(study), "```"]),
        _files(study, folder),
        *_claims(study, findings),
        *_pictures(study, folder),
        *(part for task in study.tasks for part in _task(study, findings, task)),
        study.more_tables(findings).strip() if study.more_tables else "",
        discussion,
        *_times(study, findings),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def judged(study: Study, findings: Findings) -> tuple[list[list[str]], list[str]]:
    """The claims in the columns of ``CLAIMS``; reasons where one is not met."""
    rows, reasons = [], []
    for claim in study.claims:
        verdict, basis = claim.verdict(findings), findings.where(**claim.of).basis
        rows.append([claim.text, bound(claim), fixed(verdict.value, 4), verdict.words, basis])
        if verdict.met is False:
            reasons.append(f"- Not met: {claim.text}. {claim.reason or 'The reason is not known.'}")
    return rows, reasons


def mean_difference(findings: Findings, digits: int) -> str:
    """The mean absolute difference to the paper, and how many cells have no number for it."""
    mean, lost = fixed(findings.mean_difference, digits), len(findings.lost)
    if not mean or not lost:
        return mean
    cells = "one cell" if lost == 1 else f"{lost} cells"
    return f"{mean} without the {cells} of which every run diverged"


def bound(claim: Claim) -> str:
    if claim.at_least is None:
        return f"at most {claim.at_most:g}"
    if claim.at_most is None:
        return f"at least {claim.at_least:g}"
    return f"{claim.at_least:g} to {claim.at_most:g}"


def times(study: Study, findings: Findings) -> list[list[str]]:
    """One row per task and kind of machine: its software, the number of runs and their time."""
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for task in study.tasks:
        for result in sorted(findings.where(task=task).results, key=_kind):
            kinds.setdefault((study.task_name(task), *_kind(result)), []).append(result)
    rows = []
    for kind, found in kinds.items():
        took = duration(fsum(result.share_s or 0 for result in found))
        dates = sorted({result.date for result in found})
        rows.append([*kind, str(len(found)), took, " to ".join(dates[:1] + dates[1:][-1:])])
    return rows


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


CLAIMS = ("claim", "bound", "measured", "met", "rests on")
TIMES = ("task", "hardware", "threads", "precision", "software", "runs", "time", "date")


def _commands(study: Study) -> list[str]:
    lines = [f"{study.command(task)} --seeds {_seeds(study, task)}" for task in study.tasks]
    return [*lines, f"anarchic reproduce {study.name} --report"] if study.results_of else lines


def _seeds(study: Study, task: str) -> int:
    return study.seeds.get(task, 1)


def _files(study: Study, folder: Path) -> str:
    run = "[run.py](run.py)" if folder == study.folder else f"`{study.name}/run.py`"
    settings = f"All settings are at the top of {run}; the"
    if study.results_of is not None:
        return f"{settings} results are those of [{study.results_of}](../{study.results_of})."
    raw = f"[{FILE}]({FILE})" if (folder / FILE).exists() else f"`{FILE}` of the package"
    return f"{settings} raw results are in {raw}."


def _claims(study: Study, findings: Findings) -> list[str]:
    if not study.claims:
        return []
    rows, reasons = judged(study, findings)
    table = markdown(CLAIMS, rows)
    return ["## What must hold", table, "\n".join(reasons)]


def _pictures(study: Study, folder: Path) -> list[str]:
    drawn = [picture for picture in study.pictures if (folder / picture.file).exists()]
    return [f"![{picture.caption}]({picture.file})\n\n*{picture.caption}*" for picture in drawn]


def _task(study: Study, every: Findings, task: str) -> list[str]:
    findings = every.where(task=task)
    if study.results_of is not None:
        missing = len(findings) - len(findings.run)
        how = f"`{study.command(task)} --resume`"
        return [f"Not run: {missing} cells of {task} ({how})."] if missing else []
    how = "ours ± standard deviation over the seeds"
    if any(outcome.cell.paper is not None for outcome in findings):
        how += " (the paper's, difference)" if study.across else ""
    about = f"{len(findings.run)} of {study.count(findings)} cells have results"
    if basis := findings.basis:
        about += f", with {basis}"
    if mean := mean_difference(findings, study.digits):
        about += f"; mean absolute difference to the paper {mean}"
    if len(findings.run) < study.count(findings):
        about += f". Those not run: `{study.command(task)} --resume`"
    elif short := [outcome for outcome in findings if len(outcome.results) < _seeds(study, task)]:
        how = f"{study.command(task)} --seeds {_seeds(study, task)} --resume"
        about += f". {len(short)} of them have fewer seeds than the others: `{how}`"
    heading = f"## {study.task_name(task)}"
    if task in study.tables:
        return [heading, f"{about}.", study.tables[task](every)]
    more = more_numbers(study, findings)
    return [heading, f"{about}. Entries: {how}.", result_table(study, findings), more]


def _times(study: Study, findings: Findings) -> list[str]:
    if not findings.results or study.results_of is not None:
        return []
    return ["## Hardware and run times", markdown(TIMES, times(study, findings))]


def _kind(result: Result) -> tuple[str, ...]:
    """The machine, its threads, the precision and the software."""
    has = result.hardware
    torch = has.get("threads")  # all that older results have
    threads = has.get("most_threads") or (f"at least {torch}" if torch else "")
    return str(has.get("name", "unknown")), str(threads), result.precision, result.versions


def _draw(study: Study, findings: Findings, into: Path) -> None:
    from anarchic.report.figure import save

    for picture in study.pictures:
        try:
            figure = picture.draw(findings)
        except ConfigError as error:  # no matplotlib here
            say(f"{picture.file} is not drawn: {error}")
            return
        if figure is not None:
            save(figure, into / picture.file)
