import csv
import json

import pytest

ASKED = ("--labels-per-worker", "2", "--max-staleness", "4", "--rounds", "12")


@pytest.fixture
def run(anarchic, tmp_path):
    def made(*more):
        anarchic("simulate", *ASKED, *more, "--out", tmp_path / "run")
        return tmp_path / "run"

    return made


def test_the_table_the_files_and_the_picture(anarchic, run, tmp_path):
    files = {name: tmp_path / name for name in ("m.csv", "w.csv", "m.png")}
    asked = ("--csv", files["m.csv"], "--weights", files["w.csv"], "--out", files["m.png"])
    told = anarchic("measure", run("--rule", "afa-cs"), "--every", "4", *asked).output
    assert "workers differ" in told
    assert "Gini index" in told
    with open(files["m.csv"], newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["0", "4", "8"]
    assert [row["updates"] for row in rows] == ["0", "20", "40"]
    assert float(rows[0]["squared_gradient"]) > float(rows[2]["squared_gradient"]) > 0
    with open(files["w.csv"], newline="") as file:
        shares = [float(row["share"]) for row in csv.DictReader(file)]
    assert len(shares) == 10
    assert sum(shares) == pytest.approx(1)
    assert files["m.png"].read_bytes().startswith(b"\x89PNG")


def test_a_rule_without_weights_says_why_and_shows_the_rest(anarchic, run):
    told = anarchic("measure", run("--server-opt", "adam", "--server-lr", "0.01")).output
    assert "|grad f|^2" in told
    assert "AfaCd is not linear in the updates" in " ".join(told.split())


def test_json_for_programs(anarchic, run):
    found = json.loads(anarchic("measure", run(), "--every", "6", "--json").stdout)
    assert [row["round"] for row in found["versions"]] == [0, 6]
    assert len(found["weights"]) == 10


def test_what_cannot_be_drawn_is_refused_before_work(refused, tmp_path):
    assert "m.gif" in refused(2, "measure", tmp_path / "none", "--out", tmp_path / "m.gif")


def test_a_store_has_nothing_to_measure(refused, tmp_path):
    (tmp_path / "run.db").write_bytes(b"x")
    assert "is a server's store" in refused(2, "measure", tmp_path / "run.db")
