import subprocess
import sys

import pytest

from anarchic import __version__, errors


def test_help_lists_the_commands(anarchic):
    shown = anarchic("--help")
    assert shown.exit_code == 0
    for command in ("demo", "simulate", "compare", "timetable", "data"):
        assert command in shown.output


@pytest.mark.parametrize("command", ["simulate", "compare", "demo", "timetable", "data holdings"])
def test_every_command_teaches_by_example(anarchic, command):
    shown = anarchic(*command.split(), "--help")
    assert shown.exit_code == 0
    assert f"anarchic {command}" in shown.output.partition("Examples:")[2]


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from anarchic.cli import main\n"
        "sys.argv = ['anarchic', 'simulate', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_version(anarchic):
    assert anarchic("--version").output == f"anarchic {__version__}\n"


def test_the_program_exits_2_on_misuse_without_a_traceback(process):
    program = process("simulate", "--rule", "nope")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (2, "")
    assert err == (
        "Error: There is no rule 'nope'; there are afa-cd, afa-cs, fedavg, fedasync, fedbuff.\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("Wrong."), 2),
        (errors.DataError("Wrong."), 1),
        (errors.RunError("Wrong."), 1),
        (errors.Diverged("Wrong."), 1),
        (KeyboardInterrupt(), 130),
        (FileNotFoundError(2, "No such file", "there"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_become_exit_codes(anarchic, monkeypatch, error, code):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("anarchic.sim.settings.make_table", fail)
    result = anarchic("timetable")
    assert result.exit_code == code
    assert len(result.stderr.splitlines()) == 1


def test_a_bug_keeps_its_traceback(anarchic, monkeypatch):
    monkeypatch.setattr("anarchic.sim.settings.make_table", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        anarchic("timetable")
