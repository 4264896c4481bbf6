import json

import numpy as np
import pytest

from anarchic.data import by_role, load
from anarchic.data.shakespeare import ALPHABET
from anarchic.errors import ConfigError, DataError


def write(folder, part, users):
    (folder / part).mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    record = {"users": list(users), "num_samples": counts, "user_data": data}
    (folder / part / "all_data_0_niid_0_keep_0.json").write_text(json.dumps(record))


def image(value):
    return [value] * 784


@pytest.fixture
def femnist(tmp_path):
    train = {
        "f0_1": ([image(0.5), image(1.0)], [3, 61]),
        "f0_0": ([image(0.25)], [0]),
        "f0_2": ([image(0.0)], [9]),
    }
    write(tmp_path / "femnist" / "data", "train", train)
    write(tmp_path / "femnist" / "data", "test", {user: train[user] for user in ("f0_1", "f0_0")})
    return tmp_path


def test_femnist_has_one_worker_per_writer(femnist):
    data = load("femnist", femnist)
    assert data.roles == ("f0_0", "f0_1", "f0_2")
    assert (data.x_train.shape, data.x_train.dtype) == ((4, 1, 28, 28), np.float32)
    assert (data.y_train.tolist(), data.classes) == ([0, 3, 61, 9], 62)
    assert [part.tolist() for part in by_role(data)] == [[0], [1, 2], [3]]
    assert data.role_test.tolist() == [0, 1, 1]
    assert data.x_train[:, 0, 0, 0].tolist() == [0.25, 0.5, 1.0, 0.0]


def test_users_are_drawn_with_a_seed(femnist):
    drawn = {load("femnist", femnist, users=1, seed=seed).roles for seed in range(10)}
    assert len(drawn) > 1
    alone = load("femnist", path=str(femnist / "femnist"), users=2)
    assert alone.roles == load("femnist", femnist, users=2).roles
    assert set(alone.y_test) <= {0, 3, 61}
    with pytest.raises(ConfigError, match=r"3 users .* got users=9"):
        load("femnist", femnist, users=9)


def test_shakespeare_is_read_by_leaf_s_letters(tmp_path):
    text = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer"
    lines = {"HAMLET": ([text[:80], text[1:81]], [text[80], text[81]])}
    for part in ("train", "test"):
        write(tmp_path / "leaf-shakespeare", part, lines)
    data = load("leaf-shakespeare", tmp_path)
    assert (data.x_train.shape, data.classes) == ((2, 80), 80)
    assert "".join(ALPHABET[token] for token in data.x_train[1]) == text[1:81]
    assert [ALPHABET[token] for token in data.y_train] == [text[80], text[81]]


def test_other_users_for_testing_have_no_role(tmp_path):
    write(tmp_path, "train", {"a": ([image(0)], [1])})
    write(tmp_path, "test", {"b": ([image(0)], [2])})
    assert load("femnist", path=str(tmp_path)).role_test.tolist() == [-1]


def test_missing_and_damaged_files_are_named(empty_home, tmp_path):
    with pytest.raises(DataError, match=r"no files of LEAF for femnist: .*preprocess.sh"):
        load("femnist", tmp_path)
    write(tmp_path / "femnist", "train", {"a": ([image(0)[1:]], [1])})
    with pytest.raises(DataError, match=r"keep_0.json is damaged .* not LEAF's JSON"):
        load("femnist", tmp_path)
    (tmp_path / "femnist" / "train" / "all_data_0_niid_0_keep_0.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="not LEAF's JSON"):
        load("femnist", tmp_path)
