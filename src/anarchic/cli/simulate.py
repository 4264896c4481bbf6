"""``anarchic simulate``: one run."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anarchic.cli import scripts
from anarchic.cli.options import Given, examples
from anarchic.cli.scripts import scripted
from anarchic.cli.settings import OPTIONS, compute_from, settings_from, takes
from anarchic.cli.show import MISSING, number, percent, print_facts, watching
from anarchic.cli.trace import read_trace, wasted_facts, with_clock
from anarchic.core import registry
from anarchic.errors import ConfigError
from anarchic.sim.experiment import Experiment
from anarchic.sim.record import RunDirectory
from anarchic.sim.settings import Settings
from anarchic.train.compute import Compute

if TYPE_CHECKING:
    from anarchic.sim.run import Progress, Watcher

EPILOG = examples(
    "anarchic simulate --labels-per-worker 2 --max-staleness 4 --dynamic-steps --out runs/cd",
    "anarchic simulate --rule afa-cs --server-lr 5 --participation exponential --slow-share 0.3 "
    "--out runs/cs",
    "anarchic simulate --resume --out runs/cd",
    "anarchic simulate --resume --rounds 300 --out runs/cd",
)
_OWN = """
Participation
  trace STORE|DIR: Who reports when, from a recording: the store of a server, the directory of a
    run, or a CSV file with the columns worker, pull_s, push_s, local_steps and, if visits were
    lost, lost. (default: the participation settings)
Record
  out DIR: Directory for the run's files; it must be new or empty. (default: the run is not
    recorded)
  resume: Go on with the run in --out from its last checkpoint, with its own settings; with a
    larger --rounds or --until-s further than it was first asked for.
  checkpoint_every: Rounds between checkpoints. (default: one every minute)
  callback NAMES: Tell these callbacks of versions and evaluations:
    CALLBACKS, or MODULE:NAME; separated by commas. (default: none; with
    --resume those that the run had)
""".replace("CALLBACKS", ", ".join(registry.names("callbacks")))


@scripted
@takes(" ".join(OPTIONS), _OWN)
def simulate(
    given: Given,
    trace: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    callback: str | None = None,
) -> None:
    """Train in virtual time with workers that come and go as they like.

    The defaults are the paper's for logistic regression, on the embedded digits.

    The same settings and seed give the same run.
    """
    from anarchic.sim.simulate import simulate as run

    if resume and out is None:
        raise ConfigError("--resume needs the directory of the run: give it with --out.")
    record = RunDirectory(out) if resume and out is not None else None
    found = record.settings() if record is not None else {}
    trace = found.pop("trace", trace)
    own = Settings.from_record(found) if found else None
    settings = settings_from(given if own else with_clock(given, trace), own)
    compute = compute_from(given, Compute.from_record(found))
    named = [] if callback is None else [name.strip() for name in callback.split(",")]
    as_far = own is not None and (settings.rounds, settings.until_s) == (own.rounds, own.until_s)
    was_finished = record is not None and record.finished and as_far
    try:
        with watching() as bar, _ending_between_rounds(bar) as watch:
            result = run(
                settings if trace is None else _traced(settings, compute, trace, record),
                compute=compute if trace is None else None,
                out=out,
                resume=resume,
                checkpoint_every=checkpoint_every,
                watch=bar if out is None else watch,
                callbacks=named,
            )
    except KeyboardInterrupt as error:
        typer.echo(_how_to_go_on(out), err=True)
        raise typer.Exit(130) from error
    if was_finished:
        typer.echo(f"The run in {out} had finished before; this is its summary.")
    print_facts(_facts(settings, result.summary, out), title="Summary")
    scripts.found(**result.summary, out=out)


def _traced(
    settings: Settings, compute: Compute, trace: str, record: RunDirectory | None
) -> Experiment:
    """A run with recorded participation; one that is resumed has it in its own directory.

    One that goes on further has only the beginning of it there.
    """
    from anarchic.sim.traced import build_traced

    table = record.timetable() if record else None
    if table is None or table.rounds < settings.rounds:
        table = read_trace(trace, settings)
    return build_traced(settings, table, name=trace, compute=compute)


@contextmanager
def _ending_between_rounds(watch: Watcher) -> Iterator[Watcher]:
    """From the first round on, let Ctrl-C end the run after the current round.

    A second Ctrl-C ends it at once. Where SIGINT is ignored, as in a shell's background, it stays
    ignored.
    """
    former = signal.getsignal(signal.SIGINT)
    if former is not signal.default_int_handler:
        yield watch
        return
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, former)

    def after_round(reached: Progress) -> None:
        watch(reached)
        if asked:
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, ask)

    try:
        yield after_round
    finally:
        signal.signal(signal.SIGINT, former)


def _how_to_go_on(out: Path | None) -> str:
    if out is None:
        return "Interrupted. Nothing was recorded: a run with --out DIR can be resumed."
    if not (out / "settings.json").exists():
        return "Interrupted before the first round; nothing was recorded."
    command = f"anarchic simulate --resume --out {shlex.quote(str(out))}"
    if not RunDirectory(out).checkpoint.exists():
        return f"Interrupted before the first checkpoint. To begin again: {command}"
    return f"Interrupted. To go on from the last checkpoint: {command}"


def _facts(settings: Settings, summary: dict[str, Any], out: Path | None) -> list[tuple[str, str]]:
    words = {"final": "at the end", "last10": "mean of last ten", "best": "best"}
    found = {words[which]: summary[f"{which}_accuracy"] for which in words}
    accuracies = [f"{percent(a)} {which}" for which, a in found.items() if a is not None]
    stopped = ", target reached" if summary["stopped_at"] == "target" else ""
    if summary["stopped_at"] == "stopped":
        stopped = f", stopped: {summary.get('stop_reason') or 'by a callback'}"
    facts = [
        ("run", f"{settings.rule} on {settings.data}, {settings.model}, seed {settings.seed}"),
        ("accuracy", ", ".join(accuracies) or MISSING),
        ("loss", MISSING if (loss := summary["final_loss"]) is None else f"{loss:.4f}"),
        ("rounds", number(summary["rounds"]) + stopped),
        ("updates", number(summary["updates"])),
        *([("clipped", number(summary["clipped"]))] if "clipped" in summary else []),
        ("local steps", number(summary["local_steps"])),
        *wasted_facts(summary.get("wasted"), summary["updates"]),
        ("virtual time", number(summary["virtual_s"], "s")),
        (
            "training took",
            f"{number(summary['train_seconds'], 's')}, "
            f"{number(summary['local_steps_per_second'])} local steps/s, "
            f"{number(summary['updates_per_second'])} updates/s",
        ),
        ("peak memory", number(summary["peak_rss_mb"], "MB")),
        ("written to", str(out) if out is not None else "nowhere; --out DIR records a run"),
    ]
    return [fact for fact in facts if fact != ("virtual time", number(None, "s"))]
