import pytest

from anarchic.core.names import WORKER_NAME, token_owner


@pytest.mark.parametrize("name", ["a", "worker-1", "ann@example.org", "a.b", "x" * 64])
def test_names_of_workers(name):
    assert WORKER_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b", "ä", "a\n"])
def test_other_texts_name_no_worker(name):
    assert not WORKER_NAME.fullmatch(name)
    assert token_owner(f"{name}.secret") is None


def test_the_last_dot_ends_the_name_in_a_token():
    assert token_owner("ann.secret") == "ann"
    assert token_owner("ann.phone.secret") == "ann.phone"
    assert token_owner("ann.") is None
    assert token_owner(".secret") is None
    assert token_owner("ann.two words") is None
    assert token_owner("secret") is None
