"""The page /join as the server sends it: only where it is asked for, and under a strict policy."""

from __future__ import annotations

import asyncio
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from anarchic.data.digits import load_counts
from anarchic.page.join import digit_bytes, join_files, qr_code
from anarchic.server.origin import Origins, origins_of
from anarchic.server.refusals import Refusal
from anarchic.server.settings import Address, ServerSettings
from tests.server.hosted import begin_run, serving_runs
from tests.server.live import serving

FILES = sorted(join_files())


def asked(tmp_path, *paths, join=True, **headers):
    """The answers to GETs."""

    async def scenario():
        async with serving(tmp_path / "run.db", join=join) as (_, client):
            return [await client.get(path, headers=headers) for path in paths]

    return asyncio.run(scenario())


def test_there_is_no_page_unless_it_is_asked_for(tmp_path):
    paths = ["/join", "/join.svg", "/join/app.js", "/join/digits"]
    assert [each.status_code for each in asked(tmp_path, *paths, join=False)] == [404] * 4
    assert [each.status_code for each in asked(tmp_path, *paths)] == [200] * 4


def test_every_file_is_sent_under_the_strict_policy(tmp_path):
    names = [name for name in FILES if name != "index.html"]
    for answer in asked(tmp_path, "/join", "/join.svg", *(f"/join/{name}" for name in names)):
        assert answer.status_code == 200
        policy = dict(part.strip().split(" ", 1) for part in
                      answer.headers["content-security-policy"].split(";"))  # fmt: skip
        assert policy["default-src"] == "'none'"
        assert set(policy.values()) <= {"'none'", "'self'"}
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"


