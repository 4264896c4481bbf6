"""Parts by name: built in, from packages, or as ``module:Name``."""

import pytest

from anarchic import AfaCd
from anarchic.core import registry
from anarchic.errors import ConfigError
from anarchic.server.settings import served_names

EVERY = [(kind, name) for kind, known in registry.KINDS.items() for name in known.built_in]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Put a package with entry points on the path: what pip would leave there."""

    def install(name, module, *entries):
        (tmp_path / f"{name}.py").write_text(module)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(entries))

    monkeypatch.syspath_prepend(tmp_path)
    registry.refresh()
    yield install
    registry.refresh()


@pytest.mark.parametrize(("kind", "name"), EVERY, ids=str)
def test_every_built_in_part_is_there_and_says_what_it_is(kind, name):
    if kind == "models":
        pytest.importorskip("torch")
    found, spec = registry.find(kind, name), registry.KINDS[kind].built_in[name]
    assert registry.first_line(spec) == found.__doc__.strip().splitlines()[0]


def test_a_part_of_a_package_is_known_by_its_name(package):
    module = 'class Calm:\n    """Steps rarely."""\n'
    package("calm_rules", module, "[anarchic.rules]", "calm = calm_rules:Calm")
    assert registry.names("rules")[-2:] == ("generalized-async-sgd", "calm")
    assert registry.find("rules", "calm").__name__ == "Calm"
    part = registry.parts("rules")[-1]
    assert part[:3] == ("calm", "calm_rules:Calm", "calm_rules")
    assert registry.first_line(part.spec) == "Steps rarely."


def test_a_name_that_two_packages_offer_is_refused(package):
    package("other_rules", "Calm = 1", "[anarchic.rules]", "afa-cd = other_rules:Calm")
    with pytest.raises(ConfigError, match="'afa-cd' is offered by anarchic and by other_rules"):
        registry.find("rules", "afa-cd")
    assert registry.find("rules", "afa-cs").__name__ == "AfaCs"  # the other names are as they were


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("def", "SyntaxError"),
        ("raise RuntimeError('no GPU')", "RuntimeError: no GPU"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import no_such_thing", "No module named 'no_such_thing'"),
        ("Calm = 1", "broken_rules:Calm is a int, not a rule"),
    ],
)
def test_a_broken_package_breaks_nothing_but_its_own_parts(package, module, says):
    package("broken_rules", module, "[anarchic.rules]", "calm = broken_rules:Calm", "a:b = x:Y")
    assert served_names()[-1] == "calm"  # known by name, and not imported for that
    for name in ("calm", "broken_rules:Calm"):
        with pytest.raises(ConfigError, match=says):
            registry.find("rules", name)


def test_a_module_and_a_name_are_enough():
    assert registry.find("rules", "anarchic.core.rules.afa_cd:AfaCd") is AfaCd
    assert registry.load("anarchic:AfaCd.scale") is AfaCd.scale


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fedprox", "There is no rule 'fedprox'; there are afa-cd, afa-cs, fedavg"),
        ("fedavq", "'fedavq'. Did you mean 'fedavg'"),
        ("no_such_module:Rule", "no module 'no_such_module' here"),
        ("anarchic:NoSuchRule", "Module 'anarchic' has no 'NoSuchRule'"),
        ("anarchic:", "Expected module:name"),
        (":AfaCd", "Expected module:name"),
        (".rules:AfaCd", "Expected module:name"),
    ],
)
def test_what_nobody_knows_is_refused(name, says):
    with pytest.raises(ConfigError, match=says):
        registry.find("rules", name)


def test_a_docstring_that_cannot_be_read_is_none():
    assert registry.first_line("no_such_module:Thing") == ""
    assert registry.first_line("anarchic:Thing") == ""
