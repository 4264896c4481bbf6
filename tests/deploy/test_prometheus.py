"""The files of deploy/prometheus, judged by Prometheus itself and tried on a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx
import pytest

from anarchic.server.tokens import add_token
from tests.chaos.servers import LAYOUT, ServerProcess, free_port, write_model
from tests.chaos.updates import encoded
from tests.deploy.programs import DEPLOY, ROOT, anarchic, changed, needs, running, until
from tests.deploy.test_grafana import expressions
from tests.server.live import BYTES

pytestmark = pytest.mark.slow
FOLDER = DEPLOY / "prometheus"
ALERTS = FOLDER / "alerts.yml"

# A run in good order: one value per minute.
HEALTHY = {
    'up{job="anarchic",instance="a"}': "1x120",
    'anarchic_leads{job="anarchic",instance="a"}': "1x120",
    'anarchic_leads{job="anarchic",instance="b"}': "0x120",
    'anarchic_version{job="anarchic",instance="a"}': "0+4x120",
    'anarchic_version{job="anarchic",instance="b"}': "0+4x120",
    'anarchic_updates_total{job="anarchic",instance="a",outcome="accepted"}': "0+40x120",
    'anarchic_updates_per_step{job="anarchic",instance="a"}': "10x120",
    'anarchic_updates_folded_total{job="anarchic",instance="a"}': "0+40x120",
    'anarchic_updates_clipped_total{job="anarchic",instance="a"}': "0+1x120",
    'anarchic_updates_set_aside_total{job="anarchic",instance="a"}': "0x120",
    'anarchic_refusals_total{job="anarchic",instance="a",code="stale"}': "0+1x120",
    'anarchic_store_answers{job="anarchic",instance="a"}': "1x120",
    'anarchic_healthy{job="anarchic",instance="a"}': "1x120",
    'anarchic_store_seconds_bucket{job="anarchic",operation="append",le="0.1"}': "0+40x120",
    'anarchic_store_seconds_bucket{job="anarchic",operation="append",le="5"}': "0+40x120",
    'anarchic_store_seconds_bucket{job="anarchic",operation="append",le="+Inf"}': "0+40x120",
    'anarchic_certificate_expires_seconds{job="anarchic",instance="a"}': f"{90 * 86400}x120",
    'anarchic_store_free_bytes{job="anarchic",instance="a"}': "100000000000x120",
}
# What becomes of some of these on a bad day, by the alert that tells of it after an hour.
BAD = {
    "AnarchicServerDown": {"up": "1x20 0x100"},
    "AnarchicNobodyLeads": {"anarchic_leads": "1x20 0x100"},
    "AnarchicNoNewVersion": {"anarchic_version": "0+4x20 80x100"},
    "AnarchicStoreFailing": {"anarchic_store_answers": "1x20 0x100"},
    "AnarchicUnwell": {"anarchic_healthy": "1x20 0x100"},
    "AnarchicStoreSlow": {'operation="append",le="0.1"': "0x120"},
    "AnarchicManyRefusals": {"anarchic_refusals_total": "0+30x120"},
    "AnarchicUpdatesSetAside": {"anarchic_updates_set_aside_total": "0x30 1x90"},
    "AnarchicUpdatesClipped": {"anarchic_updates_clipped_total": "0+20x120"},
    "AnarchicCertificateExpires": {"anarchic_certificate_expires_seconds": f"{10 * 86400}x120"},
    "AnarchicDiskLow": {"anarchic_store_free_bytes": "500000000x120"},
    "AnarchicDiskFills": {"anarchic_store_free_bytes": "100000000000-1000000000x120"},
}


def promtool(*words: object) -> None:
    needs("promtool")
    command = ["promtool", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_files():
    promtool("check", "config", FOLDER / "prometheus.yml")
    promtool("check", "rules", ALERTS)


def case(name: str, changed: dict[str, str], *firing: str) -> dict[str, object]:
    series = dict(HEALTHY)
    for part, values in changed.items():
        matching = [key for key in series if part in key]
        assert matching, f"no series has {part}"
        series |= dict.fromkeys(matching, values)
    wanted = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": "1h", "exp_samples": wanted}],
    }


def test_each_alert_fires_on_its_bad_day_and_no_other_does(tmp_path):
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert alerts
    assert set(alerts) == set(BAD)
    paused = {"anarchic_version": "0+4x50 200x70", "anarchic_updates_total": "0+40x50 2000x70"}
    quiet = [case("in good order", {}), case("paused ten minutes ago", paused)]
    cases = [*quiet, *(case(alert, changed, alert) for alert, changed in BAD.items())]
    shutil.copy(ALERTS, tmp_path)
    tests = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))  # which is YAML too
    promtool("test", "rules", tmp_path / "tests.yml")


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[int]:
    """A Prometheus with this configuration; the port that it answers on."""
    needs("prometheus")
    shutil.copy(ALERTS, folder)
    (folder / "prometheus.yml").write_text(config.replace("15s", "1s"))
    port = free_port()
    words = ("--config.file", folder / "prometheus.yml", "--storage.tsdb.path", folder / "data")
    command = ["prometheus", *map(str, words), "--web.listen-address", f"127.0.0.1:{port}"]
    with running(command, folder / "prometheus.log", port):
        yield port


def asked(port: int, expression: str) -> list[dict[str, object]]:
    """What Prometheus answers to a query now; nothing while it still starts."""
    answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": expression})
    if answer.status_code == 503:
        return []
    assert answer.status_code == 200, f"{expression}: {answer.text}"
    found: list[dict[str, object]] = answer.json()["data"]["result"]
    return found


def from_elsewhere(folder: Path, admin: int) -> str:
    """The configuration with what it says for a Prometheus on another machine."""
    text = (FOLDER / "prometheus.yml").read_text()
    head, mark, rest = text.partition("    # If Prometheus runs on another machine")
    assert mark
    _, _, rest = rest.partition("\n")
    text = head + re.sub(r"^    # ", "    ", rest, flags=re.M)
    values = {
        "127.0.0.1:8781": f"127.0.0.1:{admin}",
        "/etc/prometheus/ca.pem": folder / "ca.pem",
        "/etc/prometheus/operator.token": folder / "operator.token",
    }
    return changed(text, values)


def secured(folder: Path, admin: int) -> tuple[ServerProcess, ssl.SSLContext]:
    """A server with TLS, client certificates and an operator; and how workers reach it."""
    trustme = pytest.importorskip("trustme")
    authority, own, ca = trustme.CA(), folder / "own.pem", folder / "ca.pem"
    own.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(ca)
    context = ssl.create_default_context(cafile=ca)
    authority.issue_cert("ann@example.org").configure_cert(context)
    store = str(folder / "run.db")
    (folder / "operator.token").write_text(add_token(store, "olga", rights="operate") + "\n")
    words = ["--admin-port", admin, "--admin-tokens", "--admin-tls", "--tls-cert", own]
    words += ["--tls-key", own, "--client-ca", ca, "--open-enrolment", "--m", 2]
    words += ["--evaluate", "tests.server.evaluations:named"]
    init = write_model(folder / "model")
    return ServerProcess(store, init, folder / "log", *map(str, words)), context


def test_prometheus_scrapes_a_server_and_can_answer_every_panel(tmp_path):
    admin = free_port()
    server, context = secured(tmp_path, admin)
    server.start()
    pushed = count()

    def push() -> None:
        worker = f"worker-{next(pushed)}"
        for body in (encoded(LAYOUT, worker, "1"), b"junk"):
            client.post("/v1/updates", content=body, headers=BYTES)

    def answered(expression: str) -> bool:
        push()  # so that rates have something to count
        return bool(asked(port, expression))

    url = f"https://127.0.0.1:{server.port}"
    try:
        until(lambda: "listening" in server.text())
        with (
            httpx.Client(base_url=url, verify=context) as client,
            prometheus(tmp_path, from_elsewhere(tmp_path, admin)) as port,
        ):
            for expression in ("up == 1", *expressions()):
                until(lambda e=expression: answered(e))
            (group,) = httpx.get(f"http://127.0.0.1:{port}/api/v1/rules").json()["data"]["groups"]
            assert {rule["name"] for rule in group["rules"]} == set(BAD)
            assert [rule["name"] for rule in group["rules"] if rule["health"] == "err"] == []
        assert server.stop() == 0
    finally:
        if server.running:
            server.kill()


def test_the_commands_of_the_page_work(tmp_path):
    needs("promtool", "curl")
    page = (ROOT / "docs" / "operate.md").read_text()
    section = page.partition("\n## Monitor\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.S)
    assert len(blocks) == 2
    ports = {"--admin-port 8781": "--admin-port ADMIN --port WORKERS", ":8781": ":ADMIN"}
    script = changed("\n".join(blocks), ports)
    script = changed(script, {"ADMIN": free_port(), "WORKERS": free_port()})
    (tmp_path / "deploy").symlink_to(DEPLOY)
    write_model(tmp_path / "model.safetensors")
    add_token(tmp_path / "run.db", "ann")
    path = f"{Path(anarchic()).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill %1; wait' EXIT\n{script}"],
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert '{"status":"ready"}{"status":"ok"}' in done.stdout
    assert (tmp_path / "operator.token").read_text().startswith("prometheus.")
