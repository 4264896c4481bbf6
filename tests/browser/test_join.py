"""Workers in real browsers: beside Python workers, leaving, offline, and against a hostile page."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest

from anarchic import Update, wire
from anarchic.data.digits import load_digits
from anarchic.server.tokens import add_token
from anarchic.worker import digits_task
from tests.browser.joining import (
    Tab,
    accuracy_of,
    joined_server,
    python_worker,
    rows_of,
    server_of_runs,
)
from tests.page.gradients import check_gradients
from tests.page.javascript import browser as in_browser
from tests.page.strokes import STROKES

pytestmark = pytest.mark.slow
VERSIONS = 25


@pytest.fixture
def context(browser):
    made = browser.new_context(viewport={"width": 1000, "height": 900})
    yield made
    made.close()


def test_three_tabs_and_two_python_workers_learn_what_five_python_workers_learn(context, tmp_path):
    options = ("--open-enrolment", "--max-versions", str(VERSIONS))
    mixed, python = tmp_path / "mixed", tmp_path / "python"
    with joined_server(mixed, *options) as one, joined_server(python, *options) as other:
        five = [python_worker(other.url, number) for number in range(1, 6)]
        tabs = [Tab(context, f"{one.url}/join") for _ in range(3)]
        names = {tab.name for tab in tabs}
        check_gradients(in_browser(tabs[0].page))
        for number, tab in enumerate(tabs, 1):
            tab.prepare(number)
        for tab in tabs:
            tab.page.click("#start")
        two = [python_worker(one.url, number) for number in (4, 5)]
        for tab in tabs:
            tab.until(lambda tab: tab.text("state") == "The run has ended")
        for thread in five + two:
            thread.join(30)
        accepted = sum(tab.number("accepted") for tab in tabs)
        problems = [problem for tab in tabs for problem in tab.problems]
        assert [server.stop() for server in (one, other)] == [0, 0]
    assert problems == []
    rows, equal = rows_of(mixed / "run.db")
    assert equal
    assert {row.worker for row in rows} == {"python-4", "python-5", *names}
    assert len(names) == 3
    stored = Counter(row.worker for row in rows)
    assert sum(stored[name] for name in names) == accepted  # a tab may send what another made
    data = load_digits()
    ours, theirs = (accuracy_of(f / "run.db", VERSIONS, data) for f in (mixed, python))
    assert theirs > 0.85
    assert ours >= theirs - 0.03  # that of five Python workers, or better


def test_a_finished_update_counts_once_though_its_tab_is_closed_or_offline(browser, tmp_path):
    one, two = browser.new_context(), browser.new_context()
    with joined_server(tmp_path, "--open-enrolment", m=2) as server:
        first = Tab(one, f"{server.url}/join")
        kept = close_before_the_answer(one, first)
        second = Tab(one, f"{server.url}/join")
        close_in_mid_visit(second)
        third, roaming = (Tab(context, f"{server.url}/join") for context in (one, two))
        roaming.take_part(1, rest_s=0.2)
        kept += go_offline_and_return(two, roaming)
        third.until(lambda tab: tab.number("accepted") == 1 and not tab.number("waiting"))
        roaming.page.click("#start")
        roaming.until(lambda tab: tab.text("state") == "Paused" and not tab.number("waiting"))
        heard = roaming.number("accepted")
        assert third.kept() == roaming.kept() == []
        assert first.problems + second.problems + third.problems + roaming.problems == []
        assert server.stop() == 0
    rows, equal = rows_of(tmp_path / "run.db")  # which looks for updates that count twice
    assert equal
    assert set(kept) <= {row.id for row in rows}
    stored = Counter(row.worker for row in rows)
    assert stored[first.name] == 1
    assert stored[roaming.name] == heard
    assert stored.keys() <= {first.name, second.name, roaming.name}


def close_before_the_answer(context, tab):
    """The server gets the update, the tab never hears of it; returns the ids that are kept."""
    reached = []

    def deliver(route):
        reached.append(route.fetch().status)  # and the answer goes nowhere

    context.route("**/v1/updates", deliver)
    tab.take_part(1)
    tab.until(lambda tab: reached)
    kept = tab.kept()
    assert (reached, len(kept), tab.number("accepted")) == ([202], 1, 0)
    tab.page.close()
    context.unroute("**/v1/updates")
    return kept


def close_in_mid_visit(tab):
    tab.choose("local-steps", 1000)
    tab.choose("rate", 0.001)
    tab.page.check("#share")
    tab.page.click("#start")
    tab.until(lambda tab: tab.text("state") == "Training")
    tab.page.close()


def go_offline_and_return(context, tab):
    """It goes on without the network, up to a few updates; returns the ids that it kept then."""
    tab.until(lambda tab: tab.number("accepted") >= 2)
    context.set_offline(True)
    tab.until(lambda tab: tab.text("state") == "Offline" and tab.number("waiting") == 4)
    kept, accepted = tab.kept(), tab.number("accepted")
    tab.page.wait_for_timeout(500)
    assert (tab.kept(), tab.number("accepted")) == (kept, accepted)
    context.set_offline(False)
    tab.until(lambda tab: tab.number("accepted") >= accepted + 4)
    return kept


HOSTILE = """<!doctype html><title>Hostile</title><form id="form" method="post" enctype="text/plain"
action="{url}/v1/updates" target="frame"><input name="a" value="b"></form>
<iframe name="frame"></iframe><iframe id="join" src="{url}/join"></iframe>"""
ATTEMPTS = """async ({ url, token, body }) => {
  const bytes = Uint8Array.from(body);
  const proof = { Authorization: `Bearer ${token}` };
  const type = { "Content-Type": "application/octet-stream" };
  const send = (options) => fetch(`${url}/v1/updates`, { method: "POST", body: bytes, ...options })
    .then((answer) => `${answer.type} ${answer.status}`, (error) => error.name);
  const told = [
    await send({ headers: { ...proof, ...type } }),
    await send({ headers: { ...proof, ...type }, credentials: "include" }),
    await send({ headers: type }),
    await send({ mode: "no-cors" }),
    await send({ mode: "no-cors", body: new Blob([bytes], { type: "text/plain" }) }),
    await fetch(`${url}/v1/model`, { headers: proof }).then(() => "read", (error) => error.name),
    await fetch(`${url}/v1/model`).then(() => "read", (error) => error.name),
    await import(`${url}/join/wire.js`).then(() => "read", (error) => error.name),
  ];
  navigator.sendBeacon(`${url}/v1/updates`, bytes);
  document.getElementById("form").submit();
  try { told.push(document.getElementById("join").contentWindow.sessionStorage.length); }
  catch (error) { told.push(error.name); }
  const opened = window.open(`${url}/join`);
  await new Promise((resolve) => setTimeout(resolve, 500));
  try { told.push(opened.sessionStorage.length); } catch (error) { told.push(error.name); }
  return told;
}"""


def elsewhere(text):
    """A server of another origin, with one page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def update_of(layout, id):
    direction = np.full(layout.dim, 0.5, np.float32)
    made = Update("ann", 0, local_steps=1, local_lr=0.1, direction=direction, id=id)
    return wire.encode_update(layout, made, worker="eve")


