"""For whom a certificate is, with real handshakes."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from anarchic.core.certificates import common_names
from anarchic.server.tls import log_handshakes, names_in
from tests.server.test_tls import shake_hands

trustme = pytest.importorskip("trustme")
x509 = pytest.importorskip("cryptography.x509")
NAMES = x509.SubjectAlternativeName


def issue(authority, path, *, common=("ann",), others=(), raw=None):
    """A client certificate with any names, whatever they are; ``raw`` is the list as DER."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, oid = ec.generate_private_key(ec.SECP256R1()), x509.NameOID.COMMON_NAME
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, name) for name in common]))
        .issuer_name(authority._certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=9))
    )
    if others:
        made = made.add_extension(NAMES(others), critical=False)
    if raw is not None:
        odd = x509.UnrecognizedExtension(x509.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, raw)
        made = made.add_extension(odd, critical=False)
    signed = made.sign(authority._private_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    path.write_bytes(private + signed.public_bytes(pem))
    return path


def shown(authority, path):
    """The names that a server finds after a handshake with this certificate."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    for context in (server, client):
        authority.configure_trust(context)
    server.verify_mode = ssl.CERT_REQUIRED
    client.load_cert_chain(path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    log_handshakes(server, print)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for _ in range(3):
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert there.certificate == b""  # nothing of it is kept
    return names_in(there)


DNS, MAIL, URI = x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier


@pytest.mark.parametrize(
    ("common", "others", "expected"),
    [
        (["ann"], [], {"ann"}),
        (["ann"], [DNS("bob")], {"bob"}),  # then the common name does not count
        ([], [DNS("bob"), MAIL("ann@example.org")], {"bob", "ann@example.org"}),
        (["ann"], [URI("spiffe://x/bob")], {"ann"}),  # no worker has such a name
        (["ann", "bob"], [], set()),
        ([], [], set()),
        (["ann\0.evil"], [], {"ann\0.evil"}),
        (["*"], [DNS("*.example.org")], {"*.example.org"}),
        (["ann,CN=bob"], [], {"ann,CN=bob"}),
        (["Ann"], [], {"Ann"}),
        (["än\N{RIGHT-TO-LEFT OVERRIDE}n"], [], {"än\N{RIGHT-TO-LEFT OVERRIDE}n"}),
    ],
)
def test_whom_a_certificate_is_for(tmp_path, common, others, expected):
    authority = trustme.CA()
    path = issue(authority, tmp_path / "own", common=common, others=others)
    assert shown(authority, path) == expected


@pytest.mark.parametrize("name", [b"\xff\xfe", b"ann\0bob", b""])
def test_names_that_are_no_text_are_nobodys(tmp_path, name):
    authority = trustme.CA()
    inner = b"\x82" + bytes([len(name)]) + name  # a DNS name
    path = issue(authority, tmp_path / "own", raw=b"\x30" + bytes([len(inner)]) + inner)
    assert "ann" not in shown(authority, path)


def test_a_refused_certificate_is_named_in_the_log(tmp_path):
    known, stranger = trustme.CA(), trustme.CA(organization_name="others")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    known.issue_cert("127.0.0.1").configure_cert(server)
    known.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    lines, now = [], [0.0]
    log_handshakes(server, lambda event, **facts: lines.append(facts), lambda: now[0])
    for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
        client = ssl.create_default_context()
        known.configure_trust(client)
        client.maximum_version = version
        client.load_cert_chain(issue(stranger, tmp_path / "own", common=["bob\x1b[31m"]))
        assert shake_hands(server, client) is not None
        now[0] += 100
    assert [line["certificate"] for line in lines] == ["bob\\x1b[31m"] * 2


def test_a_name_is_read_of_any_bytes_without_an_error(tmp_path):
    path = issue(trustme.CA(), tmp_path / "own", common=["ann"])
    der = ssl.PEM_cert_to_DER_cert(path.read_text()[path.read_text().index("-----BEGIN CERT") :])
    assert common_names(der)[0] == "ann"
    for at in range(120):
        for odd in (0, 0x30, 0x7F, 0x84, 0xFF):
            common_names(der[:at] + bytes([odd]) + der[at + 1 :])
        common_names(der[:at])
