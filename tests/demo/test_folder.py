import pytest

from anarchic.demo.folder import demo_directory
from anarchic.errors import RunError


def test_a_demo_replaces_its_own_files_and_no_others(tmp_path):
    out = tmp_path / "demo"
    demo_directory(out, ["run", "log-*"])
    for name in ("log-1", "log-2", "notes.txt"):
        (out / name).write_text("old")
    (out / "run").mkdir()
    (out / "run" / "model").write_text("old")
    demo_directory(out, ["run", "log-*"])
    assert sorted(path.name for path in out.iterdir()) == ["demo.json", "notes.txt"]


@pytest.mark.parametrize("what", ["file", "full"])
def test_other_directories_are_left_alone(tmp_path, what):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "run").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"not made by the demo: .* --out"):
        demo_directory(tmp_path / what, ["run"])
    assert (tmp_path / "full" / "run").read_text() == (tmp_path / "file").read_text() == "mine"