class Found(HTMLParser):
    """Whatever of a page the policy would refuse, or would need the network for."""

    def __init__(self):
        super().__init__()
        self.links, self.problems, self.ids, self.labelled = [], [], set(), []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        self.links += [given[name] for name in ("src", "href") if name in given]
        self.problems += [name for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.problems.append(tag)


def test_the_page_has_nothing_inline_and_links_to_its_own_files_only():
    found = Found()
    text = join_files()["index.html"].body.decode()
    found.feed(text)
    assert found.problems == []
    assert {link for link in found.links if not link.startswith("join/")} == {"join.svg"}
    for link in found.links:
        assert link == "join.svg" or link.removeprefix("join/") in FILES
    named = set(re.findall(r'(?:at|show)\("([\w-]+)"', join_files()["app.js"].body.decode()))
    assert named <= found.ids
    for name in FILES:
        if name.endswith((".js", ".css", ".html")):
            assert not re.search(rb"(https?|wss?)://|url\(", join_files()[name].body), name


def test_modules_import_each_other_only():
    for name in FILES:
        if name.endswith(".js"):
            for wanted in re.findall(r'from "([^"]+)"', join_files()[name].body.decode()):
                assert wanted.removeprefix("./") in FILES


def test_a_file_is_sent_again_only_if_it_has_changed(tmp_path):
    (first,) = asked(tmp_path, "/join/app.js")
    again, other = asked(
        tmp_path, "/join/app.js", "/join", **{"if-none-match": first.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == 200


def test_no_path_leads_out_of_the_folder(tmp_path):
    wanted = ["/join/../join.py", "/join/..%2fjoin.py", "/join/%2e%2e", "/join/",
              "/join/index.html", "/join/app.js/", "/join/%00", "/joinx", "/join.js"]  # fmt: skip
    assert {answer.status_code for answer in asked(tmp_path, *wanted)} == {404}


def test_a_page_of_elsewhere_is_told_nothing(tmp_path):
    (answer,) = asked(tmp_path, "/join", origin="http://evil.example")
    assert answer.status_code == 403
    (answer,) = asked(tmp_path, "/join", host="rebound.example")
    assert answer.status_code == 421


def test_each_of_several_runs_has_a_page(tmp_path):
    where = str(tmp_path / "runs")
    begin_run(where, "one")

    async def scenario():
        async with serving_runs(where, join=True) as (_, client):
            paths = ("join", "join.svg", "join/app.js")
            found = [await client.get(f"/v1/runs/one/{path}") for path in paths]
            found.append(await client.get("/join"))
            code = await client.get("/v1/runs/one/join.svg", headers={"host": "10.0.0.7:8780"})
            return [each.status_code for each in found], code.content

    statuses, code = asyncio.run(scenario())
    assert statuses == [200, 200, 200, 404]
    assert squares(code) == squares_of("http://10.0.0.7:8780/v1/runs/one/join")


def test_the_digits_are_the_training_part_of_the_package():
    records = np.frombuffer(digit_bytes(), np.uint8).reshape(-1, 65)
    counts, labels, test = load_counts()
    assert len(records) == (~test).sum() == 1437
    assert (np.diff(records[:, 0].astype(int)) >= 0).all()
    assert np.array_equal(np.bincount(records[:, 0]), np.bincount(labels[~test]))
    rows = {row.tobytes() for row in counts[~test].reshape(-1, 64)}
    assert {row.tobytes() for row in records[:, 1:]} == rows
    assert not rows & {row.tobytes() for row in counts[test].reshape(-1, 64)}


def squares(svg):
    """The dark squares of a QR code: its lines, from the path's own commands."""
    x, y, dark = 0, 0, set()
    path = re.search(rb'stroke="#000" d="([^"]+)"', svg)[1].decode()
    for command, numbers in re.findall(r"([Mmh])([-\d. ]+)", path):
        values = [float(number) for number in numbers.replace("-", " -").split()]
        if command == "h":
            dark |= {(x + step, int(y)) for step in range(int(values[0]))}
            x += int(values[0])
        else:
            x = int(values[0]) + (x if command == "m" else 0)
            y = values[1] + (y if command == "m" else 0)
    return dark


def squares_of(text):
    """The same as segno's matrix says, with a border of four."""
    segno = pytest.importorskip("segno")
    rows = enumerate(segno.make(text, error="m", micro=False).matrix)
    return {(x + 4, y + 4) for y, row in rows for x, value in enumerate(row) if value}


def test_the_code_holds_the_address_by_which_the_server_was_reached(tmp_path):
    pytest.importorskip("segno")
    (answer,) = asked(tmp_path, "/join.svg", host="192.168.1.5:8780")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.headers["cache-control"] == "no-store"
    assert squares(answer.content) == squares_of("http://192.168.1.5:8780/join")


def test_without_its_package_the_code_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "segno", None)
    qr_code.cache_clear()
    (answer,) = asked(tmp_path, "/join.svg")
    assert answer.status_code == 404
    assert "anarchic[page]" in answer.json()["message"]


def test_the_address_for_others_is_that_of_the_network():
    own = Origins("127.0.0.1", any_host=True)
    assert own.url("localhost:8780") == "http://localhost:8780"  # nobody else can reach it
    everywhere = Origins("0.0.0.0", any_host=True)
    assert everywhere.url("fl.example.org") == "http://fl.example.org"
    found = everywhere.url("127.0.0.1:8780")
    assert re.fullmatch(r"http://[\d.]+:8780", found)
    with pytest.raises(Refusal, match="no address"):
        own.url('x"><script>')


def test_the_address_is_https_behind_a_proxy_or_with_tls():
    settings = ServerSettings()
    assert origins_of(Address(), settings).url("a:1") == "http://a:1"
    assert origins_of(Address(trusted_proxy="10.0.0.1"), settings).url("a") == "https://a"


def test_a_code_is_an_image_of_its_own():
    pytest.importorskip("segno")
    from xml.etree import ElementTree

    root = ElementTree.parse(io.BytesIO(qr_code("http://h/join").body)).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def colours(css, after):
    """The colours that a block of the style sheet names."""
    block = css[css.index(after) :]
    return dict(re.findall(r"--([\w-]+): (#\w+)", block[: block.index("}")]))


def luminance(colour):
    """As WCAG 2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("after", [":root {", "(prefers-color-scheme: dark)"])
def test_text_and_edges_stand_out_in_light_and_dark(after):
    assert contrast("#000", "#fff") == pytest.approx(21)
    found = colours(join_files()["join.css"].body.decode(), after)
    for text in ("ink", "soft", "accent", "bad"):
        assert contrast(found[text], found["card"]) >= 4.5, text
    assert contrast(found["ink"], found["page"]) >= 4.5
    assert contrast(found["accent"], found["on-accent"]) >= 4.5
    for ground in ("card", "pad"):
        assert contrast(found["edge"], found[ground]) >= 3  # of fields and buttons
