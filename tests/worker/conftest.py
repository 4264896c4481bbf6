import pytest

from tests.worker.faulty import Listening, Scripted


@pytest.fixture
def server():
    """Without a socket."""
    return Scripted()


@pytest.fixture
def listening():
    """On a real port."""
    running = Listening(Scripted())
    yield running
    running.close()
