"""The live page in a real browser, in front of a real server process with workers."""

from __future__ import annotations

import json
import re
import time

import httpx
import pytest

from tests.browser.crowd import Server, serving

PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """(server, operator's token), for all tests that kill nothing."""
    with serving(tmp_path_factory.mktemp("live"), pace=0.5) as found:
        yield found


def opened(tabs, address, **options):
    tab = tabs(**options)
    tab.page.goto(address)
    tab.page.get_by_role("region", name="Where the run stands").wait_for(timeout=PATIENCE_MS)
    tab.page.get_by_role("img", name=re.compile("^accuracy")).wait_for(timeout=PATIENCE_MS)
    return tab


def version(page):
    return int(page.locator(".fact dd").first.inner_text().replace(",", ""))


def until(page, condition, message):
    end = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < end, message
        page.wait_for_timeout(100)


def test_it_loads_without_an_error_under_its_policy_and_charts_move(tabs, live):
    tab = opened(tabs, live[0].page)
    page = tab.page
    line = page.get_by_role("img", name=re.compile("^accuracy")).locator("path.line").first
    before, drawn = version(page), line.get_attribute("d")
    until(page, lambda: version(page) > before, "no newer version was shown")
    until(page, lambda: line.get_attribute("d") != drawn, "the curve stood still")
    for name in ("Workers", "Activity and influence", "Staleness, local steps and norms",
                 "Refusals by reason", "Theory", "Server and rule", "Settings"):  # fmt: skip
        page.get_by_role("region", name=name, exact=True).wait_for(timeout=PATIENCE_MS)
    until(page, lambda: "not finite" in page.locator(".bars").inner_text(), "no refusal is shown")
    assert page.locator(".names").inner_text().count("\n") >= 10
    assert tab.problems == []


def test_an_inline_script_would_not_run(tabs, live):
    tab = opened(tabs, live[0].page)
    tab.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
        " document.head.append(s); }"
    )
    assert tab.page.evaluate("window.bad") is None
    assert any("Content Security Policy" in problem for problem in tab.problems)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_of(tabs, live, axe, scheme):
    tab = opened(tabs, live[0].page, color_scheme=scheme, bypass_csp=True)  # axe is injected
    page = tab.page
    page.get_by_text("Workers as a table").click()
    page.evaluate(axe)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    page.get_by_role("button", name="Roll back…").click()
    found += page.evaluate("axe.run('dialog', {resultTypes: ['violations']})")["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in found] == []


def test_everything_can_be_reached_and_read_with_the_keyboard(tabs, live):
    page = opened(tabs, live[0].page).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the run"
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
    assert {"Pause", "Roll back…", "Revoke…", "Token", "Dark"} <= set(reached)
    chart = page.get_by_role("img", name=re.compile("^accuracy"))
    chart.focus()
    page.keyboard.press("End")
    readout = page.locator(".plot", has=chart).locator(".readout")
    last = readout.inner_text()
    assert re.match(r"version .*: evaluated 0\.\d+", last)
    page.keyboard.press("Home")
    assert readout.inner_text().startswith("version 0")
    pause = page.get_by_role("button", name="Pause")
    pause.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent") == "Pause"


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_scrolls_only_down(tabs, live, width):
    page = opened(tabs, live[0].page, viewport={"width": width, "height": 780}).page
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut = page.evaluate(
        "[...document.querySelectorAll('section, button, svg, canvas, h1')].filter(e =>"
        " e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    )
    assert cut == []


def test_no_label_of_a_chart_is_cut_or_covers_another(tabs, live):
    page = opened(tabs, live[0].page).page
    norms = page.get_by_role("img", name=re.compile("^Norm of the update"))
    norms.locator("rect").nth(20).wait_for(state="attached", timeout=PATIENCE_MS)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 780})
        page.wait_for_timeout(300)  # charts are drawn again
        assert page.evaluate(CUT_LABELS) == [], width


