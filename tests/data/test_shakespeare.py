import gzip

import numpy as np
import pytest

from anarchic.data import by_role, load
from anarchic.data.shakespeare import (
    ALPHABET,
    _dataset,
    _lines_by_role,
    _parse,
    _tokens,
    load_shakespeare,
    one_hot,
)
from anarchic.errors import ConfigError, DataError

TEXT = """
1600

A SHORT PLAY

by William Shakespeare

  First Lord. Good morrow.
    How goes it?
  To none.
  SECOND LORD. Well.
   Enter a Boy
    Very  well.
  FIRST LORD. So be it.
  BOY. Sirs.

1601
THE COMEDY OF ERRORS


by William Shakespeare

ACT I. SCENE 1
Enter DROMIO
DROMIO. Hence!

I am gone.
<<a notice>>
of no one
LUCE. One.
Two.
Three.

THE SONNETS

by William Shakespeare
  ALONE. One
    two
    three
"""


def text_of(tokens):
    return "".join(ALPHABET[token] for token in tokens)


def test_speeches_go_to_their_roles():
    assert dict(_lines_by_role(TEXT.splitlines())) == {
        "A SHORT PLAY / FIRST LORD": ["Good morrow.", "How goes it?", "So be it."],
        "THE COMEDY OF ERRORS / DROMIO": ["Hence!", "", "I am gone."],
        "THE COMEDY OF ERRORS / LUCE": ["One.", "Two.", "Three.", "", "THE SONNETS", ""],
    }


def test_blanks_are_joined_and_letters_become_tokens():
    assert text_of(_tokens(["Very  well,", "", "O  my!"])) == "Very well, O my! "
    assert len(ALPHABET) == len(set(ALPHABET)) == 80


def test_windows_slide_by_one_and_the_last_fifth_tests():
    tokens = _tokens(["".join(chr(ord("a") + i * i % 26) for i in range(89))])  # 90 characters
    data = _dataset({"one": tokens, "two": tokens[:-5]})
    assert data.role_train.tolist() == [0] * 8 + [1] * 4
    assert data.x_train.shape == (12, 80)
    assert data.x_test.shape == (3, 80)
    assert data.x_train[7].tolist() == tokens[7:87].tolist()
    assert data.y_train[7] == tokens[87]
    assert data.x_test[1].tolist() == tokens[9:89].tolist()
    assert data.y_test.tolist() == [tokens[88], tokens[89], tokens[84]]


def test_another_edition_is_refused(tmp_path, empty_home):
    path = tmp_path / "shakespeare" / "pg100.txt.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"FIRST LORD.\nGood morrow."))
    with pytest.raises(DataError, match="0 speaking roles, not 1,129"):
        load("shakespeare", tmp_path)


def test_the_real_text_gives_leaf_s_statistics(real_data):
    texts = _parse(real_data / "shakespeare" / "pg100.txt.gz")
    windows = np.array([len(tokens) - 80 for tokens in texts.values()])
    assert (len(windows), windows.sum()) == (1_129, 4_226_158)
    assert windows.mean() == pytest.approx(3_743.28, abs=0.01)
    assert windows.std() == pytest.approx(6_212.26, abs=0.01)
    assert len({name.split(" / ")[0] for name in texts}) == 36


def test_the_real_roles(real_data):
    data = load("shakespeare", real_data)
    assert len(data.roles) == 143
    assert len(data.y_train) + len(data.y_test) == 516_505
    assert len(data.y_train) / 516_505 == pytest.approx(0.8, abs=1e-3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    assert data.x_train.max() < 80
    assert data.classes == 80
    follows = data.role_train[1:] == data.role_train[:-1]
    assert np.array_equal(data.x_train[1:, -1][follows], data.y_train[:-1][follows])
    assert min(len(part) for part in by_role(data)) >= 51
    with pytest.raises(ConfigError, match="1,058 roles with at least 64 samples, got roles=2000"):
        load("shakespeare", real_data, roles=2000)


def test_characters_become_zeros_and_ones():
    x = one_hot(np.array([[0, 2], [79, 1]], np.uint8))
    assert x.shape == (2, 160)
    assert x.dtype == np.float32
    assert [np.flatnonzero(row).tolist() for row in x] == [[0, 82], [79, 81]]
    assert (x.sum(axis=1) == 2).all()


@pytest.mark.parametrize("context", [0, 81])
def test_a_context_is_within_the_window(context):
    with pytest.raises(ConfigError, match=f"got context={context}"):
        load_shakespeare("nowhere", context=context)
