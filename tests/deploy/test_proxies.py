"""Real nginx and Caddy in front of a real server, with the files of deploy/."""

from __future__ import annotations

import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import trustme

from anarchic import Layout
from anarchic.server.tokens import add_token
from tests.chaos.servers import ServerProcess, free_port, write_model
from tests.chaos.updates import encoded
from tests.deploy.programs import DEPLOY, changed, found, needs, running, until

LAYOUT = Layout.of({"weight": ((1_000_000,), "F32")})  # 4 MB: above every default of a proxy
ELSEWHERE = "127.0.0.2"  # where the worker comes from; the proxy comes from 127.0.0.1
BYTES = {"content-type": "application/octet-stream"}
LIMIT = 64 << 20


@dataclass(frozen=True)
class Site:
    """A folder with certificates, and the ports of a proxy and of two servers behind it."""

    folder: Path
    port: int
    behind: tuple[int, int]

    def values(self, logs: str) -> dict[str, object]:
        return {
            "fl.example.org": "localhost",
            "443": self.port,
            "127.0.0.1:8780": f"127.0.0.1:{self.behind[0]}",
            "127.0.0.1:8790": f"127.0.0.1:{self.behind[1]}",
            "/etc/anarchic/tls": self.folder,
            logs: self.folder / "access.log",
        }

    def client(self, name: str | None = "ann", **headers: str) -> httpx.Client:
        """A worker with the certificate of this name, who comes from ``ELSEWHERE``."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.pem")
        # One connection: requests beyond the first show that it is kept open.
        limits = httpx.Limits(max_connections=1)
        transport = httpx.HTTPTransport(verify=context, local_address=ELSEWHERE, limits=limits)
        url = f"https://localhost:{self.port}"
        return httpx.Client(transport=transport, base_url=url, headers=headers, timeout=20)

    def log(self) -> str:
        path = self.folder / "access.log"
        return path.read_text() if path.exists() else ""


@contextmanager
def nginx(site: Site) -> Iterator[None]:
    needs("nginx")
    whole, own = (DEPLOY / "nginx" / name for name in ("nginx.conf", "anarchic.conf"))
    values = site.values("/var/log/nginx/anarchic.log")
    (site.folder / "anarchic.conf").write_text(changed(own.read_text(), values))
    (site.folder / "nginx.conf").write_text(whole.read_text())
    words = ["-p", str(site.folder), "-c", "nginx.conf", "-g", "daemon off;"]
    with running([found("nginx"), *words], site.folder / "out", site.port):
        yield


@contextmanager
def caddy(site: Site) -> Iterator[None]:
    needs("caddy")
    values = site.values("/var/log/caddy/anarchic.log")
    text = changed((DEPLOY / "caddy" / "Caddyfile").read_text(), values)
    (site.folder / "Caddyfile").write_text(text)
    words = ["run", "--config", str(site.folder / "Caddyfile"), "--adapter", "caddyfile"]
    environment = {"HOME": str(site.folder), "PATH": "/usr/bin:/bin"}
    command = [found("caddy"), *words]
    with running(command, site.folder / "out", site.port, env=environment):
        yield


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def proxy(request):
    return request.param


@pytest.fixture
def site() -> Iterator[Site]:
    """Not in pytest's own directory: nginx works as another user."""
    with tempfile.TemporaryDirectory(prefix="anarchic-proxy-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        own = authority.issue_cert("localhost")
        own.private_key_pem.write_to_path(folder / "key.pem")
        (folder / "cert.pem").write_bytes(b"".join(part.bytes() for part in own.cert_chain_pems))
        for worker in ("ann", "ben"):
            made = authority.issue_cert(f"{worker}@example.org", common_name=worker)
            made.private_key_and_cert_chain_pem.write_to_path(folder / f"{worker}.pem")
        yield Site(folder, free_port(), (free_port(), free_port()))


@contextmanager
def served(site: Site, *more: str) -> Iterator[tuple[ServerProcess, str]]:
    """A server with a token of ann behind the proxy's first port; nothing is behind the second."""
    store = site.folder / "run.db"
    token = add_token(store, "ann")
    model = write_model(site.folder / "model", LAYOUT)
    words = ("--m", "1", "--trusted-proxy", "127.0.0.1", *more)
    place = (str(store), model, site.folder / "server.log")
    with ServerProcess(*place, *words, port=site.behind[0]) as server:
        yield server, f"Bearer {token}"


@pytest.mark.slow
def test_a_worker_pulls_pushes_and_follows_events(proxy, site):
    with ExitStack() as stack:
        server, token = stack.enter_context(served(site))
        stack.enter_context(proxy(site))
        client = stack.enter_context(site.client(authorization=token))
        follower = stack.enter_context(site.client(authorization=token))
        stream = stack.enter_context(follower.stream("GET", "/v1/events"))
        lines = stream.iter_lines()
        assert next(lines) == "id: 0"  # at once, though the stream has not ended
        for version in range(4):  # and while one of two servers is gone
            pulled = client.get("/v1/model")
            assert (pulled.status_code, len(pulled.content) > 4_000_000) == (200, True)
            body = encoded(LAYOUT, "ann", str(version), base_version=0, named=False)
            assert client.post("/v1/updates", content=body, headers=BYTES).status_code == 202
            until(lambda: server.status()["version"] == version + 1)  # noqa: B023
        seen = (line for line in lines if line.startswith("id: "))
        while next(seen) != "id: 4":  # StopIteration: the events were kept back
            pass
        assert client.get("/metrics").status_code == 404
        assert client.get("/v1/workers").status_code == 404
        # Caddy asks the server first, which wants a token.
        assert status_of_too_large(site) == {nginx: 413, caddy: 401}[proxy]
    assert token.removeprefix("Bearer ") not in site.log()


def status_of_too_large(site: Site) -> int:
    """What is answered to more bytes than the proxy takes, whoever sends them."""
    context = ssl.create_default_context(cafile=site.folder / "ca.pem")
    context.load_cert_chain(site.folder / "ann.pem")
    with closing(HTTPSConnection("localhost", site.port, context=context, timeout=20)) as line:
        with suppress(OSError):  # it may hang up while they are sent
            line.request("POST", "/v1/updates", b"x" * (LIMIT + 1), BYTES)
        return line.getresponse().status


@pytest.mark.slow
def test_the_server_knows_from_where_a_worker_comes(proxy, site):
    with served(site) as (server, _), proxy(site), site.client() as client:
        forged = {"x-forwarded-for": "192.0.2.7"}
        assert client.get("/v1/model", headers=forged).status_code == 401

        def refused() -> list[str]:
            lines = [json.loads(t) for t in server.text().splitlines(True) if t[-1] == "\n"]
            return [line["address"] for line in lines if line["event"] == "refused"]

        until(lambda: refused() == [ELSEWHERE])
        until(lambda: ELSEWHERE in site.log())


@pytest.mark.slow
def test_a_worker_without_a_certificate_is_not_passed_on(proxy, site):
    with served(site), proxy(site), site.client(None) as stranger:
        try:
            answer = stranger.get("/v1/status").status_code
        except httpx.TransportError:  # Caddy ends the handshake, nginx answers
            answer = 400
        assert answer == 400


@pytest.mark.slow
def test_a_token_works_only_with_the_certificate_of_its_worker(proxy, site):
    with served(site, "--bind-names") as (server, token), proxy(site):
        forged = {"authorization": token, "X-Client-Subject": "CN=ann"}
        with site.client("ann", authorization=token) as own, site.client("ben") as other:
            assert own.get("/v1/model").status_code == 200
            refused = other.get("/v1/model", headers=forged)
            assert (refused.status_code, refused.json()["error"]) == (403, "certificate_name")
        # Past the proxy, from where its word counts, a token alone does not do.
        direct = {"authorization": token}
        answer = httpx.get(f"http://127.0.0.1:{server.port}/v1/model", headers=direct)
        assert answer.status_code == 403


class _Recorder(BaseHTTPRequestHandler):
    """A server that shows what a proxy passes on."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps([*self.headers.items(), ("port", self.client_address[1])]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_a_proxy_replaces_what_a_worker_says_of_itself(proxy, site):
    forged = {"X-Forwarded-For": "192.0.2.7", "X-Client-Subject": "CN=ben"}
    with ThreadingHTTPServer(("127.0.0.1", site.behind[0]), _Recorder) as behind:
        threading.Thread(target=behind.serve_forever).start()
        try:
            with proxy(site), site.client("ann") as client:
                came = [client.get("/", headers=forged).json() for _ in range(3)]
        finally:
            behind.shutdown()
    for headers in came:
        said = {name.lower(): value for name, value in headers}
        names = [name.lower() for name, _ in headers]
        assert names.count("x-client-subject") == names.count("x-forwarded-for") == 1
        assert "CN=ann" in said["x-client-subject"]
        assert "ben" not in said["x-client-subject"]
        assert said["x-forwarded-for"] == ELSEWHERE
    assert len({dict(headers)["port"] for headers in came}) == 1  # it keeps its connection open