CUT_LABELS = """() => [...document.querySelectorAll('.plot svg')].flatMap((svg) => {
  const frame = svg.getBoundingClientRect(), found = [];
  const ticks = [...svg.querySelectorAll('.tick')];
  const boxes = ticks.map((tick) => tick.getBoundingClientRect());
  boxes.forEach((one, i) => {
    const cut = one.left < frame.left || one.right > frame.right || one.bottom > frame.bottom;
    const covered = boxes.slice(i + 1).some((other) => one.left < other.right
      && other.left < one.right && one.top < other.bottom && other.top < one.bottom);
    const where = svg.getAttribute('aria-label').slice(0, 30);
    if (cut || covered) found.push(`${where}: ${ticks[i].textContent}`);
  });
  return found;
})"""


def test_a_token_is_typed_sent_in_a_header_and_kept_in_the_tab_alone(tabs, live):
    server, token = live
    tab = tabs()
    page, asked = tab.page, []
    page.on("request", lambda request: asked.append((request.url, request.all_headers())))
    page.goto(server.url)
    page.get_by_text("Type an operator's token to see the run.").wait_for(timeout=PATIENCE_MS)
    page.get_by_label("Operator's token").fill(token)
    page.get_by_role("button", name="Show the run").click()
    page.get_by_role("region", name="Where the run stands").wait_for(timeout=PATIENCE_MS)
    assert [url for url, _ in asked if token in url] == []
    assert any(headers.get("authorization") == f"Bearer {token}" for _, headers in asked)
    assert token not in json.dumps(page.evaluate("({...localStorage})"))
    assert page.evaluate("document.cookie") == ""
    other = tabs().page
    other.goto(server.url)
    other.get_by_label("Operator's token").wait_for(timeout=PATIENCE_MS)


def test_a_wrong_token_is_told_in_words(tabs, live):
    page = tabs().page
    page.goto(live[0].url)
    page.get_by_label("Operator's token").fill("olga.wrong")
    page.get_by_role("button", name="Show the run").click()
    page.get_by_role("alert").get_by_text("Invalid token").wait_for(timeout=PATIENCE_MS)
    assert page.evaluate("sessionStorage.length") == 0


def test_an_operator_pauses_and_resumes_with_a_confirmation(tabs, live):
    server, token = live
    page = tabs().page
    page.goto(server.url)
    page.get_by_label("Operator's token").fill(token)
    page.get_by_role("button", name="Show the run").click()
    for verb, state in (("Pause", "paused"), ("Resume", "running")):
        page.get_by_role("button", name=verb, exact=True).click(timeout=PATIENCE_MS)
        status = httpx.get(f"{server.page}v1/status").json()
        assert status["state"] != state  # the first click only asks
        page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()
        page.locator("#state", has_text=state).wait_for(timeout=PATIENCE_MS)
        assert httpx.get(f"{server.page}v1/status").json()["state"] == state
        told = page.get_by_text(f"({verb.lower()}) was applied")
        told.wait_for(timeout=PATIENCE_MS)
    told.wait_for(state="hidden", timeout=PATIENCE_MS)  # it does not stay


