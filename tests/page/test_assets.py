from __future__ import annotations

import gzip
import re
from importlib.util import find_spec

import pytest

from anarchic.page import assets
from anarchic.page.assets import HEADERS, POLICY, asset, names, plotly


def test_the_policy_allows_nothing_inline_and_no_other_host():
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    assert HEADERS["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", names())
def test_files_name_nothing_outside_and_have_no_inline_code(name):
    text = asset(name).body.decode()
    outside = [url for url in re.findall(r"https?://[^\"'\s)]+", text) if "www.w3.org" not in url]
    assert outside == []
    assert "innerHTML" not in text
    assert "eval(" not in text
    if name.endswith(".html"):
        assert not re.search(r"<style|style=|<script>|\son[a-z]+=", text)


def test_only_the_page_own_files_are_given_out():
    assert "index.html" in names()
    assert "app.js" in names()
    for other in ("../assets.py", "assets.py", "", "..", "static"):
        assert asset(other) is None


def test_a_file_has_a_tag_of_its_contents():
    one, other = asset("app.js"), asset("dom.js")
    assert one.etag != other.etag
    assert one.headers["cache-control"] == "no-cache"
    assert one.kind == "text/javascript; charset=utf-8"


def test_without_plotly_there_is_no_script(monkeypatch):
    monkeypatch.setattr(assets, "find_spec", lambda name: None)
    plotly.cache_clear()
    assert plotly() is None
    plotly.cache_clear()


@pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")
def test_plotly_comes_from_its_package():
    assert len(gzip.decompress(plotly().body)) > 1_000_000


def test_plotly_is_told_that_its_style_sheets_are_there():
    sheet = b'if(!document.getElementById("' + b"a1" * 32 + b'"))make()'
    found = assets._without_sheets(sheet).decode()
    assert found.endswith(sheet.decode())
    assert f'id:"{"a1" * 32}"' in found.splitlines()[0]
    assert 'id:"plotly.js-style-global"' in found.splitlines()[0]
