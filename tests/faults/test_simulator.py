"""200 seeds hold, a seed repeats exactly, and defects that are brought back are found."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.faults.disk import File, Write
from tests.faults.hub import Condition, Hub, Lock
from tests.faults.plan import plan_of
from tests.faults.report import Report
from tests.faults.reverted import reverting
from tests.faults.seeds import run_seed
from tests.faults.shrink import shrunk
from tests.faults.world import World

SEEDS = int(os.environ.get("ANARCHIC_FAULT_SEEDS", "200"))
GROUPS = 4  # tests, so that two cores share the work


@pytest.mark.tried(
    "crashes, bad disks, networks and operators from 200 seeds, in virtual time",
    before="46 of the first 120 seeds broke an invariant",
    now="every invariant holds",
)
@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_invariant_holds_for_every_seed(group):
    report = Report(SEEDS)
    for seed in range(group, SEEDS, GROUPS):
        report.add(run_seed(seed))
    assert not report.failed, report.text()
    assert report.checks["counted once"] > report.seeds


def test_a_seed_repeats_exactly():
    first, second = World(plan_of(7)).run(), World(plan_of(7)).run()
    assert first.history == second.history
    assert first.checks == second.checks


FOUND = [  # defect, faults that show it, invariant that it breaks
    ("lock-by-path", ["second_server"], "one server"),
    ("etag-by-version", ["restore"], "identity"),
    ("log-in-the-caller", ["full_log", "failing_disk"], ("threads", "progress")),
    ("health-without-the-store", ["full_disk"], "health"),
    ("any-version-published", ["hostile"], "finite"),
    ("no-sync", ["power_cut"], ("counted once", "order", "opens", "replay")),
    ("failed-writes-acknowledged", ["failing_disk"], "counted once"),
    ("folded-twice", ["kill"], ("order", "replay")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "only", "broken"), FOUND)
def test_a_defect_that_is_brought_back_is_found(defect, only, broken):
    for seed in range(20):
        found = run_seed(seed, defect, only).violation
        if found is not None:
            assert found.name in broken
            return
    pytest.fail(f"{defect} was not found")


def test_a_failing_history_becomes_short():
    plan = plan_of(0, only=["second_server"])
    with reverting("lock-by-path"):
        small, outcome = shrunk(plan)
    assert outcome.violation is not None
    assert [event.kind for event in small.events] == ["second_server"]
    assert len(outcome.history) < 8


def test_a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 2048)
    kept = set()
    for seed in range(200):
        descriptor = os.open(path, os.O_RDWR)
        os.pwrite(descriptor, b"b" * 1024, 0)
        file = File(descriptor, str(path), [Write(0, b"b" * 1024, b"a" * 1024, 2048)])
        file.cut(Random(seed))
        content = path.read_bytes()
        assert len(content) == 2048
        assert content[1024:] == b"a" * 1024
        kept.add((content[:512], content[512:1024]))
        path.write_bytes(b"a" * 2048)
        os.close(descriptor)
    assert len(kept) == 4  # both sectors, either, none


def test_tasks_take_turns_in_virtual_time():
    hub = Hub(Random(0))
    lock, seen = Condition(hub, Lock(hub)), []

    def waits():
        with lock:
            seen.append(("woken", lock.wait(5.0), hub.now))
            seen.append(("woken", lock.wait(5.0), hub.now))

    def wakes():
        hub.sleep(2.0)
        with lock:
            lock.notify()

    hub.spawn(hub.outside, waits, "waits")
    hub.spawn(hub.outside, wakes, "wakes")
    begin = hub.now
    hub.run_until(begin + 60)
    assert seen == [("woken", True, begin + 2.0), ("woken", False, begin + 7.0)]
