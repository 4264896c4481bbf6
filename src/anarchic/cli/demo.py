"""``anarchic demo``: see why anarchy pays, in a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.options import Given, settings_from, takes
from anarchic.cli.show import number, percent, print_table
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic demo", "anarchic demo --live", "anarchic demo --seed 7 --out another-demo"
)
SECONDS = 20.0


@takes("seed")
def demo(
    given: Given,
    out: Annotated[
        Path | None,
        option(
            "Directory for the runs and the picture; what an earlier demo wrote there is replaced.",
            "demo, or demo-live with --live",
            metavar="DIR",
        ),
    ] = None,
    live: Annotated[
        bool,
        option(
            "Instead, train for real: a server and eight worker processes on this machine, with "
            "workers and the server killed on the way. Needs the extra 'server'.",
            flag="--live",
        ),
    ] = False,
    seconds: Annotated[
        float | None,
        option("How long the live demo trains.", f"{SECONDS:g}, with --live", min=5.0, metavar="S"),
    ] = None,
) -> None:
    """Race FedAvg against AFA-CD and AFA-CS, with stragglers, on the embedded digits."""
    if live:
        if given:
            raise ConfigError("The live demo is not drawn from a seed: leave out --seed or --live.")
        from anarchic.cli.live import show_live

        show_live(out or Path("demo-live"), seconds or SECONDS)
    elif seconds is not None:
        raise ConfigError("The race takes as long as it takes: leave out --seconds, or add --live.")
    else:
        _race(out or Path("demo"), settings_from(given).seed)


def _race(out: Path, seed: int) -> None:
    from anarchic.cli.progress import watching
    from anarchic.report.demo import FEDAVG, TARGET, race, sentences

    typer.echo(
        f"{FEDAVG.workers} workers learn handwritten digits. Each holds only "
        f"{FEDAVG.labels_per_worker} of the 10 classes; with a chance of "
        f"{100 * FEDAVG.slow_share:.0f} % it is {FEDAVG.slow_factor:.0f} times slower than the "
        "others.\n"
        f"FedAvg picks {FEDAVG.m} workers a round and waits for all of them. With AFA the workers "
        f"come when they like, all {FEDAVG.workers} of them, and every {FEDAVG.m} updates make a "
        "step.\n"
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
