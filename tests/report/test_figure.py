import sys

import pytest

from anarchic.errors import ConfigError
from anarchic.report.figure import COLOURS, check_format, line_style, new_figure, save


@pytest.mark.parametrize("name", ["a.png", "a.SVG", "there/a.pdf"])
def test_three_formats(name):
    assert str(check_format(name)) == name


@pytest.mark.parametrize("name", ["a.jpg", "a", ".png"])
def test_other_formats_are_refused(name):
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        check_format(name)


def test_no_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'anarchic\[plots\]'"):
        new_figure(2, 2)


def test_folders_are_made_and_places_that_cannot_be_written_refused(tmp_path):
    pytest.importorskip("matplotlib")
    assert save(new_figure(1, 1), tmp_path / "deep" / "er" / "a.png").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write"):
        save(new_figure(1, 1), tmp_path / "file" / "a.png")


def test_lines_differ_beyond_the_colours():
    styles = [tuple(line_style(index).values()) for index in range(3 * len(COLOURS))]
    assert len(set(styles)) == len(styles)
