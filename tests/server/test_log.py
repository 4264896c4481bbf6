"""Log lines: what they hold, and that they cost the server nothing."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import threading
import warnings

import numpy as np

from anarchic.server.log import MOST_LINES, PER_SECOND, JsonLog, catching, never_raising


def lines(stream):
    return list(map(json.loads, stream.getvalue().splitlines()))


def test_a_line_is_an_object_without_secrets():
    stream = io.StringIO()
    log = JsonLog(stream)
    log("pushed", worker="ann", Token="ann.s3cret", set_cookie="s3cret", version=3)
    log("stopped", reason=ValueError("a\nb"))
    log.flush()
    first, second = lines(stream)
    assert first.pop("time") > 1e9
    hidden = {"Token": "***", "set_cookie": "***"}
    assert first == {"event": "pushed", "worker": "ann", "version": 3, **hidden}
    assert second["reason"] == "a\nb"  # on one line all the same
    assert "s3cret" not in stream.getvalue()


def test_whatever_is_logged_becomes_valid_json():
    class Unprintable:
        def __str__(self):
            raise RuntimeError

    stream = io.StringIO()
    log = JsonLog(stream)
    numbers = {"nan": np.float64("nan"), "inf": [1.0, float("-inf")], "deep": {"x": float("inf")}}
    log("numbers", **numbers)
    log("long", text="x" * 100_000)
    log("odd", value=Unprintable(), worker="ann")
    log("half", text="\ud800")
    log.flush()

    def refuse(constant):
        raise AssertionError(constant)

    found = [json.loads(text, parse_constant=refuse) for text in stream.getvalue().splitlines()]
    assert [line["event"] for line in found] == ["numbers", "long", "odd", "half"]
    assert (found[0]["nan"], found[0]["inf"], found[0]["deep"]) == (
        "nan",
        [1, "-inf"],
        {"x": "inf"},
    )
    assert len(found[1]["text"]) < 10_000


class Still:
    """All of it happens in one second."""

    def monotonic(self):
        return 7.0


def test_a_flood_of_one_kind_is_counted_and_hides_no_other():
    stream = io.StringIO()
    log = JsonLog(stream, Still())
    for _ in range(1000):
        log("http", level="WARNING", message="junk")
    log("http", level="ERROR", message="a bug")
    log("leads", epoch=1)
    log.flush()
    found = lines(stream)
    counted = [line for line in found if line["event"] == "log_limited"]
    assert [(line["kind"], line["events"]) for line in counted] == [
        ("http WARNING", 1000 - PER_SECOND)
    ]
    assert [line.get("message", "leads") for line in found if line not in counted] == [
        *["junk"] * PER_SECOND,
        "a bug",
        "leads",
    ]


class Disk(io.StringIO):
    full = True

    def write(self, text):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_lines_lost_on_a_full_disk_are_counted():
    disk = Disk()
    log = JsonLog(disk)
    for number in range(5):
        log("lost", number=number)
        log.flush()
    disk.full = False
    log("kept")
    log.flush()
    assert [(line["event"], line.get("lines")) for line in lines(disk)] == [
        ("log_dropped", 5),
        ("kept", None),
    ]


def test_a_reader_that_stops_holds_up_nobody():
    """Nobody reads the pipe, then somebody does; every line was written or counted."""
    reading, writing = os.pipe()
    total = 3 * MOST_LINES
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        log = JsonLog(stream)
        for number in range(total):
            log(f"event {number}", text="x" * 500)  # each of a kind of its own
        log.flush(0.05)  # gives up
        found = []
        while sum(line.get("lines", 1) for line in found) < total:
            found.append(json.loads(reader.readline()))
            if len(found) == MOST_LINES:
                log("last")
                total += 1
    assert MOST_LINES < len(found) < 2 * MOST_LINES
    assert any(line["event"] == "log_dropped" for line in found)
    assert sum(line.get("lines", 1) for line in found) == total  # none is counted twice either


def test_a_log_of_the_callers_own_may_fail():
    def broken(event, **facts):
        raise OSError("no")

    never_raising(broken)("event", fact=1)


def test_what_python_would_print_itself_is_logged():
    told, before = [], threading.excepthook

    def log(event, **facts):
        told.append((event, facts.get("message", facts.get("reason"))))

    with catching(log):
        logging.getLogger("uvicorn.error").warning("junk from %s", "ann")
        logging.getLogger("asyncio").error("out of descriptors")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", stacklevel=1)
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    assert told[:2] == [("http", "junk from ann"), ("python", "out of descriptors")]
    assert "UserWarning: old" in told[2][1]
    assert told[3] == ("thread_died", "ZeroDivisionError('division by zero')")
    assert threading.excepthook is before
    assert not logging.getLogger().handlers or all(
        type(handler).__module__ != "anarchic.server.log"
        for handler in logging.getLogger().handlers
    )
