"""Few versions are kept of what is long ago, and finding out which costs the same all along."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import event

from anarchic.server.store import Store, open_store
from anarchic.server.thinning import Stored, superfluous
from tests.server.conftest import Opener
from tests.server.stored import led, next_version

PLENTY = 1 << 40


def run_of(versions: range, *, history: int, most_bytes: int = PLENTY, size: int = 1) -> list[int]:
    """Which versions are left after all of these were published, one after another."""
    stored: list[Stored] = []
    for version in versions:
        stored.append(Stored(version, size))
        gone = superfluous(stored, history=history, most_bytes=most_bytes)
        stored = [each for each in stored if each.version not in gone]
    return [each.version for each in stored]


def test_every_second_then_every_fourth_version_is_kept() -> None:
    assert run_of(range(9), history=4) == [0, 2, 4, 5, 6, 7, 8]
    left = run_of(range(1001), history=16)
    ages = [1000 - version for version in left]
    assert ages[-16:] == list(range(15, -1, -1))
    for first in (16, 32, 64, 128, 256):
        some = [age for age in ages if first <= age < 2 * first]
        assert 6 <= len(some) <= 10, some
    gaps = [old - new for old, new in pairwise(ages)]
    assert all(gap <= max(1, age // 8) for age, gap in zip(ages, gaps, strict=False))


@pytest.mark.slow
def test_the_number_kept_grows_with_the_logarithm() -> None:
    few, many = (len(run_of(range(n), history=16)) for n in (1_000, 32_000))
    assert few < 80
    assert many - few <= 5 * 10


def test_versions_that_were_skipped_are_no_gap_that_stays() -> None:
    left = run_of(range(0, 100_000, 17), history=4)
    assert len(left) < 4 + 4 * 16
    assert left[0] == 0
    assert left[-4:] == list(range(0, 100_000, 17))[-4:]


def test_bytes_bound_the_older_ones_and_never_the_newest() -> None:
    left = run_of(range(1001), history=4, most_bytes=100, size=10)
    assert len(left) == 10
    assert left[-4:] == [997, 998, 999, 1000]
    assert left[0] == 0
    ratios = [(1000 - new) / (1000 - old) for old, new in pairwise(left[:6])]
    assert min(ratios) > 0.15  # they stand apart by about the same factor in age
    assert run_of(range(1001), history=4, most_bytes=0, size=10) == [997, 998, 999, 1000]


def publish(store: Store, epoch: int, count: int) -> None:
    for _ in range(count):
        store.publish(next_version(store, epoch, []))


def versions_of(store: Store) -> list[int]:
    run = store.run()
    assert run is not None
    return [version for version in range(run.version + 1) if store.model(version) is not None]


def test_a_store_thins_its_versions_and_goes_on_after_a_restart(opened: Opener) -> None:
    store = opened(history=4)
    store.create({}, b"model 0", b"state 0")
    publish(store, led(store), 60)
    assert versions_of(store) == run_of(range(61), history=4)
    store.close()
    store = opened(history=4)
    publish(store, led(store), 60)
    assert versions_of(store) == run_of(range(121), history=4)


def test_every_nth_version_is_kept_for_ever_and_the_first_for_a_replay(opened: Opener) -> None:
    store = opened(history=2, history_bytes=0, keep_every=10, keep_payloads=True)
    store.create({}, b"model 0", b"state 0")
    epoch = led(store)
    publish(store, epoch, 25)
    for _ in range(4):  # not every number is published: 26, 29, 32, 35, 38 are
        run = store.run()
        assert run is not None
        version = run.version + 3
        store.publish(next_version(store, epoch, [], version=version, model=b"another model"))
    assert versions_of(store) == [0, 10, 20, 31, 34, 37]


def test_an_old_store_thins_as_it_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path / "run.db", history=100)
    store.create({}, b"model 0", b"state 0")
    publish(store, led(store), 80)
    store.close()
    store = open_store(tmp_path / "run.db", history=4)
    publish(store, led(store), 1)
    left = versions_of(store)
    store.close()
    assert len(left) < 4 + 3 * 5
    assert left[-4:] == [78, 79, 80, 81]


def test_a_publication_reads_no_stored_model(tmp_path: Path) -> None:
    """After the first one of a leader, it knows what is stored."""
    store = open_store(tmp_path / "run.db", history=4)
    store.create({}, b"model 0", b"state 0")
    epoch = led(store)
    publish(store, epoch, 3)
    said: list[str] = []
    with store.reading() as connection:
        engine = connection.engine

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        said.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        publish(store, epoch, 40)
    finally:
        event.remove(engine, "before_cursor_execute", note)
        store.close()
    assert any(statement.startswith("DELETE FROM models") for statement in said)
    assert not [each for each in said if each.startswith("SELECT") and "models" in each]


@pytest.mark.parametrize("fails", [True, False])
def test_a_publication_that_failed_is_not_counted(
    store: Store, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = led(store)
    publish(store, epoch, 40)
    if fails:
        with monkeypatch.context() as patched:
            patched.setattr(store, "_put_state", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                publish(store, epoch, 1)
    publish(store, epoch, 40)
    assert versions_of(store) == run_of(range(81), history=16)
