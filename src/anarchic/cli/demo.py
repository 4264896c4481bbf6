"""``anarchic demo``: see what anarchic learning gains, in a few seconds."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anarchic.cli.options import Given, examples
from anarchic.cli.settings import settings_from, takes
from anarchic.cli.show import number, percent, print_facts, print_table, watching
from anarchic.errors import ConfigError, RunError

if TYPE_CHECKING:
    from anarchic.demo.live import LiveResult

EPILOG = examples(
    "anarchic demo",
    "anarchic demo --live --open  # and watch it in a browser",
    "anarchic demo --seed 7 --out another-demo",
)
SECONDS, LEAST_SECONDS = 30.0, 5.0  # enough to open the page that it names
OPEN_SECONDS = 60.0  # there is more to see, and a browser takes a while to start
_OWN = f"""
  out DIR: Directory for the runs and the picture; what an earlier demo wrote there is replaced.
    (default: demo, or demo-live with --live)
  live: Instead, train for real: a server and eight worker processes on this machine, with workers
    and the server killed on the way. Needs the extra 'server'.
  seconds S: How long the live demo trains, at least {LEAST_SECONDS:g}.
    (default: {SECONDS:g} with --live, {OPEN_SECONDS:g} with --open)
  open_: With --live: open the server's live page in a browser. It stays open while workers and the
    server are killed.
"""


@takes("seed", _OWN)
def demo(
    given: Given,
    out: Path | None = None,
    live: bool = False,
    seconds: float | None = None,
    open_: bool = False,
) -> None:
    """Race FedAvg against AFA-CD and AFA-CS, with stragglers, on the embedded digits."""
    if live:
        if given:
            raise ConfigError("The live demo has no seed: leave out --seed or --live.")
        if seconds is not None and not seconds >= LEAST_SECONDS:
            raise ConfigError(f"--seconds must be at least {LEAST_SECONDS:g}, got {seconds:g}.")
        seconds = seconds or (OPEN_SECONDS if open_ else SECONDS)
        _live(out or Path("demo-live"), seconds, in_browser=open_)
    elif seconds is not None or open_:
        flag = "--open" if open_ else "--seconds"
        raise ConfigError(f"Only the live demo takes {flag}: leave it out, or add --live.")
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


def _live(out: Path, seconds: float, *, in_browser: bool = False) -> None:
    from anarchic.cli.demo_screen import demo_screen
    from anarchic.demo.live import WORKERS, M, run_live

    typer.echo(
        f"A server (AFA-CS, a step after every {M} updates) and {WORKERS} worker processes learn "
        f"handwritten digits for {seconds:.0f} s.\nEach worker holds other classes, comes when it "
        "likes and works as long as it likes."
    )
    with demo_screen(seconds) as screen:

        def look(page: str | None) -> None:
            for line in where_to_look(page, in_browser=in_browser):
                screen.tell(line)

        result = run_live(out, seconds=seconds, tell=screen.tell, watch=screen.watch, look=look)
    print_facts(live_facts(result, out), title="Result")
    typer.echo("\n".join(what_next(out)))
    if not result.sound:
        raise RunError("An accepted update was lost or counted twice: see the logs.")


def what_next(out: Path) -> list[str]:
    """Commands that show the run when its server is gone."""
    store = shlex.quote(str(out / "run.db"))
    return [
        "The server has stopped. Its run can still be looked at:",
        f"  anarchic view {store} --open           # the live page again",
        f"  anarchic report {store} --out r.html   # a file to keep or to send",
    ]


def where_to_look(page: str | None, *, in_browser: bool) -> list[str]:
    """What to say about the live page, which is opened if that is wanted."""
    extra = "pip install 'anarchic[page]'"
    if page is None:
        return [f"This server has no live page: {extra} adds it."]
    told = [f"Watch it at {page} (this machine only, no token needed)."]
    if find_spec("plotly") is None:
        told.append(f"To zoom into its charts: {extra}.")
    if in_browser and not _opened(page):
        told.append("No browser could be started here: open that address yourself.")
    return told


def _opened(page: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(page)
    except webbrowser.Error:
        return False


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