def test_a_page_of_another_origin_cannot_push_with_somebodys_token(context, tmp_path):
    layout = digits_task("digits:1/5").layout
    token = add_token(tmp_path / "run.db", "ann")
    with joined_server(tmp_path, "--open-enrolment", m=1) as server:
        ann = Tab(context, f"{server.url}/join")
        ann.choose("token", token)
        ann.page.get_by_role("button", name="Use it").click()
        ann.take_part(1)
        ann.until(lambda tab: tab.number("accepted") >= 1)
        ann.page.click("#start")
        ann.until(lambda tab: tab.text("state") == "Paused" and not tab.number("waiting"))
        mine = ann.number("accepted")
        where = ann.page.evaluate("[location.href, localStorage.length, document.cookie]")
        assert where == [f"{server.url}/join", 0, ""]  # the token is in the tab's own memory only
        other = elsewhere(HOSTILE.format(url=server.url))
        try:
            evil = context.new_page()
            evil.goto(f"http://127.0.0.1:{other.server_port}/")
            given = {"url": server.url, "token": token, "body": list(update_of(layout, "evil"))}
            told = evil.evaluate(ATTEMPTS, given)
        finally:
            other.shutdown()
            other.server_close()
        assert told[:3] == ["TypeError"] * 3  # the browser asked first, and was refused
        # Sent unasked, and refused by the server; that it answered is kept from the page.
        assert told[3:8] == ["TypeError"] * 5
        assert told[8:] == ["SecurityError"] * 2
        headers = {"authorization": f"Bearer {token}", "content-type": "application/octet-stream"}
        body = update_of(layout, "fair")  # the same, but from a program: nothing else is wrong
        answer = httpx.post(f"{server.url}/v1/updates", headers=headers, content=body)
        assert answer.status_code == 202
        assert ann.problems == []
        assert server.stop() == 0
        log = server.text()
    assert "foreign_origin" in log
    assert token.partition(".")[2] not in log
    rows, equal = rows_of(tmp_path / "run.db")
    assert equal
    assert Counter(row.worker for row in rows) == {"ann": mine + 1}
    assert "evil" not in {row.id for row in rows}


