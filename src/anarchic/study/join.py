"""Join raw results: ``python -m anarchic.study.join INTO FROM ...`` adds them to those of a file.

For an experiment whose parts were run in several places. Of a run that is in several files the
last one counts; files that are not there are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from anarchic.errors import AnarchicError
from anarchic.study.results import Key, Result, add_results, read_results

USAGE = "Usage: python -m anarchic.study.join INTO FROM ...\n"


def join(into: Path, others: Sequence[Path]) -> int:
    """Add the results of other files; how many they have."""
    found: dict[Key, Result] = {}
    for path in others:
        found |= read_results(path).by_key
    if found:
        add_results(into, found.values())
    return len(found)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        sys.stderr.write(USAGE)
        return 2
    into, *others = map(Path, arguments)
    if missing := [str(path) for path in others if not path.exists()]:
        sys.stderr.write(f"Error: there is no {', '.join(missing)}.\n")
        return 1
    try:
        count = join(into, others)
    except AnarchicError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(f"{count} results added to {into}.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
