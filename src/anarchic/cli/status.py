"""``anarchic status``: where a run stands, and what its workers did."""

from __future__ import annotations

import json as json_format
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from anarchic.cli.options import Given, examples, table, takes
from anarchic.cli.show import MISSING, number, percent
from anarchic.core import registry
from anarchic.core.reading import printable
from anarchic.errors import AnarchicError, ConfigError, WorkerError
from anarchic.worker.connection import Connection

EPILOG = examples(
    "anarchic status run.db",
    "anarchic status run.db --watch --sort staleness",
    "anarchic status postgresql://localhost/run --json",
    "anarchic status https://example.org --token-file operator.token",
    "anarchic status https://example.org --run mnist --token-file operator.token",
)
OPTIONS = table("""
Options
  run NAME: Which run of several: on a server, in a directory or database.
    (default: the only one; or the URL says it, as in https://example.org/v1/runs/mnist)
  watch: Show it again and again, until Ctrl-C.
  every_s SECONDS: Seconds between two looks with --watch.
  sort NAME: share, updates, seen, staleness, norm, loss or refused (the largest first), or worker.
  limit N: Number of workers to show.
  json: Print one JSON object, with --watch one per line: docs/operate.md names its fields.
  trust: Run code that the run names, such as a rule as module:Name: only for stores of your own.
Connection, for a URL
  token_file FILE: File that holds an operator's token.
    (default: the variable ANARCHIC_TOKEN)
  ca_file FILE: Certificate of the authority that signed the server's (PEM).
    (default: the system's)
  client_cert FILE: Own certificate (PEM), for a server with --client-ca. (default: none)
  client_key FILE: Private key of the own certificate (PEM).
    (default: in the file of the certificate)
""")
HEADER = (
    "worker", "seen", "updates", "share", "staleness", "norm", "loss", "refused", "to wait",
    "unusual",
)  # fmt: skip
LEFT = (0, 9)  # columns with words
ROLLBACKS = 3  # the newest that are shown
Where = Annotated[
    str,
    typer.Argument(
        help="The server's store (a file, or postgresql://...), or a running server's URL.",
        metavar="STORE|URL",
    ),
]
Record = dict[str, Any]
Look = Callable[[], Record]


@takes(OPTIONS, Connection)
def status(
    where: Where,
    given: Given,
    run: str | None = None,
    watch: bool = False,
    every_s: float = 2.0,
    sort: str = "share",
    limit: int = 30,
    json: bool = False,
    trust: bool = False,
    token_file: Path | None = None,
) -> None:
    """Show where a run stands, and what each of its workers did.

    A store is read directly, whether a server is at work or not.
    A server's URL needs a token with the right to operate.
    Staleness is the median and the 95th percentile.
    Norm is the last update's length divided by the median of the others', then the median of that.
    Loss is the last that the worker told, then the mean.
    """
    if not every_s > 0 or limit < 1:
        raise ConfigError(
            f"Give --every-s and --limit positive numbers, got {every_s:g} and {limit}."
        )
    shown = _json if json else lambda found: text_of(found, limit)
    looking = _looking(where, run, sort, limit, token_file, given)
    with registry.installed_only(trust), looking as look:
        if watch:
            _watch(look, shown, every_s, "" if json else "\n")
        else:
            typer.echo(json_format.dumps(look(), indent=2) if json else shown(look()))


@contextmanager
def _looking(
    where: str, run: str | None, sort: str, limit: int, token_file: Path | None,
    given: Given,
) -> Iterator[Look]:  # fmt: skip
    """What to call for a fresh overview."""
    if where.startswith(("http://", "https://")):
        yield _asking(*_server_and_run(where, run), f"sort={sort}&limit={limit}", token_file, given)
        return
    if token_file is not None or given:
        raise ConfigError(
            f"{where} is a store, which is read without a token or certificate: leave out "
            "--token-file and the like, or give a server's URL."
        )
    from anarchic.server.overview import listed
    from anarchic.server.places import place_of
    from anarchic.server.store import open_store

    if run is None and "://" not in where and Path(where).is_dir():
        raise ConfigError(
            f"{where} holds several runs: name one with --run NAME; 'anarchic run list {where}' "
            "shows them all."
        )
    with closing(open_store(place_of(where, run), create=False)) as store:
        yield lambda: listed(store, sort=sort, limit=limit)


def _server_and_run(url: str, run: str | None) -> tuple[str, str | None]:
    """The server, and the run that its URL or ``--run`` names."""
    server, path, rest = url.partition("/v1/runs/")
    named = rest.partition("/")[0] or None
    if named and run not in (None, named):
        raise ConfigError(f"The URL names the run {named!r} and --run {run!r}: leave one out.")
    return (server, named or run) if path else (url, run)


def _asking(url: str, run: str | None, query: str, token_file: Path | None, given: Given) -> Look:
    from anarchic.worker.asking import ask
    from anarchic.worker.settings import TOKEN_VARIABLE
    from anarchic.worker.token import read_token
    from anarchic.worker.worker import base_of

    connection = Connection(**given)
    token = os.environ.get(TOKEN_VARIABLE) if token_file is None else read_token(token_file)
    path = f"/{base_of(run)}/workers?{query}"

    def asked() -> Record:
        try:
            return ask(url, path, token=token or None, connection=connection)
        except WorkerError as error:
            if token or error.code != "unauthorized":  # on a port for operators none may be needed
                raise
            raise ConfigError(
                f"A server tells operators only: give --token-file, or set {TOKEN_VARIABLE}; "
                "`anarchic token add` makes a token with the right to operate."
            ) from error

    return asked


