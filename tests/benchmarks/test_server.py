"""What is made of the turns of the servers under load, and who is ended afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
from benchmarks.page import grid
from benchmarks.peers import load_turns
from benchmarks.peers.load_race import Contestant, Found, note, race
from benchmarks.peers.load_turns import Turns, rate
from benchmarks.record import Record

OURS, SLOW, QUICK = (
    Contestant("anarchic", "load_ours", 1.0),
    Contestant("Slow", "load_slow", 1.0, "slow"),
    Contestant("Quick", "load_quick", 1.0, "quick"),
)


def test_a_rate_ends_when_the_last_worker_is_done() -> None:
    # A turn of 4 s: one worker was done after 4.5 s, the other after 5 s.
    assert rate([(2.0, 1), (2.5, 1), (4.5, 1), (5.0, 1)]) == pytest.approx(4 / 5)
    assert rate([(6.0, 2), (12.5, 2)]) == pytest.approx(4 / 12.5)  # rounds of two


def test_a_turn_is_waited_for_and_its_moments_are_kept(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    assert not turns.on
    worker = (
        "import sys; from pathlib import Path; from benchmarks.peers.load_turns import Turns\n"
        "import time; turns = Turns(Path(sys.argv[1])); turns.arrive()\n"
        "while True: turns.wait(); time.sleep(0.02); turns.count(1)"
    )
    process = subprocess.Popen([sys.executable, "-c", worker, str(tmp_path)])
    try:
        turns.gather(1, [])
        moments = turns.take(0.3, 1, [])
    finally:
        process.kill()
        process.wait()
    assert len(moments) > 1
    assert [when >= 0.3 for when, _ in moments].count(True) == 1  # then it waited
    assert 2 < rate(moments) < 50  # each takes 0.02 s, at least


def test_a_worker_that_is_idle_when_a_turn_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_turns, "PATIENCE_S", 20.0)
    turns = Turns(tmp_path)

    def work() -> None:
        turns.wait()
        turns.count(1)
        while turns.on:
            time.sleep(0.001)
        turns.wait()

    worker = Thread(target=work, daemon=True)
    worker.start()
    (_, first), (ended, nothing) = Turns(tmp_path).take(0.2, 1, [])
    assert (first, nothing) == (1, 0)
    assert ended >= 0.2
    (tmp_path / "until").write_text(str(time.monotonic() + 60))  # the next turn releases it
    worker.join()


def test_ours_is_held_against_the_fastest() -> None:
    record = Record("w6", "W6")
    note(
        record,
        {
            OURS: Found([20.0, 30.0, 40.0]),
            SLOW: Found([0.3, 0.3, 0.4]),
            QUICK: Found([1.0, 2.0, 3.0]),
        },
    )
    (first, *_) = record.measures
    assert (first.lowest, first.median, first.highest, first.unit) == (20.0, 30.0, 40.0, "1/s")
    assert [r.value for r in record.ratios] == pytest.approx([100.0, 15.0, 15.0])
    assert record.ratios[-1].name.endswith("anarchic / fastest peer")
    assert record.met


def test_what_is_not_there_is_noted_and_no_bound_is_met_without_it() -> None:
    record = Record("w6", "W6")
    note(record, {OURS: Found([20.0]), SLOW: Found(why_not="not installed: make bench-peers")})
    assert record.absent == {"4 MB updates, 2 workers, Slow": "not installed: make bench-peers"}
    assert not record.met
    assert "Slow | not measured: not installed" in grid(record)


class Scripted(Contestant):
    """A contestant whose module is the program itself."""

    def command(self, folder: Path) -> list[str]:
        return [sys.executable, "-c", self.module, str(folder)]


TAKES_TURNS = """
import json, subprocess, sys
left = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(json.dumps({"versions": {"left": str(left.pid)}}), flush=True)
for line in sys.stdin:
    print(json.dumps({"rate": 5 * float(line)}), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.slow
def test_one_that_fails_stops_nobody_and_nothing_is_left_behind() -> None:
    record = Record("w6", "W6")
    race(
        record,
        (
            Scripted("anarchic", TAKES_TURNS, 8.0),
            Scripted("Broken", "raise SystemExit('no such model')", 1.0),
            Scripted("Silent", "print('hello')", 1.0),
            Scripted("Slow", TAKES_TURNS, 0.2),
        ),
    )
    assert [(m.group[25:], m.median, m.repeats) for m in record.measures] == [
        ("anarchic", 40.0, 3),
        ("Slow", 1.0, 3),
    ]
    assert record.absent["4 MB updates, 2 workers, Broken"] == "no such model"
    assert "4 MB updates, 2 workers, Silent" in record.absent
    assert record.ratios[-1].value == 40.0
    command = Path("/proc", record.versions["left"], "cmdline")
    assert not command.exists() or not command.read_bytes()  # ended, or not yet buried
