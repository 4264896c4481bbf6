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
    """The claims: text, bound, measured value, and whether it is met; reasons where it is not."""
    rows, reasons = [], []
    for claim in study.claims:
        value = claim.measured(findings)
        met = "not run" if value is None else "yes" if claim.holds(value) else "**no**"
        rows.append([claim.text, bound(claim), fixed(value, 4), met])
        if met == "**no**":
            reasons.append(f"- Not met: {claim.text}. {claim.reason or 'The reason is not known.'}")
    return rows, reasons


def mean_difference(findings: Findings, digits: int) -> str:
    """The mean absolute difference to the paper, with and without cells that diverged."""
    mean, rest = fixed(findings.mean_difference, digits), findings.settled
    if not mean or not (bad := len(findings) - len(rest)):
        return mean
    return f"{mean}, {fixed(rest.mean_difference, digits)} without the {bad} that diverged"


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


TIMES = ("task", "hardware", "threads", "precision", "software", "runs", "time", "date")


def _commands(study: Study) -> list[str]:
    lines = [f"{study.command(task)} --seeds {study.seeds.get(task, 1)}" for task in study.tasks]
    return [*lines, f"anarchic reproduce {study.name} --report"] if study.results_of else lines


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
    table = markdown(("claim", "bound", "measured", "met"), rows)
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
    seeds = sorted({len(outcome.results) for outcome in findings.run})
    about = f"{len(findings.run)} of {len(findings)} cells have results"
    if seeds:
        about += f", with {' or '.join(map(str, seeds))} seed{'s' if seeds != [1] else ''}"
    if mean := mean_difference(findings, study.digits):
        about += f"; mean absolute difference to the paper {mean}"
    if not findings.complete:
        about += f". Those not run: `{study.command(task)} --resume`"
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