def _json(found: Record) -> str:
    return json_format.dumps(found)


def _watch(look: Look, shown: Callable[[Record], str], every_s: float, end: str) -> None:
    """Show it until Ctrl-C; on a terminal always in the same place."""
    terminal = sys.stdout.isatty()
    try:
        while True:
            try:
                text = shown(look())
            except ConfigError:
                raise
            except AnarchicError as error:  # a server that starts again, a database that hangs
                text = f"Not now: {printable(str(error))}"
            if terminal and end:
                width, height = shutil.get_terminal_size()
                lines = [line[: width - 1] for line in text.splitlines()[: height - 1]]
                text = "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"
                typer.echo(text, nl=False)
            else:
                typer.echo(text + end)
            time.sleep(every_s)
    except KeyboardInterrupt:
        return


def text_of(found: Record, limit: int) -> str:
    """An overview as text: facts, and a table of workers."""
    now_s = found["at_s"]
    lines = [f"{name:11}{text}" for name, text in _facts(found, now_s)]
    workers = found["workers"][:limit]
    rows = [_row(worker, now_s) for worker in workers]
    if found["others"] is not None:
        rows.append(_row({"marks": [], **found["others"], "worker": _others(found)}, now_s))
    if rows:
        lines += ["", *_columns([HEADER, *rows])]
    left = found.get("listed", len(found["workers"])) - len(workers)
    if left > 0:
        lines.append(f"and {left} more: --limit shows more of them.")
    return "\n".join(printable(line) for line in lines)


def _others(found: Record) -> str:
    many = found["others"]["workers"]
    return f"({many:,} others)" if many else "(no name)"


def _facts(found: Record, now_s: float) -> list[tuple[str, str]]:
    updates, leader = found["updates"], found["leader"]
    refusals, to_wait = _split(found["refusals"])
    counted = {name.replace("_", " "): count for name, count in updates.items()}
    counted["refused"] -= min(counted["refused"], sum(to_wait.values()))
    evaluation = dict(found["evaluation"] or {})
    version = evaluation.pop("version", None)
    told = ", ".join(f"{name} {_number(value)}" for name, value in evaluation.items())
    who = "none: no server is at work, or it has just started"
    if leader is not None:
        ago = _ago(leader["seen_s"], now_s)
        who = f"process {leader['pid']} on {leader['host']}, epoch {leader['epoch']}, {ago} ago"
    waiting = [f"{c['kind']} ({c['issued_by']}, {_ago(c['issued_s'], now_s)} ago)"
               for c in found["commands"]]  # fmt: skip
    facts = [
        ("run", f"{found['run']}, {found['state']}"),
        ("rule", f"{found['rule']}, m = {found['m']}, {found['parameters']:,} parameters"),
        ("version", number(found["version"])),
        ("rate", f"{found['rate_per_s']:.3g} updates per second, {found['buffered']:,} buffered"),
        ("updates", ", ".join(f"{count:,} {name}" for name, count in counted.items())),
        ("refused", _codes(refusals) or "none"),
        ("to wait", _codes(to_wait) or "none"),
        ("leader", who),
        ("evaluation", f"{told} at version {version}" if evaluation else "none"),
        ("commands", f"waiting: {', '.join(waiting)}" if waiting else "none waiting"),
    ]
    facts += [("rollback", _rollback(each)) for each in found.get("rollbacks", ())[-ROLLBACKS:]]
    return facts + [("attention", note) for note in (leader or {}).get("notes", ())]


def _rollback(command: Record) -> str:
    """Which versions it withdrew."""
    given = command["arguments"]
    words = [f"{name} {given[name]}" for name in ("to", "without") if given[name] is not None]
    first, last = given["first"], command["version"]
    are = f"version {last} is" if first == last else f"versions {first} to {last} are"
    gone = f"{are} withdrawn"
    return f"command {command['number']} ({' '.join(words)}): {gone}"


def _row(worker: Record, now_s: float) -> tuple[str, ...]:
    late = _pair(worker["staleness_p50"], worker["staleness_p95"])
    refused, to_wait = _split(worker["refused"])
    return (
        str(worker["worker"]),
        _ago(worker["seen_s"], now_s),
        f"{worker['updates']:,}",
        percent(worker["share"]),
        late,
        _pair(worker["norm_last"], worker["norm_p50"]),
        _pair(worker["loss_last"], worker["loss_mean"]),
        _codes(refused) or "0",
        f"{sum(to_wait.values()):,}",
        f"! {', '.join(worker['marks'])}" if worker["marks"] else "",
    )


def _split(codes: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Refusals, and requests that were told to come again later."""
    from anarchic.server.refusals import LATER

    refused = {code: count for code, count in codes.items() if code not in LATER}
    return refused, {code: count for code, count in codes.items() if code in LATER}


def _codes(codes: dict[str, int]) -> str:
    each = sorted(codes.items(), key=lambda item: -item[1])
    return ", ".join(f"{count:,} {code}" for code, count in each)


def _pair(one: float | None, other: float | None) -> str:
    return MISSING if one is None and other is None else f"{_number(one)} / {_number(other)}"


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"


def _ago(then_s: float | None, now_s: float) -> str:
    if then_s is None:
        return MISSING
    passed = max(0.0, now_s - then_s)
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
        if passed >= seconds:
            return f"{passed / seconds:.0f} {unit}"
    return f"{passed:.0f} s"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            text.ljust(width) if place in LEFT else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
