"""The whole program, and every command's help, whose examples run as they stand there."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from anarchic import __version__, errors
from anarchic.cli import app
from anarchic.cli.demo import LEAST_SECONDS
from anarchic.study import find

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_help_lists_the_commands(anarchic):
    shown = anarchic("--help")
    assert shown.exit_code == 0
    for command in ("demo", "simulate", "compare", "timetable", "data"):
        assert command in shown.output


def commands(command, *path):
    """Every command below a group, by its path."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
    for name, part in getattr(command, "commands", {}).items():
        yield from commands(part, *path, name)


COMMANDS = dict(commands(get_command(app)))
each_command = pytest.mark.parametrize("command", COMMANDS)


@each_command
def test_every_command_has_a_description_and_examples(anarchic, command):
    shown = anarchic(*command.split(), "--help")
    assert shown.exit_code == 0
    does, _, taught = shown.output.partition("Examples:")
    assert COMMANDS[command].help.split("\n")[0] in " ".join(does.split())
    assert f"anarchic {command}" in taught


@each_command
def test_every_option_has_a_description_and_a_default(command):
    for parameter in COMMANDS[command].params:
        said = parameter.help or ""
        assert len(said) > 5, parameter.name
        off_or_on = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
        if not (parameter.required or off_or_on):
            assert "default" in said, parameter.name


@each_command
def test_the_examples_parse(command):
    """Every word after the command is an option or an argument that it takes."""
    for line in COMMANDS[command].epilog.splitlines():
        name, *words = shlex.split(line, comments=True) or [""]
        if name == "anarchic":
            words = words[: words.index(">")] if ">" in words else words
            known = COMMANDS.get(words[0]) or COMMANDS[" ".join(words[:2])]
            rest = words[1:] if words[0] in COMMANDS else words[2:]
            known.make_context(words[0], rest).close()


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_program_exits_2_on_misuse_without_a_traceback(process):
    program = process("simulate", "--rule", "nope")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (2, "")
    assert err == (
        "Error: There is no rule 'nope'; there are afa-cd, afa-cs, fedavg, fedasync, fedbuff, "
        "ca2fl, fedvarp, fedstale, mifa, ace, fadas, async-sgd, fednova, feddyn, area, aced, "
        "rennala, malenia, ringleader, generalized-async-sgd.\n"
    )


@pytest.mark.slow
def test_characters_that_a_terminal_lacks_become_question_marks(monkeypatch, process):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    program = process("timetable", "--rounds", 1)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (0, "")
    assert "?" in out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("Wrong."), 2),
        (errors.DataError("Wrong."), 1),
        (errors.RunError("Wrong."), 1),
        (errors.Diverged("Wrong."), 1),
        (KeyboardInterrupt(), 130),
        (FileNotFoundError(2, "No such file", "there"), 1),
        (OSError(28, "No space left on device"), 1),
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


# It takes ten seconds, and tests/experiments/test_wheel.py runs it and looks at what it wrote.
REPORT = ["anarchic", "reproduce", "all", "--report"]


def examples():
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        yield from (shlex.split(line, comments=True) for line in block.splitlines())


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory with a copy of the experiments, and no data but those of the package."""
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    copy = shutil.copytree(find.folder(), tmp_path / "experiments")
    monkeypatch.setattr("anarchic.study.find.folder", lambda: copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANARCHIC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_every_example_runs(anarchic, monkeypatch):
    monkeypatch.setattr("anarchic.cli.demo.OPEN_SECONDS", LEAST_SECONDS)  # nobody watches
    lines = [line for line in examples() if line]
    lines.remove(REPORT)
    assert len(lines) > 10
    for line in lines:
        run(anarchic, line)


# Examples of one group build upon each other; those that need a server are only parsed.
GROUPS = (
    ("simulate", "compare"),
    ("sweep",),
    ("tune",),
    ("theory",),
    ("measure",),
    ("speedup",),
    ("timetable",),
    ("data list", "data partition"),
    ("init", "token add", "token list", "token revoke"),
    ("config example",),
)


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_the_examples_of_the_help_run(anarchic, group):
    for command in group:
        lines = [shlex.split(line, comments=True) for line in COMMANDS[command].epilog.splitlines()]
        given = ("my_", "state.safetensors", "log.csv")  # what a user brings
        ours = [
            line
            for line in lines
            if line[:1] == ["anarchic"] and not any(word.startswith(given) for word in line)
        ]
        assert ours
        for line in ours:
            run(anarchic, line[: line.index(">")] if ">" in line else line)


def run(anarchic, line):
    assert line[0] == "anarchic"
    words = [sorted(Path().glob(w)) if w == "runs/*" else [w] for w in line[1:]]
    shown = anarchic(*(word for group in words for word in group))
    assert shown.exit_code == 0, (line, shown.output)
