import ssl

import pytest

from anarchic.errors import WorkerError
from anarchic.worker import Connection, Retry, Worker
from tests.worker.faulty import Listening, Scripted

trustme = pytest.importorskip("trustme")


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("worker@example.org")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    return tmp_path


@pytest.fixture
def secure(authority):
    """Over TLS, for workers that show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    running = Listening(Scripted(), tls=context)
    yield running
    running.close()


def worker(secure, **settings):
    return Worker(
        secure.url,
        name="ann",
        connection=Connection(retry=Retry(tries=1), timeout_s=5, **settings),
    )


def test_client_and_server_certificates_are_checked(secure, files):
    with worker(secure, ca_file=files / "ca.pem", client_cert=files / "own.pem") as known:
        assert known.pull().version == 0


def test_a_server_with_an_unknown_certificate_is_refused(secure):
    retry = Retry(tries=None)  # it ends all the same: asking again is no use
    stranger = Worker(secure.url, name="ann", connection=Connection(retry=retry, timeout_s=5))
    with stranger, pytest.raises(WorkerError, match="ca_file") as caught:
        stranger.pull()
    assert caught.value.code == "certificate"
    assert secure.scripted.pulls == []


def test_plain_http_to_a_tls_server_gives_a_hint(secure):
    plain = Worker(
        secure.url.replace("https", "http"),
        name="ann",
        connection=Connection(retry=Retry(tries=1), timeout_s=5),
    )
    with plain, pytest.raises(WorkerError, match=r"[^.]\. If the server has TLS, .* https://"):
        plain.pull()


def test_a_worker_without_a_certificate_is_refused(secure, files):
    unknown = worker(secure, ca_file=files / "ca.pem")
    with unknown, pytest.raises(WorkerError) as caught:
        unknown.pull()
    assert caught.value.code == "unreachable"
    assert secure.scripted.pulls == []
