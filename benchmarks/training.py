"""W1 to W4 against a plain PyTorch loop and other frameworks, in local steps per second.

    python -m benchmarks.training                           # all of it: forty minutes
    python -m benchmarks.training --workloads W1 --repeats 3 --contestants anarchic plain

Every run is a process of its own, all contestants take turns, and the medians count, so that a busy
machine slows all alike. All read the same files: data, deal, and first parameters. Timed are the
rounds, training and aggregation, and what is compiled in them; importing, loading and testing are
not, nor is getting ready, which is shown apart. A rate is void, and shown as such, where the model
that came out had not learnt. A run that fails is tried again. Peers live in environments of their
own (``make bench-peers``). Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import torch

from anarchic.errors import AnarchicError
from benchmarks.peers.environments import last_line, missing
from benchmarks.peers.torch_work import net
from benchmarks.record import RESULTS, Record
from benchmarks.workloads import PLACE, WORKLOADS, Array, Held, Workload, held, prepare

ROOT = Path(__file__).parents[1]
REPEATS = {"W1": 5, "W2": 3, "W3": 3, "W4": 3}
CORES = 2
TIMEOUT_S = 600.0
TRIES = 2  # runs of a turn, if the first fails
TESTED = 2_000  # test samples that a model is tested on
LR, NETS = ("W1", "W2"), ("W3", "W4")

OURS = "anarchic"
COMPILING = "compilation included for those who compile while they train"
LONG = "anarchic simulate, 62,500 local steps, evaluations included"
SIMULATE = (
    *("--data", "mnist", "--labels-per-worker", "2", "--server-lr", "5", "--batch", "64"),
    *("--local-steps", "5", "--m", "5", "--workers", "10", "--rounds", "150"),
)


@dataclass(frozen=True)
class Contestant:
    """``setting`` is how it is run; the best setting of each contestant counts."""

    who: str
    setting: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: str = ""  # its name under .bench; empty: our own
    processes: int = 1
    on: tuple[str, ...] = (*LR, *NETS)  # the workloads that it runs

    @property
    def name(self) -> str:
        return f"{self.who}, {self.setting}" if self.setting else self.who

    @property
    def is_peer(self) -> bool:
        return bool(self.environment)

    def command(self) -> list[str]:
        python = sys.executable
        if self.environment:
            python = str(PLACE / self.environment / "bin" / "python")
        if self.processes == 1:
            return [python, "-m", f"benchmarks.peers.{self.module}"]
        torchrun = ["-m", "torch.distributed.run", "--standalone"]  # on a port that is free
        torchrun.append(f"--nproc_per_node={self.processes}")
        return [python, *torchrun, "-m", f"benchmarks.peers.{self.module}"]


# Numba is used for softmax regression alone, and its products are too small for two threads.
CONTESTANTS = (
    Contestant(OURS, "", "ours", ("compiled",)),
    Contestant(OURS, "without Numba", "ours", ("plain",), on=LR),
    Contestant("plain loop", "1 thread", "plain", ("1",)),
    Contestant("plain loop", "2 threads", "plain", ("2",)),
    Contestant("pfl-research", "1 process", "pfl_research", ("1",), "pfl"),
    Contestant("pfl-research", "2 threads", "pfl_research", ("2",), "pfl", on=NETS),
    Contestant("pfl-research", "2 processes", "pfl_research", ("1",), "pfl", processes=2),
    Contestant("FedJAX", "", "fedjax", environment="fedjax"),
    Contestant("APPFL", "1 thread", "appfl", ("1",), "appfl"),
    Contestant("APPFL", "2 threads", "appfl", ("2",), "appfl", on=NETS),
    Contestant("FLSim", "1 thread", "flsim", ("1",), "flsim"),
    Contestant("FLSim", "2 threads", "flsim", ("2",), "flsim", on=NETS),
    Contestant("Flower", "", "flower", environment="flower"),
)


@dataclass
class Found:
    """What the runs of one contestant gave; those that failed or are void are counted apart."""

    rates: list[float] = field(default_factory=list)
    warm_rates: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    missing: str = ""  # why it cannot run at all

    @property
    def hopeless(self) -> bool:
        return bool(self.missing) or (len(self.failed) >= TRIES and not self.rates)

    def absences(self, name: str) -> dict[str, str]:
        """What is not among the rates, and why."""
        if self.missing or not self.rates:
            return {name: self.missing or [*self.failed, *self.void, "it was not run"][0]}
        runs = len(self.rates) + len(self.failed) + len(self.void)
        lost = [whys for whys in (self.failed, self.void) if whys]
        return {f"{name}: {len(whys)} of {runs} runs": whys[-1] for whys in lost}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--rounds", type=int, help="fewer, to try it out: bounds mean nothing then")
    parser.add_argument("--contestants", nargs="+", help="words that their names start with")
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    met = True
    for name in settings.workloads:
        workload = WORKLOADS[name]
        record = Record(name.lower(), f"{name}: {workload.title}")
        try:
            prepare(workload)
        except AnarchicError as error:
            print(f"{name}: {error}")
            met = False
            continue
        race = Race(workload, settings.rounds or workload.rounds, record)
        race.run(settings.repeats or REPEATS[name], settings.contestants)
        met &= record.finish(settings.out) == 0
    return 0 if met else 1


class Race:
    """One workload, run by all in turns."""

    def __init__(self, workload: Workload, rounds: int, record: Record) -> None:
        self.workload, self.rounds, self.record = workload, rounds, record
        self.held = held(workload)
        self.start = accuracy(workload, self.held, self.held.start)
        self.found: dict[Contestant, Found] = {}
        self.whole: list[float] = []  # seconds of the whole command
        self.long: list[float] = []  # local steps per second of a longer run, evaluations included

    def run(self, repeats: int, only: list[str] | None) -> None:
        for contestant in CONTESTANTS:
            wanted = self.workload.name in contestant.on
            if wanted and (not only or contestant.name.startswith(tuple(only))):
                why_not = missing(contestant.environment) if contestant.is_peer else ""
                self.found[contestant] = Found(missing=why_not)
        for _ in range(repeats):
            if self.workload.name == "W1":
                self.whole.append(whole_command())
                self.long.append(long_run())
            for contestant, found in self.found.items():
                self.turn(contestant, found)
        self.note()

    def turn(self, contestant: Contestant, found: Found) -> None:
        """One run that ends well, if there is one in a few tries."""
        for _ in range(TRIES):
            if found.hopeless or self.once(contestant, found):
                return

    def once(self, contestant: Contestant, found: Found) -> bool:
        """Run a contestant once; whether it came to its end."""
        began = time.perf_counter()
        name = f"{self.workload.name} {contestant.name}"
        with tempfile.TemporaryDirectory(prefix="b", ignore_cleanup_errors=True) as folder:
            into = Path(folder) / "found.json"
            why_not = started(contestant, self.workload, self.rounds, into)
            if why_not:
                print(f"{name}: {why_not}", flush=True)
                found.failed.append(why_not)
                return False
            said = json.loads(into.read_text(encoding="utf-8"))
            with np.load(into.with_suffix(".npz")) as params:
                reached = accuracy(self.workload, self.held, dict(params))
        self.record.versions.update(said["versions"])
        took = time.perf_counter() - began
        print(
            f"{name}: {said['rate']:,.0f} local steps/s, accuracy {reached:.1%}, "
            f"ready after {said['ready_s']:.2f} s, {took:.0f} s in all",
            flush=True,
        )
        if reached < self.start + self.workload.least_gain and self.rounds == self.workload.rounds:
            found.void.append(f"void: it ended with a test accuracy of {reached:.1%}")
            return True
        found.rates.append(said["rate"])
        found.warm_rates.append(said["warm_rate"])
        found.accuracies.append(reached)
        found.ready_s.append(said["ready_s"])
        return True

    def note(self) -> None:
        """Write what was found into the record."""
        name, record = self.workload.name, self.record
        for contestant, found in self.found.items():
            record.absent |= found.absences(contestant.name)
            if found.rates:
                facts = {
                    "warm": median(found.warm_rates),
                    "accuracy": median(found.accuracies),
                    "ready_s": median(found.ready_s),
                }
                record.measure(
                    contestant.name, found.rates, unit="local steps/s", group=name, facts=facts
                )
        ours, plain = self.best(OURS), self.best("plain loop")
        peers = {c.who for c in self.found if c.is_peer}
        fastest = max((rate for who in peers if (rate := self.best(who))), default=None)
        for who in sorted(peers):
            record.ratio(f"{OURS} / {who}", over(ours, self.best(who)), group=name)
        record.ratio(f"{OURS} / plain loop", over(ours, plain), group=name)
        warm = max((rate for who in peers if (rate := self.best(who, warm=True))), default=None)
        if peers:
            record.ratio(
                f"{OURS} / fastest peer, both warm",
                over(self.best(OURS, warm=True), warm),
                group=name,
            )
        self.judge(ours, over(ours, fastest), over(ours, plain))

    def judge(self, ours: float | None, to_peers: float | None, to_plain: float | None) -> None:
        record, name = self.record, self.workload.name
        if name == "W1":
            record.measure(
                "anarchic simulate, start-up included",
                self.whole,
                unit="s",
                better="lower",
                group=name,
            )
            record.bound(f"W1: times the fastest peer, {COMPILING}", to_peers, least=8.0)
            record.bound("W1: local steps per second", ours, least=10_000.0)
            record.bound("W1: seconds of anarchic simulate in all", median(self.whole), most=4.0)
            record.measure(LONG, self.long, unit="1/s", group=name)
            fastest = over(ours, to_peers)
            record.bound(
                f"{LONG}: times the fastest peer", over(median(self.long), fastest), least=8.0
            )
        elif name == "W2":
            record.bound(f"W2: times the fastest peer, {COMPILING}", to_peers, least=5.0)
        elif name == "W3":
            record.bound("W3: times the plain loop", to_plain, least=1.0)
            record.bound(f"W3: times the fastest peer, {COMPILING}", to_peers, least=1.0)
        elif name == "W4":
            record.bound("W4: times the plain loop", to_plain, least=1.0)

    def best(self, who: str, *, warm: bool = False) -> float | None:
        """The median of a contestant's best setting."""
        rates = [
            median(found.warm_rates if warm else found.rates)
            for contestant, found in self.found.items()
            if contestant.who == who and found.rates
        ]
        return max(rates, default=None)


