"""Has anything become slower? ``python -m benchmarks.compare [BEFORE [AFTER]]`` (bench-compare).

BEFORE and AFTER are folders of results; BEFORE may also be a commit, and is the last one if left
out. A median counts as worse if it lost more than a tenth and lies outside the spread of the
earlier repeats. On another machine rates say nothing, and only ratios are held against each other.
Exits with 1 if something became worse.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import RESULTS, Measure, Record, parse, short

TOLERATED = 0.1
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Change:
    """``gain`` is how many times as good it is now: above 1 is better, whatever the unit."""

    what: str
    before: float
    after: float
    gain: float
    worse: bool


def main(arguments: list[str]) -> int:
    before = arguments[0] if arguments else "HEAD"
    after = Path(arguments[1]) if len(arguments) > 1 else RESULTS
    changes = list(compare(records(before), records(str(after))))
    if not changes:
        print(f"Nothing in {after} can be compared with {before}.")
        return 0
    print(f"{'':<52}{'before':>10}{'after':>10}{'times':>8}")
    for change in changes:
        mark = "  WORSE" if change.worse else ""
        numbers = f"{short(change.before):>10}{short(change.after):>10}{change.gain:>8.2f}"
        print(f"{change.what:<52}{numbers}{mark}")
    return int(any(change.worse for change in changes))


def compare(before: dict[str, Record], after: dict[str, Record]) -> Iterator[Change]:
    """All that both have."""
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old.machine["name"] == new.machine["name"]:
            yield from _medians(old, new)
        yield from _ratios(old, new)


def _medians(old: Record, new: Record) -> Iterator[Change]:
    earlier = {(m.group, m.name): m for m in old.measures}
    for now in new.measures:
        then = earlier.get((now.group, now.name))
        if then is not None and then.median and now.median:
            times = now.median / then.median
            gain = times if now.better == "higher" else 1 / times
            worse = gain < 1 - TOLERATED and _outside(then, now)
            what = f"{old.name}: {now.group} {now.name}, {now.unit}"
            yield Change(what, then.median, now.median, gain, worse)


def _outside(then: Measure, now: Measure) -> bool:
    return now.median < then.lowest if now.better == "higher" else now.median > then.highest


def _ratios(old: Record, new: Record) -> Iterator[Change]:
    earlier = {(r.group, r.name): r.value for r in old.ratios}
    for now in new.ratios:
        then = earlier.get((now.group, now.name))
        if then and now.value:
            gain = now.value / then
            yield Change(
                f"{old.name}: {now.group} {now.name}", then, now.value, gain, gain < 1 - TOLERATED
            )


def records(where: str) -> dict[str, Record]:
    """Those of a folder, or of a commit."""
    if Path(where).is_dir():
        texts = [path.read_text(encoding="utf-8") for path in sorted(Path(where).glob("*.json"))]
    else:
        folder = RESULTS.relative_to(ROOT).as_posix()
        names = _git("ls-tree", "--name-only", where, f"{folder}/").split()
        texts = [_git("show", f"{where}:{name}") for name in names if name.endswith(".json")]
    found = [parse(text) for text in texts if '"measures"' in text]
    return {record.name: record for record in found}


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
