"""Has anything become slower? ``python -m benchmarks.compare [BEFORE [AFTER]]`` (bench-compare).

BEFORE and AFTER are files of results; BEFORE may also be a commit, and is the last one if left
out. A median counts as worse if it lost more than a tenth and lies outside the spread of the
earlier repeats; what was measured only once has no spread, and counts as worse if it lost a
quarter. What was measured before and is not any more is shown, and so is a bound that was met and
is missed. On another machine rates say nothing, and only ratios and bounds are held against each
other. Exits with 1 if something became worse, has gone or is missed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.record import RESULTS, Measure, Record, parse, read, short

TOLERATED, TOLERATED_ONCE = 0.1, 0.25
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Change:
    """``gain`` is how many times as good it is now: above 1 is better, whatever the unit."""

    what: str
    before: float | None
    after: float | None
    gain: float | None = None
    mark: Literal["", "WORSE", "GONE", "MISSED"] = ""


def main(arguments: list[str]) -> int:
    before = arguments[0] if arguments else "HEAD"
    after = Path(arguments[1]) if len(arguments) > 1 else RESULTS
    changes = list(compare(records(before), read(after)))
    if not changes:
        print(f"Nothing in {after} can be compared with {before}.")
        return 0
    print(f"{'':<52}{'before':>10}{'after':>10}{'times':>8}")
    for change in changes:
        gain = "" if change.gain is None else f"{change.gain:.2f}"
        numbers = f"{short(change.before):>10}{short(change.after):>10}{gain:>8}"
        print(f"{change.what:<52}{numbers}  {change.mark}".rstrip())
    return int(any(change.mark for change in changes))


def compare(before: dict[str, Record], after: dict[str, Record]) -> Iterator[Change]:
    """All that both have, and what only the earlier has."""
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old.machine["name"] == new.machine["name"]:
            yield from _medians(old, new)
        yield from _ratios(old, new)
        yield from _missed(old, new)


def _medians(old: Record, new: Record) -> Iterator[Change]:
    later = {(m.group, m.name): m for m in new.measures}
    for then in old.measures:
        now = later.get((then.group, then.name))
        what = f"{old.name}: {then.group} {then.name}, {then.unit}"
        if now is None:
            yield Change(what, then.median, None, mark="GONE")
        elif then.median and now.median:
            times = now.median / then.median
            gain = times if now.better == "higher" else 1 / times
            mark: Literal["WORSE", ""] = "WORSE" if _worse(then, now, gain) else ""
            yield Change(what, then.median, now.median, gain, mark)


def _worse(then: Measure, now: Measure, gain: float) -> bool:
    if min(then.repeats, now.repeats) == 1:
        return gain < 1 - TOLERATED_ONCE
    outside = now.median < then.lowest if now.better == "higher" else now.median > then.highest
    return gain < 1 - TOLERATED and outside


def _ratios(old: Record, new: Record) -> Iterator[Change]:
    later = {(r.group, r.name): r.value for r in new.ratios}
    for then in old.ratios:
        now, what = later.get((then.group, then.name)), f"{old.name}: {then.group} {then.name}"
        if then.value and now:
            gain = now / then.value
            yield Change(what, then.value, now, gain, "WORSE" if gain < 1 - TOLERATED else "")
        elif then.value:
            yield Change(what, then.value, None, mark="GONE")


def _missed(old: Record, new: Record) -> Iterator[Change]:
    met = {bound.name: bound.value for bound in old.bounds if bound.met}
    for bound in new.bounds:
        if bound.name in met and not bound.met:
            yield Change(f"{old.name}: {bound.name}", met[bound.name], bound.value, mark="MISSED")


def records(where: str) -> dict[str, Record]:
    """Those of a file, or of a commit."""
    if Path(where).is_file():
        return read(Path(where))
    words = ["git", "show", f"{where}:{RESULTS.relative_to(ROOT).as_posix()}"]
    return parse(
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
