"""Runs that share a few threads: each has its turn, and one that hangs holds up nobody for long."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager
from math import inf

from anarchic.server.few_threads import FewThreads
from tests.waiting import until


@contextmanager
def few(at_once=1):
    threads = FewThreads("test", at_once)
    threads.start()
    with closing(threads):
        yield threads


def job_of(threads, piece):
    job = threads.work()
    job.start(piece)
    return job


def started(threads, work):
    """Jobs, started once the first thread is busy, so that their order is known."""
    gate = threading.Event()
    first = job_of(threads, lambda: gate.wait(5) and None)
    until(lambda: first.running)
    return gate, [job_of(threads, piece) for piece in work]


def test_a_job_with_much_to_do_is_behind_the_others_after_each_piece(monkeypatch):
    monkeypatch.setattr("anarchic.server.few_threads.LONG_S", 10.0)
    order = []

    def piece(name, times):
        order.append(name)
        return None if order.count(name) == times else 0.0

    with few() as threads:
        work = [lambda: piece("busy", 4), lambda: piece("quiet", 1)]
        gate, jobs = started(threads, work)
        gate.set()
        assert all(job.ended.wait(5) for job in jobs)
    assert order == ["busy", "quiet", "busy", "busy", "busy"]


def test_pieces_that_hang_hold_up_nobody_for_long_and_no_job_runs_twice_at_a_time():
    go_on, inside, overlaps, done = threading.Event(), [], [], threading.Event()

    def hangs():
        inside.append(1)
        overlaps.append(len(inside))
        go_on.wait(10)
        inside.pop()
        return None if len(overlaps) == 2 else inf

    with few() as threads:
        late = [lambda: go_on.wait(10) and None] * 4
        sick = [job_of(threads, piece) for piece in (hangs, *late)]
        job_of(threads, lambda: done.set())
        assert done.wait(5)
        sick[0].wake()  # while its piece hangs
        go_on.set()
        assert all(job.ended.wait(5) for job in sick)
    assert overlaps == [1, 1]


def test_as_many_pieces_are_done_at_once_as_was_said():
    both = threading.Barrier(2)
    with few(2) as threads:
        jobs = [job_of(threads, lambda: (both.wait(5), None)[1]) for _ in range(2)]
        assert all(job.ended.wait(5) for job in jobs)


def test_a_job_is_called_again_after_its_pause_or_an_error(monkeypatch):
    monkeypatch.setattr("anarchic.server.few_threads.FAILED_S", 0.01)
    calls = []

    def piece():
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("Nobody expected this.")
        return 0.01 if len(calls) < 4 else None

    with few() as threads:
        job = job_of(threads, piece)
        assert job.ended.wait(5)
    assert len(calls) == 4


def test_a_job_that_is_woken_during_a_piece_has_another_one():
    calls, began, go_on = [], threading.Event(), threading.Event()

    def piece():
        calls.append(1)
        began.set()
        go_on.wait(5)
        return inf if len(calls) == 1 else None

    with few() as threads:
        job = job_of(threads, piece)
        assert began.wait(5)
        job.wake()
        go_on.set()
        assert job.ended.wait(5)
    assert len(calls) == 2


def test_threads_end_with_the_server():
    def ours():
        return [each for each in threading.enumerate() if each.name.startswith("test")]

    with few() as threads:
        job_of(threads, lambda: None).finish(5)
        assert ours()
    until(lambda: not ours())


def test_two_wakes_in_a_row_find_two_threads():
    both, done = threading.Barrier(2), []

    def piece():
        both.wait(5)
        done.append(1)
        return inf

    with few(3) as threads:
        job_of(threads, lambda: None).finish(5)  # now one thread waits
        jobs = [threads.work() for _ in range(2)]
        for job in jobs:
            job.start(piece)
        until(lambda: len(done) == 2)


def test_a_job_that_never_started_is_finished_at_once():
    with few() as threads:
        began = time.monotonic()
        threads.work().finish(30)
        assert time.monotonic() - began < 5


def test_a_thread_that_cannot_be_started_is_started_later(monkeypatch):
    calls, start = [], threading.Thread.start

    def full(self):
        raise RuntimeError("can't start new thread")

    with few() as threads:
        monkeypatch.setattr(threading.Thread, "start", full)
        job = threads.work()
        job.start(lambda: calls.append(1))
        first = threads.work()
        first.start(lambda: calls.append(2))
        assert calls == []
        monkeypatch.setattr(threading.Thread, "start", start)
        other = threads.work()
        other.start(lambda: calls.append(3))
        until(lambda: sorted(calls) == [1, 2, 3])
