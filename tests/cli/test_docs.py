"""The examples of docs/commands.md run as they stand there."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def examples():
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        yield from (shlex.split(line, comments=True) for line in block.splitlines())


@pytest.mark.slow
def test_every_example_runs(anarchic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = [line for line in examples() if line]
    assert len(lines) > 10
    for line in lines:
        assert line[0] == "anarchic"
        words = [sorted(Path().glob(w)) if w == "runs/*" else [w] for w in line[1:]]
        shown = anarchic(*(word for group in words for word in group))
        assert shown.exit_code == 0, (line, shown.output)
