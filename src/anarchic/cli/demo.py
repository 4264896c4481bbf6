"""``anarchic demo``: see why anarchy pays, in a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.help import examples
from anarchic.cli.options import Given, settings_from, takes
from anarchic.cli.show import number, percent, print_table

EPILOG = examples(
    "anarchic demo", "anarchic demo --live", "anarchic demo --seed 7 --out another-demo"
)


@takes("seed")
def demo(
    given: Given,
    out: Annotated[
        Path,
        typer.Option(
            help="Directory for the runs and the picture; one that an earlier demo made is "
            "replaced.",
            metavar="DIR",
        ),
    ] = Path("demo"),
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Instead, train for real: a server and eight worker processes on this machine, "
            "with workers and the server killed on the way. Needs the extra 'server'.",
        ),
    ] = False,
    seconds: Annotated[float, typer.Option(help="How long the live demo trains.", min=5.0)] = 20.0,
) -> None:
    """Race FedAvg against AFA-CD and AFA-CS, with stragglers, on the embedded digits."""
    if live:
        from anarchic.cli.live import show_live

        show_live(Path("demo-live") if out == Path("demo") else out, seconds)
        return
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
    done = race(out, seed=settings_from(given).seed, watching=watching)
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
