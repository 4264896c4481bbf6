import pytest

from anarchic.core.names import WORKER_NAME, may_own_token, token_owner


@pytest.mark.parametrize("name", ["a", "worker-1", "ann@example.org", "x" * 64])
def test_names_of_workers(name):
    assert WORKER_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b", "ä", "a\n"])
def test_other_texts_name_no_worker(name):
    assert not WORKER_NAME.fullmatch(name)
    assert not may_own_token(name)


def test_the_first_dot_ends_the_name_in_a_token():
    assert not may_own_token("a.b")
    assert token_owner("ann.secret.with.dots") == "ann"
    assert token_owner("ann.") is None
    assert token_owner(".secret") is None
    assert token_owner("ann.two words") is None
