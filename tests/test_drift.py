"""What the documentation names exists, and what exists is documented."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import anarchic
from anarchic.core import registry, wrappers
from tests.public_names import PAGE, names, packages

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/tutorials/*.md")])
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_in(page: Path) -> str:
    """Fenced blocks and inline code."""
    text = text_of(page)
    return "\n".join(
        [*re.findall(r"```\w*\n(.*?)```", text, re.S), *re.findall(r"`([^`\n]+)`", text)]
    )


@every_page
def test_linked_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text_of(page)):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@every_page
def test_named_paths_exist(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", text_of(page), flags=re.S)
    roots = (ROOT, ROOT / "src" / "anarchic", ROOT / "tests")
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|txt|toml|png|npz))`", prose):
        if not name.startswith(("runs/", "my_")):
            assert any((root / name).exists() for root in roots), f"{page.name} names {name}"


@every_page
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for target in re.findall(r"^make ([\w-]+)|`make ([\w-]+)", text_of(page), re.M):
        assert (target[0] or target[1]) in targets


@cache
def program() -> Any:
    from anarchic.cli.app import app

    return get_command(app)


@every_page
def test_named_commands_and_flags_exist(page: Path) -> None:
    commands = program()
    for words in re.findall(r"^(?:\$ )?anarchic ((?:[^\n\\]|\\\n)+)", code_in(page), re.M):
        command, rest = commands, words.replace("\\\n", " ").split()
        while rest and hasattr(command, "commands") and rest[0].islower():
            assert rest[0] in command.commands, f"{page.name} names anarchic {words}"
            command, rest = command.commands[rest[0]], rest[1:]
        known = {flag for parameter in command.params for flag in parameter.opts}
        known |= {flag for parameter in command.params for flag in parameter.secondary_opts}
        for flag in re.findall(r"(?<!\S)--[\w-]+", " ".join(rest)):
            assert flag in known | {"--help"}, f"{page.name} names {flag} of anarchic {words}"


def test_the_drift_test_sees_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`anarchic simulate --no-such-flag 1`")
    with pytest.raises(AssertionError, match="--no-such-flag"):
        test_named_commands_and_flags_exist(page)


def found(kind: str) -> list[type]:
    return [registry.find(kind, name) for name in registry.KINDS[kind].built_in]


@pytest.mark.parametrize("kind", [*found("rules"), *found("local_rules")], ids=lambda k: k.__name__)
def test_every_rule_is_exported_and_documented(kind: type) -> None:
    assert getattr(anarchic, kind.__name__) is kind
    assert kind.__name__ in anarchic.__all__
    assert f"`{kind.__name__}" in text_of(ROOT / "docs" / "rules.md")
    assert "Departs from it in:" in " ".join((kind.__doc__ or "").split())


@pytest.mark.parametrize("kind", found("rules"), ids=lambda k: k.__name__)
def test_every_rule_says_what_it_is_known_from(kind: type) -> None:
    assert "Known from" in " ".join((kind.__doc__ or "").split())
    row = re.search(
        rf"^\| `{kind.__name__}`[^|]*\|(?:[^|]+\|){{3}} (.+) \|$",
        text_of(ROOT / "docs" / "rules.md").partition("known from |")[2],
        re.M,
    )
    assert row is not None
    assert row[1]


@pytest.mark.parametrize(
    "kind",
    [*found("server_steps"), wrappers.StalenessDiscount, wrappers.Clip, wrappers.SharedVectors],
)
def test_every_step_and_wrapper_is_exported_and_documented(kind: type) -> None:
    assert getattr(anarchic, kind.__name__) is kind
    assert f"`{kind.__name__}" in text_of(ROOT / "docs" / "rules.md")


def test_the_page_of_names_lists_those_of_every_package() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("httpx")
    listed = {
        part.split("`")[1]: re.findall(r"^\| `(\w+)` \|", part, re.M)
        for part in text_of(PAGE).split("\n## ")[1:]
    }
    known = {package: names(package) for package in packages()}
    assert listed == known, "run: python -m tests.public_names"
    assert {"anarchic.data", "anarchic.participation", "anarchic.theory"} <= known.keys()


def test_every_public_name_has_a_docstring() -> None:
    pytest.importorskip("torch")
    for name in anarchic.__all__:
        assert getattr(anarchic, name).__doc__, name


@pytest.mark.parametrize("name", [*registry.names("datasets"), *registry.names("models")])
def test_every_data_set_and_model_is_documented(name: str) -> None:
    assert any(f"`{name}`" in text_of(page) for page in PAGES)


def test_the_example_of_the_readme_is_the_one_that_is_run() -> None:
    shown = re.search(r"```python\n(.*?)```", text_of(ROOT / "README.md"), re.S)
    assert shown is not None
    ran = (ROOT / "examples" / "first_run.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    assert shown[1] == ran
    assert len([line for line in ran.splitlines() if line.strip()]) <= 15


def test_versions_agree() -> None:
    assert f'version = "{anarchic.__version__}"' in (ROOT / "pyproject.toml").read_text()
