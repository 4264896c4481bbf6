"""``anarchic token``: who may pull, push and operate."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anarchic.cli.options import examples
from anarchic.cli.show import MISSING, print_table
from anarchic.core.files import spare_store, write_file
from anarchic.core.reading import read_file, reason
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.server.records import Account

app = typer.Typer(
    no_args_is_help=True,
    help="Give workers and operators tokens, list, rotate, revoke and move them.",
    epilog=examples(
        "anarchic token add ann --store run.db --out ann.token",
        "anarchic token add ops --rights pull,operate --expires 90d --store run.db",
        "anarchic token list run.db",
        "anarchic token rotate ann --store run.db --overlap 24h --out ann.token",
        "anarchic token revoke ann --store run.db",
        "anarchic token export run.db > tokens.json",
        "anarchic token import tokens.json --store next.db",
    ),
)
Where = Annotated[
    str, typer.Option(help="The server's store: a file, or postgresql://...", metavar="PATH|URL")
]
Named = Annotated[
    str | None,
    typer.Argument(
        help="The server's store: a file, or postgresql://... [dim](default: --store)[/dim]",
        metavar="[STORE]",
        show_default=False,
    ),
]
Option = Annotated[
    str | None,
    typer.Option(
        help="The same as STORE, as the other commands take it. [dim](default: STORE)[/dim]",
        metavar="PATH|URL",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="The name of the worker or operator.")]
Expires = Annotated[
    str | None,
    typer.Option(
        help="End of the token: after a time (90d, 24h) or with a day (2027-01-31, UTC). "
        "[dim](default: none)[/dim]",
        metavar="TIME|DAY",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Write the token to this file, which only you may read. "
        "[dim](default: print it)[/dim]",
        show_default=False,
        metavar="FILE",
    ),
]


@app.command(
    epilog=examples(
        "anarchic token add ann --store run.db --out ann.token",
        "anarchic token add ops --rights pull,operate --expires 90d --store run.db",
    )
)
def add(
    worker: Name,
    store: Where,
    rights: Annotated[
        str,
        typer.Option(
            help="What the token may do: pull, push and operate, separated by commas. "
            "[dim](default: pull,push)[/dim]",
            show_default=False,
            metavar="RIGHTS",
        ),
    ] = "pull,push",
    expires: Expires = None,
    out: Out = None,
) -> None:
    """Give a worker a token, shown once; only its hash is stored. It replaces a former token."""
    from anarchic.server.tokens import add_token, parse_end

    _check_out(out)
    end_s = None if expires is None else parse_end(expires)
    _hand_over(worker, add_token(store, worker, rights=rights, expires_s=end_s), out)


@app.command(
    epilog=examples("anarchic token rotate ann --store run.db --overlap 24h --out ann.token")
)
def rotate(
    worker: Name,
    store: Where,
    overlap: Annotated[
        str,
        typer.Option(
            help="How long the old token is still taken. [dim](default: 24h)[/dim]",
            show_default=False,
            metavar="TIME",
        ),
    ] = "24h",
    expires: Expires = None,
    out: Out = None,
) -> None:
    """Give a worker a new token with the same rights; the old one is taken for a while.

    Write the new token to the file that the worker reads (--token-file). It need not be restarted.
    """
    from anarchic.server.tokens import parse_end, parse_span, rotate_token

    _check_out(out)
    end_s = None if expires is None else parse_end(expires)
    token = rotate_token(store, worker, overlap_s=parse_span(overlap), expires_s=end_s)
    _hand_over(worker, token, out)


def _check_out(out: Path | None) -> None:
    """Before a token is made: it would be lost."""
    if out is None:
        return
    if not out.parent.is_dir():
        raise ConfigError(f"There is no directory {out.parent} for --out {out}: create it first.")
    spare_store(out)


def _hand_over(worker: str, token: str, out: Path | None) -> None:
    if out is None:
        typer.echo(token)
        return
    try:
        write_file(out, f"{token}\n".encode(), private=True)
    except OSError as error:
        typer.echo(token)
        raise ConfigError(
            f"The token cannot be written to --out {out}: {reason(error)}. It is "
            "printed above, once."
        ) from error
    typer.echo(f"The token of {worker} is in {out}.")


@app.command(name="list", epilog=examples("anarchic token list run.db --json"))
def list_(
    where: Named = None,
    store: Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show who has a token, what it may do, whether it is valid, and when it was last used."""
    from anarchic.server.tokens import list_tokens

    now_s, found = time.time(), list_tokens(_one("list", where, store))
    if as_json:
        typer.echo(json.dumps([_facts(account, now_s) for account in found], indent=1))
        return
    rows = [
        (account.worker, account.rights, _told(account, now_s), _last_used(account, now_s))
        for account in found
    ]
    print_table(("name", "rights", "state", "last used"), rows, names=4)


