"""Certificates that are missing, wrong or expired, on either side."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from anarchic import server
from anarchic.core.certificates import validities
from anarchic.errors import ConfigError, WorkerError
from anarchic.server.settings import Address, RunSettings, ServerSettings
from anarchic.server.tls import check_tls
from anarchic.worker import Connection, Retry, Worker
from tests.chaos.servers import ROOT, ServerProcess, free_port, write_model
from tests.chaos.talk import Line
from tests.waiting import until

trustme = pytest.importorskip("trustme")
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """Certificates, each with its key in one file, and the authorities ``ca`` and ``other-ca``."""
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca")
    other.cert_pem.write_to_path(folder / "other-ca")
    spans = {"valid": (-1, 300), "soon": (-1, 20), "expired": (-9, -3), "early": (3, 300)}
    for name, (first, last) in spans.items():
        span = {"not_before": NOW + timedelta(first), "not_after": NOW + timedelta(last)}
        made = authority.issue_cert("127.0.0.1", "ann@example.org", **span)
        made.private_key_and_cert_chain_pem.write_to_path(folder / name)
    stranger = other.issue_cert("ann@example.org").private_key_and_cert_chain_pem
    stranger.write_to_path(folder / "stranger")
    return folder


def tls_server(folder: Path, certificates: Path, own: str, *words: object) -> ServerProcess:
    place = (str(folder / "run.db"), write_model(folder / "model"), folder / "log")
    tls = ("--tls-cert", certificates / own, "--tls-key", certificates / own)
    return ServerProcess(*place, "--open-enrolment", *map(str, (*tls, *words)))


def events(server: ServerProcess, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in server.text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def work(server: ServerProcess, *words: object) -> str:
    """What ``anarchic work`` ends with; it would try for ever where a failure may pass."""
    command = [sys.executable, "-m", "anarchic", "work", "--name", "ann", "--task", "digits:1/8"]
    command += ["--server", f"https://127.0.0.1:{server.port}", "--spool", str(server.log) + "-ann"]
    found = subprocess.run(
        [*command, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 1, found.stderr
    return " ".join(found.stderr.split())


def refused(server: ServerProcess, host: str = "127.0.0.1", **files: object) -> str:
    """What a worker that never gives up is refused with, for good."""
    url = f"https://{host}:{server.port}"
    connection = Connection(retry=Retry(tries=None), timeout_s=10, **files)
    with pytest.raises((ConfigError, WorkerError)) as caught:
        Worker(url, name="ann", connection=connection).pull()
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.tried(
    "workers with a missing, foreign or expired certificate, and such that do not know the "
    "server's authority",
    before="endless retries: the connection ended without a word, and the server logged nothing",
    now="the worker ends and names the option; the server logs the kind once per minute",
)
def test_certificates_of_workers_are_named_by_both_sides(tmp_path, certificates, monkeypatch):
    running = tls_server(tmp_path, certificates, "valid", "--client-ca", certificates / "ca")
    running.start()
    try:
        until(lambda: events(running, "serving"), 30)
        known = {"ca_file": certificates / "ca"}
        told = work(running, "--ca-file", certificates / "ca")
        assert "asks for a certificate of this worker" in told
        assert "client_cert (--client-cert)" in told
        assert "does not know the authority" in refused(
            running, **known, client_cert=certificates / "stranger"
        )
        assert "as ca_file (--ca-file)" in refused(running, ca_file=certificates / "other-ca")
        assert "is for another name" in refused(running, "localhost", **known)
        assert "expired on" in refused(running, **known, client_cert=certificates / "expired")
        with monkeypatch.context() as patched:  # as if its clock were behind
            patched.setattr("anarchic.worker.tls.validities", lambda _: [])
            told = refused(running, **known, client_cert=certificates / "expired")
            assert "it says that the certificate of this worker has expired" in told
        with Line(running.port) as line:
            line.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert line.hung_up(10)
        for _ in range(5):
            refused(running, **known)
        kinds = Counter(str(line["kind"]) for line in events(running, "handshake_failed"))
        assert set(kinds.values()) == {1}
        for part in ("PEER_DID_NOT", "local issuer", "has expired", "UNKNOWN_CA", "HTTP_REQUEST"):
            assert any(part in kind for kind in kinds), (part, kinds)
        assert running.stop() == 0
        assert "Traceback" not in running.text()
    finally:
        if running.running:
            running.kill()


@pytest.mark.tried(
    "`serve` with a certificate that has expired, is not valid yet, or will expire within 30 days",
    before="served, without a word",
    now="refused if it has expired; otherwise a line in the log",
)
def test_the_server_looks_at_its_own_certificate(tmp_path, certificates, monkeypatch):
    monkeypatch.setattr("anarchic.server.serve.listen", lambda *_: None)
    write_model(tmp_path / "model")

    def start(own: str) -> list[str]:
        lines: list[str] = []
        server.run(
            RunSettings(store=tmp_path / "run.db", init=tmp_path / "model"),
            settings=ServerSettings(open_enrolment=True),
            address=Address(
                port=free_port(), tls_cert=certificates / own, tls_key=certificates / own
            ),
            log=lambda event, **facts: lines.append(event),
        )
        return lines

    with pytest.raises(ConfigError, match=r"expired on .*--tls-cert"):
        start("expired")
    assert not (tmp_path / "run.db").exists()
    assert start("valid") == []
    assert start("soon") == ["certificate_expires_soon"]
    assert start("early") == ["certificate_not_valid_yet"]


def test_an_authority_that_has_expired_is_refused_unless_another_has_not(certificates, tmp_path):
    later = NOW + timedelta(days=366 * 200)
    own = {"tls_cert": certificates / "valid", "tls_key": certificates / "valid"}
    address = Address(**own, client_ca=certificates / "expired")
    with pytest.raises(ConfigError, match="--client-ca"):
        check_tls(address, print)
    both = tmp_path / "both"
    both.write_text((certificates / "expired").read_text() + (certificates / "ca").read_text())
    check_tls(Address(**own, client_ca=both), print)
    with pytest.raises(ConfigError, match="expired on"):
        check_tls(Address(**own), print, now=later)


def test_the_dates_are_those_that_openssl_reads(certificates):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    for name in ("valid", "expired", "early", "ca"):
        command = ["openssl", "x509", "-noout", "-dates", "-in", str(certificates / name)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = validities(certificates / name)[0]
        form = "%b %d %H:%M:%S %Y GMT"
        dates = [time.strptime(line.split("=")[1].strip(), form) for line in shown.splitlines()]
        assert [found.first.timetuple()[:6], found.last.timetuple()[:6]] == [d[:6] for d in dates]


@pytest.mark.parametrize("junk", [b"", b"junk", b"-----BEGIN CERTIFICATE-----\nMAAA\n-----END "
                                  b"CERTIFICATE-----\n"])  # fmt: skip
def test_what_is_no_certificate_has_no_dates(tmp_path, junk):
    (tmp_path / "junk").write_bytes(junk)
    assert validities(tmp_path / "junk") == []
    assert validities(tmp_path / "missing") == []


def test_the_commands_of_the_page_make_certificates_that_work(tmp_path):
    if shutil.which("openssl") is None or shutil.which("bash") is None:
        pytest.skip("openssl or bash is not installed")
    page = (ROOT / "docs" / "deploy.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```bash\n")[1:]]
    script = next(block for block in blocks if "openssl req -x509" in block)
    script = script.replace('cd "$ETC/tls"', "NAME=127.0.0.1").replace("=DNS:%s", "=IP:%s")
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, capture_output=True, check=True)
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "cert.pem", "ann.pem"]
    subprocess.run(verify, cwd=tmp_path, check=True)  # as Python does from 3.13 on
    words = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--client-ca", "ca.pem")
    files = [str(tmp_path / word) if word.endswith("pem") else word for word in words]
    place = (str(tmp_path / "run.db"), write_model(tmp_path / "model"), tmp_path / "log")
    running = ServerProcess(*place, "--open-enrolment", *files)
    running.start()
    try:
        until(lambda: events(running, "listening"), 30)
        for path in ("/healthz", "/metrics"):
            assert asked(running.port, path, tmp_path, "ann") == 200
            with pytest.raises((ssl.SSLError, ConnectionError)):
                asked(running.port, path, tmp_path, None)
        assert running.stop() == 0
    finally:
        if running.running:
            running.kill()


def asked(port: int, path: str, folder: Path, worker: str | None) -> int:
    """The status of an answer to a client that shows the certificate of a worker, or none."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if worker is not None:
        context.load_cert_chain(folder / f"{worker}.pem", folder / f"{worker}-key.pem")
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status
