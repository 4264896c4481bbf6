"""Real Chromium on the page /join, real servers, and Python workers in threads."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager

import numpy as np

from anarchic import wire
from anarchic.participation.work import ConstantSteps
from anarchic.server.hosting import create_run
from anarchic.server.replay import replay
from anarchic.server.store import open_store
from anarchic.worker import Worker, WorkPlan, digits_task
from tests.chaos.servers import ServerProcess

PATIENCE_S = 30.0
STEPS, RATE = 5, 0.2


def first_model(folder):
    """Softmax regression on the digits, all zeros."""
    folder.mkdir(exist_ok=True)
    layout = digits_task("digits:1/5").layout
    wire.save_model(folder / "model.safetensors", layout, np.zeros(layout.dim, np.float32))
    return folder / "model.safetensors"


@contextmanager
def joined_server(folder, *options, m=5):
    """A server with /join, of one run in ``folder/run.db``."""
    model = first_model(folder)
    words = ("--m", str(m), "--server-lr", str(STEPS), "--keep-payloads", "--join", *options)
    with _listening(ServerProcess(f"{folder}/run.db", model, folder / "log", *words)) as server:
        yield server


@contextmanager
def server_of_runs(folder, name):
    """A server with /join, of a directory of runs with one run."""
    model = first_model(folder)
    rules = {"m": 1, "server_lr": float(STEPS)}
    create_run(name, folder / "runs", model, rules=rules, keep_payloads=True)
    server = ServerProcess(f"{folder}/runs", model, folder / "log")
    words = ["--port", str(server.port), "--join", "--open-enrolment"]
    command = ["serve", "--store", server.store, *words]
    server._command = [sys.executable, "-m", "anarchic", *command]
    with _listening(server):
        yield server


@contextmanager
def _listening(server):
    with server:
        server.url = f"http://127.0.0.1:{server.port}"
        yield server


class Tab:
    """A page that shows /join, as a person sees and uses it."""

    def __init__(self, context, url):
        self.page, self.problems = context.new_page(), []
        self.name = None  # of its worker
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(url)
        self.name = self.page.input_value("#name")

    def _heard(self, message):
        # Chromium tells of every request that fails; those are what the tests are about.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def text(self, name):
        return self.page.text_content(f"#{name}")

    def number(self, name):
        return int(self.text(name))

    def until(self, true, timeout_s=PATIENCE_S):
        """Wait until ``true(tab)``; the policy forbids Playwright's own way, which is eval."""
        end = time.monotonic() + timeout_s
        while not true(self):
            shown = (self.text("state"), self.text("detail"), self.problems)
            assert time.monotonic() < end, f"it never became true: {shown}"
            self.page.wait_for_timeout(30)

    def choose(self, name, value):
        if not self.page.locator(f"#{name}").is_visible():
            self.page.locator("details", has=self.page.locator(f"#{name}")).locator(
                "summary"
            ).click()
        self.page.fill(f"#{name}", str(value))
        self.page.locator(f"#{name}").blur()

    def take_part(self, share=None, of=5, rest_s=0.05):
        """Choose as the Python workers do, and start."""
        self.prepare(share, of, rest_s)
        self.page.click("#start")

    def prepare(self, share=None, of=5, rest_s=0.05):
        """All but the start."""
        for name, value in {"local-steps": STEPS, "rate": RATE, "rest": rest_s}.items():
            self.choose(name, value)
        if share is not None:
            self.page.fill("#share-of", str(of))
            self.page.fill("#share-number", str(share))
            self.page.check("#share")

    def draw(self, strokes):
        box = self.page.locator("#pad").bounding_box()
        for stroke in strokes:
            points = [
                (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke
            ]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in points[1:]:
                self.page.mouse.move(*point)
            self.page.mouse.up()

    def kept(self):
        """The ids of the updates that wait in the browser."""
        return self.page.evaluate(
            """() => new Promise((resolve) => {
              const asked = indexedDB.open("anarchic-join", 1);
              asked.onsuccess = () => {
                const updates = asked.result.transaction("updates").objectStore("updates");
                const keys = updates.getAllKeys();
                keys.onsuccess = () => { asked.result.close(); resolve(keys.result); };
              };
            })"""
        )


def python_worker(url, number, of=5):
    """A worker of the SDK in a thread, until the run has ended."""

    def work():
        plan = WorkPlan(steps=ConstantSteps(STEPS), local_lr=RATE)
        with Worker(url, name=f"python-{number}") as worker:
            worker.run(digits_task(f"digits:{number}/{of}"), plan)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def rows_of(path):
    """The trace in a store whose server has stopped, and whether its replay is equal."""
    with closing(open_store(path, keep_payloads=True)) as store:
        rows, equal = list(store.trace()), replay(store).equal
    assert max(Counter((row.worker, row.id) for row in rows).values(), default=0) <= 1
    orders = Counter(row.order for row in rows if row.order is not None)
    assert max(orders.values(), default=0) <= 1
    return rows, equal


def accuracy_of(path, version, data):
    """Of one version in a store."""
    with closing(open_store(path, keep_payloads=True)) as store:
        layout, snapshot, _ = wire.decode_snapshot(store.model(version))
    model = layout.split(snapshot.params)
    outputs = data.x_test.reshape(len(data.x_test), -1) @ model["weight"].T + model["bias"]
    return float((outputs.argmax(axis=1) == data.y_test).mean())
