"""The command ``anarchic``: its subcommands, and how errors are printed."""

from __future__ import annotations

import errno
import io
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anarchic.cli import config, data, run, store, token
from anarchic.cli.options import examples
from anarchic.core.reading import printable
from anarchic.errors import AnarchicError, ConfigError

LINES = "\n"  # may stand in an error; nothing else that a terminal would act on
FAILURE, MISUSE, INTERRUPTED = 1, 2, 130
# Functions in modules of their names, in the order of the help.
COMMANDS = (
    "demo simulate sweep tune compare timetable theory measure speedup rules reproduce init serve "
    "work status replay view report pause resume end set rollback export log"
)


class Commands(TyperGroup):
    """Prints our own errors as one line; any other is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:  # Any: Typer's contexts changed their module over versions
        try:
            return super().invoke(ctx)
        except AnarchicError as error:
            typer.echo(f"Error: {printable(str(error), keep=LINES)}", err=True)
            raise typer.Exit(MISUSE if isinstance(error, ConfigError) else FAILURE) from error
        except OSError as error:
            full = error.errno == errno.ENOSPC
            if error.filename is None and not full:  # a closed pipe, which Typer handles
                raise
            where = error.filename or "The output cannot be written"
            typer.echo(f"Error: {printable(f'{where}: {error.strerror}.')}", err=True)
            raise typer.Exit(FAILURE) from error
        except MemoryError as error:
            typer.echo(
                f"Error: There is not enough memory for this ({printable(str(error), most=200)}): "
                "ask for less, such as fewer rounds, workers or local steps.",
                err=True,
            )
            raise typer.Exit(FAILURE) from error
        except KeyboardInterrupt as error:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "anarchic demo",
        "anarchic simulate --labels-per-worker 2 --max-staleness 4 --out runs/cd",
        "anarchic simulate --labels-per-worker 2 --max-staleness 4 --rule afa-cs --out runs/cs",
        "anarchic compare runs/cd runs/cs --out compare.png",
    ),
)
for name in COMMANDS.split():
    module = import_module(f"anarchic.cli.{name}")
    app.command(epilog=module.EPILOG)(getattr(module, name))
app.add_typer(run.app, name="run")
app.add_typer(token.app, name="token")
app.add_typer(store.app, name="store")
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        from anarchic import __version__

        typer.echo(f"anarchic {__version__}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", help="Print the version.", metavar="", callback=_version, is_eager=True
)


@app.callback()
def anarchic(version: Annotated[bool, _VERSION] = False) -> None:
    """Anarchic federated learning: the workers decide when, how long and whether they train."""
    if "" not in sys.path:  # a module of one's own lies where the command is called
        sys.path.insert(0, "")


def main() -> None:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where bars and dashes are unknown: "?"
    app(prog_name="anarchic")
