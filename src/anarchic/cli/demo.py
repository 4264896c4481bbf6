"""``anarchic demo``: see what anarchic learning gains, in a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anarchic.cli.options import Given, examples
from anarchic.cli.settings import settings_from, takes
from anarchic.cli.show import number, percent, print_facts, print_table, progress_bar, watching
from anarchic.errors import ConfigError, RunError

if TYPE_CHECKING:
    from anarchic.demo.live import LiveResult

EPILOG = examples(
    "anarchic demo", "anarchic demo --live", "anarchic demo --seed 7 --out another-demo"
)
SECONDS, LEAST_SECONDS = 20.0, 5.0
_OWN = f"""
  out DIR: Directory for the runs and the picture; what an earlier demo wrote there is replaced.
    (default: demo, or demo-live with --live)
  live: Instead, train for real: a server and eight worker processes on this machine, with workers
    and the server killed on the way. Needs the extra 'server'.
  seconds S: How long the live demo trains, at least {LEAST_SECONDS:g}.
    (default: {SECONDS:g}, with --live)
"""


@takes("seed", _OWN)
def demo(
    given: Given, out: Path | None = None, live: bool = False, seconds: float | None = None
) -> None:
    """Race FedAvg against AFA-CD and AFA-CS, with stragglers, on the embedded digits."""
    if live:
        if given:
            raise ConfigError("The live demo has no seed: leave out --seed or --live.")
        if seconds is not None and not seconds >= LEAST_SECONDS:
            raise ConfigError(f"--seconds must be at least {LEAST_SECONDS:g}, got {seconds:g}.")
        _live(out or Path("demo-live"), seconds or SECONDS)
    elif seconds is not None:
        raise ConfigError("Only the live demo takes --seconds: leave it out, or add --live.")
    else:
        _race(out or Path("demo"), settings_from(given).seed)


def _race(out: Path, seed: int) -> None:
    from anarchic.demo.race import FEDAVG, TARGET, race, sentences

    typer.echo(
        f"{FEDAVG.workers} workers learn handwritten digits. Each holds only "
        f"{FEDAVG.labels_per_worker} of the 10 classes; with probability "
        f"{100 * FEDAVG.slow_share:.0f} % it is {FEDAVG.slow_factor:.0f} times slower than the "
        "others.\n"
        f"FedAvg picks {FEDAVG.m} workers per round and waits for all of them. With AFA the "
        f"workers come when they like, all {FEDAVG.workers} of them, and the server steps "
        f"after every {FEDAVG.m} updates.\n"
        "All have the same workers, data and virtual time. FedAvg steps with server rate "
        f"{FEDAVG.server_lr:g}, AFA with {FEDAVG.local_steps}: with {FEDAVG.local_steps} local "
        "steps that is the same step.\n"
    )
    done = race(out, seed=seed, watching=watching)
    header = "rule", "rounds", f"time to {percent(TARGET)}", "speed-up"
    rows = [
        (
            entry.label,
            number(entry.run.summary["rounds"]),
            number(entry.seconds, "s") if entry.seconds is not None else "not reached",
            number(done.ratio(entry)),
            percent(entry.run.accuracy),
        )
        for entry in done.entries
    ]
    print_table([*header, "final accuracy"], rows)
    typer.echo("\n" + "\n".join(sentences(done)))
    typer.echo(f"\nPicture: {done.picture}. Runs: {out}; compare them with")
    typer.echo(f"  anarchic compare {' '.join(str(out / e.settings.rule) for e in done.entries)}")


def _live(out: Path, seconds: float) -> None:
    from anarchic.demo.live import WORKERS, M, run_live

    typer.echo(
        f"A server (AFA-CS, a step after every {M} updates) and {WORKERS} worker processes learn "
        f"handwritten digits for {seconds:.0f} s.\nEach worker holds other classes, comes when it "
        "likes and works as long as it likes."
    )
    with progress_bar() as bar:
        task = bar.add_task("starting", total=1.0, found="")

        def watch(share: float, seen: dict[str, Any]) -> None:
            found = f"version {seen['version']}  accuracy {seen['accuracy']:.3f}"
            bar.update(task, completed=share, description="training", found=found)

        result = run_live(out, seconds=seconds, tell=bar.console.print, watch=watch)
    print_facts(live_facts(result, out), title="Result")
    if not result.sound:
        raise RunError("An accepted update was lost or counted twice: see the logs.")


def live_facts(result: LiveResult, out: Path) -> list[tuple[str, str]]:
    """The table at the end of the live demo."""
    stored = result.folded + result.waiting
    # A kill, or the end, may come after an update was stored and before its worker got the answer.
    unheard = stored + result.lost - result.accepted
    equal = "equal" if result.replay.equal else "DIFFERENT"
    return [
        ("accuracy", f"{percent(result.first_accuracy)} at first, {percent(result.accuracy)} now"),
        ("versions", number(result.version)),
        ("killed", f"{result.worker_kills} workers, {result.server_kills} server, all restarted"),
        ("updates stored", number(stored)),
        ("  in a version", f"{result.folded}; {result.waiting} wait for the next step"),
        ("  accepted", f"{result.accepted} answers received, {unheard} cut off"),
        ("  refused", number(result.refused)),
        ("  lost", number(result.lost)),
        ("  counted twice", number(result.doubled)),
        ("replay", f"{result.replay.updates} updates folded again: {equal}, byte for byte"),
        ("written to", str(out)),
    ]