def _one(command: str, where: str | None, store: str | None) -> str:
    if (where is None) == (store is None):
        raise ConfigError(f"Name one store: anarchic token {command} run.db.")
    return where or store or ""


def _facts(account: Account, now_s: float) -> dict[str, object]:
    return {
        "name": account.worker,
        "rights": account.rights.split(","),
        "state": _state(account, now_s),
        "expires": _date(account.expires_s),
        "old_until": _date(_old_until_s(account, now_s)),
        "last_used": _date(account.used_s),
    }


def _state(account: Account, now_s: float) -> str:
    if account.revoked:
        return "revoked"
    ended = account.expires_s is not None and account.expires_s <= now_s
    return "expired" if ended else "valid"


def _told(account: Account, now_s: float) -> str:
    state = _state(account, now_s)
    if state == "expired":
        state += f" {_span(now_s - (account.expires_s or 0.0))} ago"
    elif state == "valid" and account.expires_s is not None:
        state += f", expires in {_span(account.expires_s - now_s)}"
    old_s = _old_until_s(account, now_s)
    return state if old_s is None else f"{state}; old token until {_date(old_s)}"


def _old_until_s(account: Account, now_s: float) -> float | None:
    """Until when the token before the last rotation is taken, if it is."""
    if account.revoked or account.old_until_s is None or account.old_until_s <= now_s:
        return None
    return account.old_until_s


def _last_used(account: Account, now_s: float) -> str:
    if account.used_s is None:
        return MISSING
    ago_s = now_s - account.used_s  # in the future, if the server's clock is ahead
    return "just now" if ago_s < 120 else f"{_span(ago_s)} ago"


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds)} seconds"


def _date(at_s: float | None) -> str | None:
    return None if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


@app.command(epilog=examples("anarchic token revoke ann --store run.db"))
def revoke(worker: Name, store: Where) -> None:
    """Revoke a worker's token; a running server notices within a second."""
    from anarchic.server.tokens import revoke_token

    revoke_token(store, worker)
    typer.echo(f"The token of {worker} is revoked.")


@app.command(epilog=examples("anarchic token export run.db > tokens.json"))
def export(where: Named = None, store: Option = None) -> None:
    """Print all tokens for another run: names, rights, ends and hashes, never the secrets."""
    from anarchic.server.tokens import export_tokens

    typer.echo(export_tokens(_one("export", where, store)))


@app.command(
    name="import",
    epilog=examples(
        "anarchic token import tokens.json --store next.db",
    ),
)
def import_(
    file: Annotated[
        str, typer.Argument(help="What `anarchic token export` printed; - is standard input.")
    ],
    store: Where,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace tokens of names that the store has.")
    ] = False,
) -> None:
    """Let workers use their tokens in another run. A damaged file is refused as a whole."""
    from anarchic.server.tokens import MOST_BYTES, import_tokens

    try:
        if file == "-":
            text = sys.stdin.buffer.read(MOST_BYTES + 1)[:MOST_BYTES]  # cut short it is refused
        else:
            text = read_file(file, most=MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {reason(error)}.") from error
    names = import_tokens(text, store, replace=replace)
    typer.echo(f"{len(names)} {'token was' if len(names) == 1 else 'tokens were'} imported.")