def test_a_drawn_digit_is_trained_on(context, tmp_path):
    with server_of_runs(tmp_path, "pens") as server:
        tab = Tab(context, f"{server.url}/v1/runs/pens/join")
        tab.until(lambda tab: tab.text("guess") == "The model reads what you draw.")
        tab.page.click("#start")
        tab.until(lambda tab: tab.text("state") == "No digits yet")
        tab.draw(STROKES[7])
        tab.until(
            lambda tab: tab.text("guess") == "The model reads a 0 (10 %)."
        )  # it knows nothing
        tab.page.get_by_role("button", name="7", exact=True).click()
        tab.until(lambda tab: tab.text("right") == "1 of 1" and tab.number("accepted") >= 3)
        tab.draw([[[x + 0.05, y] for x, y in stroke] for stroke in STROKES[7]])
        tab.until(lambda tab: tab.text("guess").startswith("The model reads a 7"))
        rests_while_hidden(tab)
        tab.page.click("#start")
        tab.until(lambda tab: tab.text("state") == "Paused" and not tab.number("waiting"))
        accepted = tab.number("accepted")
        tab.page.click("#leave")
        assert tab.text("state") == "You have left"
        assert tab.text("detail").startswith("Nothing waits to be sent.")
        assert not tab.page.locator("#start").is_visible()
        assert tab.page.locator("button:enabled").count() == 0
        assert tab.problems == []
        assert server.stop() == 0
    rows, equal = rows_of(tmp_path / "runs" / "pens.db")
    assert equal
    assert len(rows) == accepted
    assert {row.samples for row in rows} == {1}


HOLDS = """async (load) => {
  const { Outbox } = await load("outbox.js");
  const [one, other] = [await Outbox.open("holds"), await Outbox.open("holds")];
  const now = Date.now;
  await one.put({ id: "a" });
  const held = await other.take(() => true);
  Date.now = () => now() + 86_400_000;
  await one.put({ id: "a" });
  Date.now = now; // set back by a day
  const free = await other.take(() => true);
  return [held, free?.id];
}"""


def test_a_hold_ends_though_the_clock_is_set_back(context, tmp_path):
    with joined_server(tmp_path, "--open-enrolment") as server:
        tab = Tab(context, f"{server.url}/join")
        assert in_browser(tab.page)(HOLDS) == [None, "a"]


def test_the_reason_for_stopping_stays_to_be_read(context, tmp_path):
    answer = {"status": 404, "json": {"error": "not_found", "message": "Gone."}}
    with joined_server(tmp_path, "--open-enrolment") as server:
        tab = Tab(context, f"{server.url}/join")
        tab.until(lambda tab: tab.text("version") == "0")
        context.route("**/v1/model", lambda route: route.fulfill(**answer))
        tab.page.click("#start")
        tab.until(lambda tab: tab.text("state") == "Stopped")
        tab.page.wait_for_timeout(300)
        assert (tab.text("state"), tab.text("detail")) == ("Stopped", "Gone.")
        assert tab.text("start") == "Start"
        context.unroute("**/v1/model")
        tab.page.click("#start")
        tab.until(lambda tab: tab.text("state") == "No digits yet")


def rests_while_hidden(tab):
    """If the person has chosen so. A headless tab is never hidden, so the page is told so."""
    tab.page.click("summary:has-text('Choices')")
    tab.page.uncheck("#hidden")
    hide(tab, True)
    tab.until(lambda tab: tab.text("detail") == "It goes on when this tab is shown again.")
    before = tab.number("accepted")
    tab.page.check("#hidden")
    tab.until(lambda tab: tab.number("accepted") > before)
    hide(tab, False)


def hide(tab, hidden):
    tab.page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_all_can_be_done_by_keyboard_on_a_phone(browser, tmp_path):
    context = browser.new_context(viewport={"width": 320, "height": 640}, color_scheme="dark")
    with joined_server(tmp_path, "--open-enrolment", m=1) as server:
        tab = Tab(context, f"{server.url}/join")
        keys = tab.page.keyboard
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 320
        keys.press("Tab")  # to the drawing
        for key in ("Space", *["ArrowDown"] * 12, "Space"):
            keys.press(key)
        keys.press("Tab")
        keys.press("Tab")
        keys.press("Enter")  # "It is a 1"
        tab.until(lambda tab: tab.text("own") == "You have drawn 1 digit.")
        focus_on(tab.page, "start")
        keys.press("Enter")
        tab.until(lambda tab: tab.number("accepted") >= 1)
        assert tab.problems == []
    context.close()


def focus_on(page, name):
    """By the Tab key alone."""
    for _ in range(40):
        if page.evaluate("document.activeElement.id") == name:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"The Tab key does not lead to {name}.")
