"""``anarchic reproduce``: run an experiment, and make its pages."""

from __future__ import annotations

from anarchic.errors import ConfigError
from anarchic.study import find
from anarchic.study.findings import Findings, read_findings
from anarchic.study.flags import Flags, paths
from anarchic.study.overview import write_overview, write_readme
from anarchic.study.page import write_pages
from anarchic.study.running import chosen, run
from anarchic.study.study import Study
from anarchic.study.watch import say


def reproduce(study: Study, flags: Flags) -> Findings:
    """Run what the flags ask for, write the results, and make the pages."""
    study = study.smoke() if flags.smoke else study
    where = paths(study, flags)
    chosen(study, flags)
    if flags.smoke:
        say("A smoke run, tiny and on embedded data: does it run? Its numbers are no results.")
    if study.results_of is not None and not flags.smoke:
        say(f"{study.name} is made of the results of {study.results_of}: nothing is trained here.")
    elif not flags.report and not run(study, flags, where):
        say("The time was over before all was done: to go on, add --resume.")
    if where.shown == where.shipped:
        say(f"There is no {where.results}: the pages show the results that came with the package.")
    findings = read_findings(study.cells, where.shown)
    say(f"Written: {write_pages(study, findings, where.pages)}.")
    return findings


def reproduce_all(flags: Flags) -> None:
    """Every experiment; then one page of them all, unless it was a smoke run."""
    if flags.out is not None or flags.only is not None:
        raise ConfigError("--out and --only are for one experiment, not for all.")
    studies = [find.load(name) for name in find.names()]
    for study in studies:
        if flags.task in (None, *study.tasks):
            reproduce(study, flags)
    if not flags.smoke:
        for path in (write_overview(studies), write_readme(studies)):
            if path is not None:
                say(f"Written: {path}.")
