"""Waiting for what another process or thread does."""

import time


def until(true, timeout_s=30.0):
    """Wait until something has become true."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)
