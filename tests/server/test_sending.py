"""Models that are being sent: fair to those who read them, and bounded."""

from __future__ import annotations

import pytest

from anarchic.server import sending as module
from anarchic.server.published import PublishedModel
from anarchic.server.refusals import Refusal
from anarchic.server.sending import Sending


@pytest.fixture
def stopped():
    return []


def version(number):
    return PublishedModel("run", number, b"x" * 100, None, frozenset(), None)


def sending(versions=3, per_key=4):
    return Sending(per_key, versions, model_bytes=module.VERSIONS_BYTES)


def read(many, key, number, stopped):
    return many.begin(key, version(number), lambda: stopped.append((key, number)))


def test_the_models_of_one_puller_are_limited(stopped):
    many = sending(per_key=2)
    ends = [read(many, "ann", 1, stopped) for _ in range(2)]
    with pytest.raises(Refusal, match="2 models are being sent to you"):
        read(many, "ann", 1, stopped)
    read(many, "bob", 1, stopped)()
    ends[0]()
    read(many, "ann", 1, stopped)
    assert stopped == []


def test_who_reads_the_most_versions_loses_its_oldest_to_who_reads_fewer(stopped):
    many = sending(versions=3)
    for number in (1, 2, 3):
        read(many, "slow", number, stopped)
    assert many.newest("ann", version(4)).version == 4
    assert stopped == [("slow", 1)]
    read(many, "ann", 4, stopped)


def test_among_equals_nobody_is_stopped_and_a_version_on_its_way_is_shared(stopped):
    many = sending(versions=3)
    ends = [read(many, name, number, stopped) for number, name in enumerate("abc", 1)]
    assert many.newest("d", version(9)).version == 3
    with pytest.raises(Refusal, match="Too many versions"):
        read(many, "d", 9, stopped)
    assert stopped == []
    for end in ends:
        end()
    assert many.newest("d", version(9)).version == 9


def test_slow_readers_of_a_run_with_many_versions_all_finish(stopped):
    many, finished, reading = sending(versions=16), 0, []
    for number in range(200):
        key = f"w{number}"
        reading.append(many.begin(key, many.newest(key, version(number)), stopped.append))
        if len(reading) > 20:  # each read lasts for 20 versions
            reading.pop(0)()
            finished += 1
    assert (finished, stopped) == (180, [])


def test_readers_of_small_models_may_have_many_versions(stopped):
    many = Sending(4, 3, model_bytes=1 << 20)
    for number in range(64):
        read(many, f"w{number}", number, stopped)
    assert many.newest("ann", version(99)).version == 63


def test_the_memory_of_all_readers_is_bounded(stopped, monkeypatch):
    monkeypatch.setattr(module, "READERS_BYTES", 1000)
    many = sending()
    ends = [read(many, key, 1, stopped) for key in "aaaabbbbcc"]  # 100 bytes each
    ends.append(read(many, "d", 1, stopped))
    assert stopped == [("a", 1)]
    for end in ends:
        end()
    assert not many._readers
    assert not many._now
