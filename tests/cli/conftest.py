"""The command line as tests call it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anarchic.cli import app


@pytest.fixture
def anarchic():
    """Call a command in this process; its output and exit code come back."""

    def call(*arguments):
        result = CliRunner().invoke(app, [str(a) for a in arguments], prog_name="anarchic")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # what the terminal would show as a traceback
        return result

    return call


@pytest.fixture
def refused(anarchic):
    """Call a command that must fail with this code and one line, which is returned."""

    def call(code, *arguments):
        result = anarchic(*arguments)
        assert result.exit_code == code, result.output
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("Error: ")
        assert lines[0].endswith(".")
        return lines[0]

    return call


@pytest.fixture
def process():
    """Start the real program in a process of its own."""

    def start(*arguments):
        source = Path(__file__).parents[2] / "src"
        return subprocess.Popen(
            [sys.executable, "-m", "anarchic", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "120"},
            # A shell that runs the tests in the background has them ignore it, and so would this.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start


def contents(folder):
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
