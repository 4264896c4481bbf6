"""``python -m tests.chaos``: the fault test at full length."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.faults import TAKE_OVER_S, Plan, Report, run
from tests.server.postgres import postgres_server

CONFIGURATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "afa-cd": ("afa-cd", ()),
    "afa-cs": ("afa-cs", ("--cap", "64")),
    "afa-cd-clip": ("afa-cd", ("--clip", "0.5", "--staleness-power", "0.5")),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--replicas", type=int, default=1, help="more than one needs postgres")
    parser.add_argument("--rule", choices=tuple(CONFIGURATIONS), default="afa-cd")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.replicas > 1 and given.store != "postgres":
        parser.error("several replicas need --store postgres")
    rule, options = CONFIGURATIONS[given.rule]
    plan = Plan(
        kills=given.kills,
        workers=given.workers,
        herds=2,
        replicas=given.replicas,
        rule=rule,
        options=options,
        calm_s=(0.2, 2.0),
        seed=given.seed,
    )
    with tempfile.TemporaryDirectory() as folder, _store(given.store, Path(folder)) as store:
        report = run(plan, Path(folder), store, say=_say)
    _say(describe(report))
    slow = [seconds for seconds in report.take_overs_s if seconds > TAKE_OVER_S]
    return 1 if slow else 0


@contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield str(folder / "run.db")
        return
    with postgres_server() as server:
        yield server.new_place()


def describe(report: Report) -> str:
    v = report.verdict
    lines = [
        f"{report.kills} kills of the server, {report.herd_kills} of workers at work, "
        f"{report.seconds:.0f} s",
        f"{v.promised} updates were promised to count and count once; {v.folded} are folded into "
        f"{v.versions} versions, {v.waiting} wait",
        f"{v.refused} were refused or cut and count never; {v.unanswered} got no answer, of which "
        f"{v.unanswered_counted} count, once",
        f"answers by status: {v.answers}",
        "the parameters equal the replay, byte for byte",
    ]
    if report.restarts_s:
        lines.append(f"restart to first answer: at most {max(report.restarts_s):.2f} s")
    if report.take_overs_s:
        middle = sorted(report.take_overs_s)[len(report.take_overs_s) // 2]
        lines.append(
            f"take-over after a leader's death: median {middle:.2f} s, at most "
            f"{max(report.take_overs_s):.2f} s"
        )
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
