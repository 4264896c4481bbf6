import signal
import threading
import time

from anarchic.worker import WallClock


def test_a_sleep_ends():
    clock = WallClock()
    since = clock.elapsed_s()
    clock.sleep(0.05)
    clock.sleep(-1)
    assert 0.05 <= clock.elapsed_s() - since < 5
    assert abs(clock.now_s() - time.time()) < 5


def test_a_sleep_is_ended_by_another_thread():
    clock = WallClock()
    threading.Timer(0.05, clock.wake).start()
    since = clock.elapsed_s()
    clock.sleep(60)
    assert clock.elapsed_s() - since < 30


def test_a_sleep_is_ended_by_a_signal_handler():
    clock = WallClock()
    before = signal.signal(signal.SIGALRM, lambda *_: clock.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        since = clock.elapsed_s()
        clock.sleep(60)
        assert clock.elapsed_s() - since < 30
    finally:
        signal.signal(signal.SIGALRM, before)
