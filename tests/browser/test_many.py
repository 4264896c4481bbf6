"""Ten thousand workers: what a frame of the page costs."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager

import uvicorn

from anarchic.report.view import listening, view_app
from anarchic.server.picture import StorePictures
from anarchic.server.store import open_store
from anarchic.theory.panel import panel
from tests.browser.many import fill
from tests.server.make import begun

FRAME_MS = 16.0
WATCHED_S = 12


@contextmanager
def viewing(make):
    """The page of `anarchic view`, in a thread of this process; its address."""
    with listening(0) as socket:
        config = uvicorn.Config(view_app(make), log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)


def test_ten_thousand_workers_stay_within_a_frame(tabs, tmp_path):
    with closing(open_store(tmp_path / "run.db")) as store:
        begun(store, m=10)
        fill(store, workers=10_000, updates=30_000, m=10, now_s=time.time())
        pictures, turn = StorePictures(store, theory=panel), iter(range(10_000))

        def make():  # every part changes with every picture, as in a busy run
            pictures._window.rows["end_s"] += 0.7 * next(turn)
            return pictures.make()

        with viewing(make) as address:
            tab = tabs()
            tab.page.goto(address)
            tab.page.get_by_role("region", name="Workers").wait_for(timeout=20_000)
            tab.page.wait_for_timeout(3_000)  # the first drawing makes what later ones change
            tab.page.evaluate("performance.clearMeasures()")
            tab.page.wait_for_timeout(1000 * WATCHED_S)
            spent = tab.page.evaluate(
                "performance.getEntriesByType('measure').map(each => each.duration)"
            )
            assert tab.page.locator(".names li").count() == 40
            assert tab.problems == []
    assert len(spent) > 20
    spent.sort()
    assert spent[int(0.95 * len(spent))] < FRAME_MS, spent[-10:]
