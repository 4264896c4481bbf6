"""Run a part of the league in many processes, and join their results as they come.

    ANARCHIC_DATA=DIR PYTHONPATH=src python experiments/league/spread.py --task cnn --device cuda \\
        --processes 12 --stop-after 540 --out DIR

Each process takes some rules under one kind of arrivals: it searches their rates and then runs
them with the best, first with one skew, then with the other. It works on a copy of this folder;
``--out`` gets one results.jsonl with what the folder had and what all of them found, every
``JOIN_S`` seconds and at the end. Called again with these results in the folder, it goes on. It
needs Python, NumPy, safetensors and, for the CNN, PyTorch. Results are taken over with

    python -m anarchic.study.join experiments/league/results.jsonl DIR/results.jsonl
"""

from __future__ import annotations

import argparse
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from anarchic.study import Flags, Study
from anarchic.study.batch import train_batch
from anarchic.study.find import beside, sibling
from anarchic.study.flags import paths
from anarchic.study.join import join
from anarchic.study.reproduce import jobs
from anarchic.study.results import FILE, add_results

HERE = Path(__file__).parent
JOIN_S = 20.0
GRACE_S = 20.0  # for processes to end by themselves
rules = beside(__file__, "rules")


def parts(arrivals: Sequence[str], processes: int) -> list[tuple[str, list[str]]]:
    """What each process does: a kind of arrivals, and rules.

    A rule that steps with every update makes most work, so these are dealt first.
    """
    groups = max(1, processes // len(arrivals))
    order = sorted(rules.RULES, key=lambda rule: rule not in rules.EVERY_UPDATE)
    return [(each, order[first::groups]) for each in arrivals for first in range(groups)]


def work(asked: argparse.Namespace, arrivals: str, names: list[str]) -> None:
    """What one process does, in its own copy of the folder."""
    end, held = time.monotonic() + asked.stop_after, []
    skews = dict.fromkeys(
        cell.columns["skew"] for cell in sibling(__file__, HERE.name).cells
        if cell.task == f"{asked.task}-search"
    )  # fmt: skip
    for skew in skews:
        for task in (f"{asked.task}-search", asked.task):
            study = sibling(__file__, HERE.name)  # again: now it has the cells that were chosen
            held.append(study)  # and so its data
            part = only(study, task, {"skew": (skew,), "arrivals": (arrivals,), "rule": names})
            if not part.cells or not train(part, asked, end):
                return


def train(part: Study, asked: argparse.Namespace, end: float) -> bool:
    """Train what is missing; False where the time was over before it was done.

    No run has a directory: checkpoints of hundreds of runs at once fill a disk. Nor are there
    graphs: to record them takes longer than runs this short.
    """
    flags = Flags(device=asked.device, resume=True, graphs=False)
    where = paths(part, flags)
    todo = jobs(part, flags, where)
    most = asked.at_once or max(part.at_once.get(task, 1) for task in part.tasks)
    for first in range(0, len(todo), most):
        batch, left = todo[first : first + most], end - time.monotonic()
        done = [] if left <= 0 else train_batch(batch, stop_after_s=left)
        add_results(where.results, [result for _, result in done])
        sys.stdout.write(
            f"{part.tasks[0]}: {first + len(done)} of {len(todo)}, {left:.0f} s left\n"
        )
        sys.stdout.flush()
        if len(done) < len(batch):
            return False
    return True


def only(study: Study, task: str, own: dict) -> Study:
    """The study with some of its cells."""
    kept = [
        cell
        for cell in study.cells
        if cell.task == task and all(cell.columns[name] in own[name] for name in own)
    ]
    return replace(study, cells=kept)


def unpacked(folder: Path, into: Path) -> Path:
    """The data with CIFAR-10 unpacked once, not by every process."""
    into.mkdir(parents=True)
    for each in folder.iterdir():
        if each.name != "cifar10":
            (into / each.name).symlink_to(each.resolve())
    with ThreadPoolExecutor(6) as pool:
        packed = folder.glob("cifar10/**/*.xz")
        list(pool.map(lambda each: _unpack(each, into / each.relative_to(folder)), packed))
    for plain in folder.glob("cifar10/**/*.bin"):
        target = into / plain.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(plain.resolve())
    return into


def _unpack(packed: Path, into: Path) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(packed) as source, into.with_suffix("").open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def spread(asked: argparse.Namespace) -> int:
    """Start the processes, join what they find, and stop them in time."""
    begun, scratch = time.monotonic(), Path(tempfile.mkdtemp(prefix="league-"))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if asked.task == "cnn" and "ANARCHIC_DATA" in env:
        env["ANARCHIC_DATA"] = str(unpacked(Path(env["ANARCHIC_DATA"]), scratch / "data"))
    asked.stop_after -= time.monotonic() - begun
    kinds = dict.fromkeys(c.columns["arrivals"] for c in sibling(__file__, HERE.name).cells)
    running = {
        scratch / str(number): start(scratch / str(number), asked, part, env)
        for number, part in enumerate(parts(list(kinds), asked.processes))
    }
    try:
        watch(running, asked)
    finally:
        for each in running.values():
            each.kill()
            each.wait()
        _join(running, asked)
    shutil.rmtree(scratch)
    return max(abs(each.returncode) for each in running.values())


def start(
    folder: Path, asked: argparse.Namespace, part: tuple[str, list[str]], env: dict[str, str]
) -> subprocess.Popen:
    """A process with a copy of this folder."""
    shutil.copytree(HERE, folder / HERE.name)
    arrivals, names = part
    command = [
        *(sys.executable, str(folder / HERE.name / "spread.py"), "--task", asked.task),
        *("--device", asked.device, "--stop-after", str(max(1.0, asked.stop_after))),
        *(("--at-once", str(asked.at_once)) if asked.at_once else ()),
        *("--part", arrivals, *names),
    ]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log)


def watch(running: Mapping[Path, subprocess.Popen], asked: argparse.Namespace) -> None:
    """Join what there is, now and then, until all have ended or should have."""
    begun = time.monotonic()
    while time.monotonic() - begun < asked.stop_after + GRACE_S:
        _wait(list(running.values()), JOIN_S)
        _join(running, asked)
        if all(each.poll() is not None for each in running.values()):
            return


def _join(running: Mapping[Path, subprocess.Popen], asked: argparse.Namespace) -> None:
    """Results and logs of all so far."""
    asked.out.mkdir(parents=True, exist_ok=True)
    total = join(asked.out / FILE, [folder / HERE.name / FILE for folder in running])
    said = {folder.name: (folder / "log").read_text(errors="replace") for folder in running}
    (asked.out / "logs.txt").write_text("\n".join(f"{n}:\n{text}" for n, text in said.items()))
    last = (f"{name}: {(text.splitlines() or [''])[-1]}" for name, text in said.items())
    sys.stdout.write(f"{total} results\n" + "".join(f"  {line}\n" for line in last))
    sys.stdout.flush()


def _wait(running: Sequence[subprocess.Popen], seconds: float) -> None:
    """Until all have ended, or for this many seconds."""
    end = time.monotonic() + seconds
    for each in running:
        try:
            each.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return


def asked_for(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=("lr", "text", "cnn"), required=True)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--processes", type=int, default=12, help="in multiples of four")
    parser.add_argument("--stop-after", type=float, default=540.0, help="seconds")
    parser.add_argument("--at-once", type=int, help="runs trained as one batch")
    parser.add_argument("--out", type=Path, default=Path("runs/league"), help="for results.jsonl")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)  # for one process
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = asked_for()
    if given.part:
        work(given, given.part[0], given.part[1:])
    else:
        sys.exit(spread(given))
