"""The examples of docs/commands.md and of the help run as they stand there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from anarchic.study import find
from tests.cli.test_app import COMMANDS

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def examples():
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        yield from (shlex.split(line, comments=True) for line in block.splitlines())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory with a copy of the experiments, and no data but those of the package."""
    copy = shutil.copytree(find.folder(), tmp_path / "experiments")
    monkeypatch.setattr("anarchic.study.find.folder", lambda: copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_every_example_runs(anarchic):
    lines = [line for line in examples() if line]
    assert len(lines) > 10
    for line in lines:
        run(anarchic, line)


# Examples of one group build upon each other; test_app.py only parses those that need a server.
GROUPS = (
    ("simulate", "compare"),
    ("theory",),
    ("timetable",),
    ("data list", "data partition"),
    ("init", "token add", "token list", "token revoke"),
)


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_the_examples_of_the_help_run(anarchic, group):
    for command in group:
        lines = [shlex.split(line, comments=True) for line in COMMANDS[command].epilog.splitlines()]
        ours = [line for line in lines if line[:1] == ["anarchic"] and "my_tasks:task" not in line]
        assert ours
        for line in ours:
            run(anarchic, line[: line.index(">")] if ">" in line else line)


def run(anarchic, line):
    assert line[0] == "anarchic"
    words = [sorted(Path().glob(w)) if w == "runs/*" else [w] for w in line[1:]]
    shown = anarchic(*(word for group in words for word in group))
    assert shown.exit_code == 0, (line, shown.output)
