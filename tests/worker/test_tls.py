import ssl
from datetime import UTC, datetime, timedelta

import pytest

from anarchic.errors import ConfigError, WorkerError
from anarchic.worker import Connection, Retry, Worker
from tests.worker.faulty import Listening, Scripted, TestClock

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
    assert caught.value.code == "certificate"
    assert "client_cert (--client-cert)" in str(caught.value)
    assert secure.scripted.pulls == []


@pytest.mark.parametrize(
    ("first", "last", "told"), [(-9, -3, "has expired"), (3, 9, "is not valid yet")]
)
def test_a_certificate_of_the_server_that_is_not_valid_now_is_named(
    authority, files, first, last, told
):
    now = datetime.now(UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    span = {"not_before": now + timedelta(first), "not_after": now + timedelta(last)}
    authority.issue_cert("127.0.0.1", **span).configure_cert(context)
    running = Listening(Scripted(), tls=context)
    try:
        with (
            worker(running, ca_file=files / "ca.pem") as known,
            pytest.raises(WorkerError, match=told) as caught,
        ):
            known.pull()
    finally:
        running.close()
    assert caught.value.code == "certificate"


def test_a_worker_waits_until_an_expired_certificate_of_the_server_is_renewed(
    authority, files, caplog
):
    past = datetime.now(UTC) - timedelta(3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    span = {"not_before": past - timedelta(3), "not_after": past}
    authority.issue_cert("127.0.0.1", **span).configure_cert(context)
    running, clock = Listening(Scripted(), tls=context), TestClock()
    clock.on_sleep = lambda: authority.issue_cert("127.0.0.1").configure_cert(context)
    connection = Connection(ca_file=files / "ca.pem", timeout_s=5)
    try:
        with Worker(running.url, name="ann", connection=connection, clock=clock) as patient:
            assert patient.pull().version == 0
    finally:
        running.close()
    assert len(clock.naps) == 1
    assert "The server's certificate has expired: ask its operator to renew it" in caplog.text


def test_a_client_certificate_without_its_key_names_the_option(authority, tmp_path):
    own = authority.issue_cert("worker@example.org")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    with pytest.raises(ConfigError, match=r"no private key: give .* client_key \(--client-key\)"):
        Connection(client_cert=tmp_path / "cert.pem").tls()


@pytest.mark.parametrize("name", ["ca_file", "client_cert"])
def test_a_file_that_is_no_certificate_is_named(name, tmp_path):
    (tmp_path / "junk").write_bytes(b"junk")
    option = "--" + name.replace("_", "-")
    with pytest.raises(ConfigError, match=rf"{name} .*junk \({option}\) cannot be used for TLS"):
        Connection(**{name: tmp_path / "junk"}).tls()


def test_https_to_a_plain_server_gives_a_hint():
    running = Listening(Scripted())
    try:
        with (
            Worker(
                running.url.replace("http:", "https:"),
                name="ann",
                connection=Connection(retry=Retry(tries=1), timeout_s=5),
            ) as secure,
            pytest.raises(WorkerError, match="its URL begins with http://"),
        ):
            secure.pull()
    finally:
        running.close()