def test_a_rollback_offers_the_kept_versions_and_needs_no_mouse(tabs, live):
    server, token = live
    page = tabs().page
    page.goto(server.url)
    page.get_by_label("Operator's token").fill(token)
    page.get_by_role("button", name="Show the run").click()
    page.get_by_role("button", name="Roll back…").focus(timeout=PATIENCE_MS)
    dialog = page.get_by_role("dialog", name="Roll back?")
    choice = dialog.get_by_role("combobox", name="To version")
    judged = re.compile(r"Version \d+ · [\d:]{8}, .* ago · accuracy \d.*%")
    for _ in range(100):  # until a version that is offered was evaluated
        page.keyboard.press("Enter")
        assert choice.evaluate("e => e === document.activeElement")
        offered = choice.locator("option").all_inner_texts()
        if any(map(judged.fullmatch, offered)):
            break
        page.keyboard.press("Escape")
        page.wait_for_timeout(200)
    assert offered[0] == "Choose a version"
    assert offered[-1] == "Another version, by its number"
    assert any(map(judged.fullmatch, offered))
    numbers = [int(text.split()[1]) for text in offered[1:-1]]
    assert numbers == sorted(numbers, reverse=True)
    chosen = numbers[-1]  # the oldest is kept, however many follow meanwhile
    page.keyboard.press("Enter")  # nothing is chosen, so nothing is done
    dialog.get_by_role("button", name="Roll back").press("Enter")
    dialog.get_by_role("alert").get_by_text("Choose a version").wait_for(timeout=PATIENCE_MS)
    assert not dialog.get_by_label("Number of the version").is_visible()
    choice.focus()
    page.keyboard.type(f"Version {chosen} ")  # as the arrow keys do, in one go
    assert choice.input_value() == str(chosen)
    told = f"will equal version {chosen}. Versions from {chosen + 1} on are withdrawn."
    dialog.get_by_role("status").get_by_text(told).wait_for(timeout=PATIENCE_MS)
    for _ in range(3):  # worker, Cancel, Roll back
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("(rollback) was applied").wait_for(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Roll back…").press("Enter")
    left = [text.split()[1] for text in choice.locator("option").all_inner_texts()]
    assert str(chosen) in left
    assert str(numbers[0]) not in left  # it was withdrawn


def test_what_needs_a_token_says_so_where_looking_needs_none(tabs, live):
    page = opened(tabs, live[0].page).page
    page.get_by_role("button", name="Revoke…").click()
    page.get_by_label("Worker", exact=True).fill("ada")
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    page.get_by_role("alert").get_by_text("operator's token").wait_for(timeout=PATIENCE_MS)


def test_a_run_without_updates_says_so_and_the_token_can_be_given_meanwhile(tabs, tmp_path):
    server = Server(tmp_path)
    token = server.tokens(["olga"], rights="operate")["olga"]
    server.start()
    try:
        tab = tabs()
        page = tab.page
        page.goto(server.page)
        page.get_by_text("No worker has sent an update yet.").wait_for(timeout=PATIENCE_MS)
        page.get_by_role("region", name="Settings").wait_for(timeout=PATIENCE_MS)
        shown = page.get_by_role("region").count()
        for bare in ("Share of influence", "Staleness", "Local steps", "Updates of"):
            assert page.get_by_role("img", name=re.compile(f"^{bare}")).count() == 0, bare
        page.get_by_role("button", name="Token").click()
        page.wait_for_timeout(1500)  # a picture comes every second
        page.keyboard.press("Escape")
        assert page.get_by_role("region").count() == shown
        page.get_by_role("button", name="Token").click()
        page.get_by_label("Operator's token", exact=True).last.fill(token)
        with page.expect_navigation():  # the page begins anew
            page.get_by_role("button", name="Use this token").click()
        page.get_by_role("button", name="Pause").click(timeout=PATIENCE_MS)
        page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
        page.locator("#state", has_text="paused").wait_for(timeout=PATIENCE_MS)
        assert tab.problems == []
    finally:
        server.stop()


def test_zooming_uses_plotly_under_the_same_policy(tabs, live):
    pytest.importorskip("plotly")
    tab = opened(tabs, live[0].page)
    tab.page.get_by_role("button", name="Zoom into accuracy").click()
    tab.page.locator("dialog .main-svg").first.wait_for(timeout=PATIENCE_MS)
    tab.page.locator("dialog .scatterlayer path.js-line").first.wait_for(timeout=PATIENCE_MS)
    tab.page.locator("dialog .plot-container").hover(position={"x": 300, "y": 200})
    assert tab.problems == []


def test_it_survives_a_killed_server_and_keeps_what_it_showed(tabs, tmp_path):
    with serving(tmp_path, pace=0.5) as (server, _):
        tab = opened(tabs, server.page)
        page = tab.page
        until(page, lambda: version(page) >= 5, "no version came")
        told = page.get_by_role("img", name=re.compile("^loss"))
        until(
            page, lambda: "reported by workers" in told.get_attribute("aria-label"), "no loss came"
        )
        seen, points = version(page), told_points(told)
        server.kill()
        page.locator("#link.down").wait_for(timeout=PATIENCE_MS)
        assert version(page) >= seen
        assert page.get_by_role("img", name=re.compile("^accuracy")).is_visible()
        server.start()
        page.locator("#link", has_text=re.compile("^Live")).wait_for(timeout=PATIENCE_MS)
        until(page, lambda: version(page) > seen, "no newer version came")
        assert told_points(told) >= points  # the server itself has forgotten them
        assert [p for p in tab.problems if "net::" not in p and "Failed to" not in p] == []


def told_points(chart):
    return int(
        re.search(r"reported by workers: [^;]*, (\d+) points", chart.get_attribute("aria-label"))[1]
    )
