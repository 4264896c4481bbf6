"""CSV files of others, line by line; what is wrong is said with its line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from anarchic.core.reading import check_file, reason, shown
from anarchic.errors import DataError

MAX_BYTES = 1 << 30  # of a file


class Line(NamedTuple):
    """The values of one line by the names of their columns."""

    where: str  # file and line, for errors
    number: int
    values: Mapping[str, str]

    def worker(self) -> int:
        return self.whole("worker", "a worker number; count workers from 0")

    def whole(self, column: str, what: str) -> int:
        """A whole number below 2^31."""
        text = self.values[column]
        short_enough = text.isascii() and text.isdigit() and len(text) <= 10
        if not short_enough or int(text) >= 2**31:
            raise DataError(f"{self.where}, column {column}: {shown(text)} is not {what}.")
        return int(text)

    def seconds(self, column: str) -> float:
        text = self.values[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise DataError(
                f"{self.where}, column {column}: {shown(text)} is not a time in seconds, finite "
                "and >= 0."
            )
        return value


def read_lines(
    path: Path, what: str, columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[Line]:
    """The lines of a CSV file whose first line names its columns, in any order."""
    try:
        check_file(path, most=MAX_BYTES)
        with path.open(newline="", encoding="utf-8-sig") as lines:
            yield from _parse(path.name, csv.reader(lines), columns, optional)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"Cannot read the {what} {path}: {reason(error)}. Give a CSV file with the columns "
            f"{', '.join(columns)}."
        ) from error


def _parse(
    name: str, rows: Iterable[list[str]], columns: Sequence[str], optional: Sequence[str]
) -> Iterator[Line]:
    lines = ((number, row) for number, row in enumerate(rows, start=1) if row)
    number, header = next(lines, (1, []))
    names = [column.strip() for column in header]
    if missing := [column for column in columns if column not in names]:
        raise DataError(
            f"{name}, line {number}: column {missing[0]} is missing; the header must name "
            f"{', '.join(columns)}, found {shown(names)}."
        )
    wanted = [*columns, *(column for column in optional if column in names)]
    if twice := [column for column in wanted if names.count(column) > 1]:
        raise DataError(f"{name}, line {number}: column {twice[0]} occurs twice; leave one out.")
    places = {column: names.index(column) for column in wanted}
    for number, row in lines:
        where = f"{name}, line {number}"
        if len(row) > len(names):
            raise DataError(
                f"{where}: {len(row)} values for {len(names)} columns; leave out those beyond the "
                "header."
            )
        if short := [column for column, place in places.items() if place >= len(row)]:
            raise DataError(
                f"{where}, column {short[0]}: the line ends before it; complete the line."
            )
        yield Line(where, number, {column: row[at].strip() for column, at in places.items()})
