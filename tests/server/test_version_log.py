"""One line per version, and one for several that come fast."""

from __future__ import annotations

import asyncio
import io
import json

from anarchic.server.log import JsonLog
from anarchic.server.records import FoldedUpdate
from anarchic.server.version_log import VersionLog
from tests.server.live import serving, until
from tests.server.make import body
from tests.status_page import Hand


def heard(**settings):
    """A log of versions, its clock, and the lines so far."""
    lines, clock = [], Hand()
    log = VersionLog(lambda event, **facts: lines.append((event, facts)), 2, clock, **settings)
    return log, clock, lines


def updates(*facts):
    return [FoldedUpdate(seq, *each) for seq, each in enumerate(facts, 1)]


def test_a_version_has_a_line_with_what_it_is_made_of():
    log, clock, lines = heard()
    clock.now += 3.0
    log.published(6, 7, updates(("ann", 0, 0.5), ("bob", 4, None, 0.25), ("ann", 2, 0.25)))
    facts = {
        "version": 7, "updates": 3, "staleness_p50": 2, "staleness_max": 4, "loss": 0.375,
        "seconds": 3.0, "m": 2, "clipped": 1, "workers": 2, "who": {"ann": 2, "bob": 1},
    }  # fmt: skip
    assert lines == [("version", facts)]


def test_fast_versions_share_lines_and_none_is_left_out():
    log, clock, lines = heard()
    for version in range(1, 101):
        clock.now += 0.01
        log.published(version - 1, version, updates(("ann", 0, 1.0), ("bob", version % 3, None)))
    log.flush()
    log.flush()
    told = [facts for _, facts in lines]
    assert 4 <= len(told) <= 7
    ranges = [(facts.get("first", facts["version"]), facts["version"]) for facts in told]
    covered = [version for first, last in ranges for version in range(first, last + 1)]
    assert covered == list(range(1, 101))
    assert sum(facts["updates"] for facts in told) == 200
    assert abs(sum(facts["seconds"] for facts in told) - 1.0) < 0.01
    assert told[0]["who"] == {"ann": told[0]["updates"] // 2, "bob": told[0]["updates"] // 2}


def test_steps_that_were_published_together_are_one_range():
    log, clock, lines = heard()
    clock.now += 1.0
    log.published(4, 9, updates(("ann", 0, None)))
    assert (lines[0][1]["first"], lines[0][1]["version"]) == (5, 9)
    assert lines[0][1]["loss"] is None


def test_every_update_is_told_at_the_level_debug():
    log, clock, lines = heard(each=True)
    clock.now += 1.0
    log.published(0, 1, updates(("ann", 0, None), ("bob", 0, None)))
    assert [event for event, _ in lines] == ["version", "folded", "folded"]


def test_levels_leave_out_what_matters_less():
    stream = io.StringIO()
    log = JsonLog(stream, level="warning")
    log("version", version=1)
    log("clipped", worker="eve")
    log("http", level="INFO", message="hello")
    log("store_error", reason="full")
    log.flush()
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["level"]) for line in found] == [
        ("clipped", "warning"),
        ("store_error", "error"),
    ]


def test_text_lines_have_the_event_first_and_no_line_breaks_or_secrets():
    stream = io.StringIO()
    log = JsonLog(stream, form="text")
    log("version", version=7, loss=1 / 3, who={"ann": 2, "bob": 1}, missing=None)
    log("error", reason='two\nlines and "quotes"', token="ann.s3cret", odd=[1, {"a": object()}])
    log.flush()
    first, second = stream.getvalue().splitlines()
    assert first[20:] == " INFO    version version=7 loss=0.333333 who=ann:2,bob:1"
    assert second[20:].startswith(' ERROR   error reason="two\\nlines and \\"quotes\\""')
    assert "s3cret" not in second


def test_a_server_logs_its_versions(tmp_path):
    lines = []

    async def live():
        async with serving(tmp_path / "run.db", rules={"m": 2}) as (service, client):
            service.versions._log = lambda event, **facts: lines.append(facts)
            for worker in ("ann", "bob"):
                sent = body(worker, "1", loss=0.5)
                assert (await client.post("/v1/updates", content=sent)).status_code == 202
            await until(lambda: service.published.newest.version == 1)

    asyncio.run(live())
    assert [(line["version"], line["updates"], line["loss"]) for line in lines] == [(1, 2, 0.5)]
    assert lines[0]["who"] == {"ann": 1, "bob": 1}