def over(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def started(contestant: Contestant, workload: Workload, rounds: int, into: Path) -> str:
    """Run the process of a contestant; the last line of its error, if it fails."""
    command = [*contestant.command(), workload.name, str(rounds), str(into), *contestant.arguments]
    paths = [str(ROOT)] if contestant.is_peer else [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "RAY_TMPDIR": str(into.parent),
    }
    said = into.with_suffix(".log")
    with said.open("w") as log:  # a file: daemons that outlive a peer would hold a pipe open
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=variables, stdout=log, stderr=log, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return f"it did not end within {TIMEOUT_S:.0f} s"
        except OSError as error:
            return str(error)
    if done.returncode != 0 or not into.exists():
        return last_line(said.read_text(encoding="utf-8", errors="replace"))
    return ""


def whole_command() -> float:
    """Seconds of ``anarchic simulate`` for W1, from the prompt to the prompt."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "anarchic", "simulate", *SIMULATE]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def long_run() -> float:
    """Local steps per second of ``simulate`` with W1's settings, in a run of seconds."""
    command = [sys.executable, "-m", "benchmarks.long_run"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(said.stdout.split()[0])


def accuracy(workload: Workload, dealt: Held, params: dict[str, Array]) -> float:
    """The share of test samples that a model gets right."""
    every = max(1, len(dealt.y_test) // TESTED)
    x, y = torch.from_numpy(dealt.x_test[::every]), torch.from_numpy(dealt.y_test[::every])
    with torch.no_grad():
        guess = net(workload, params)(x).argmax(1)
    return float((guess == y).float().mean())


if __name__ == "__main__":
    sys.exit(main())
