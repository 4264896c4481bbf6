"""The manifests of deploy/kubernetes: against Kubernetes' own schemas, and with each other."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from anarchic.server.tokens import add_token, export_tokens
from tests.chaos.servers import free_port, write_model
from tests.deploy.programs import DEPLOY, ROOT, anarchic, changed, running
from tests.deploy.settings import check_settings

yaml = pytest.importorskip("yaml", reason="no PyYAML: run make test-deploy, which installs it")
FILES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.30", "1.34")
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def resources(path: Path) -> dict[str, Any]:
    """By kind: a file has one of each."""
    all_of_them = list(yaml.safe_load_all(path.read_text()))
    kinds = {resource["kind"]: resource for resource in all_of_them}
    assert len(kinds) == len(all_of_them)
    return kinds


def workload(kinds: dict[str, Any]) -> dict[str, Any]:
    return kinds.get("Deployment") or kinds["StatefulSet"]


@every_file
@pytest.mark.parametrize("version", VERSIONS)
def test_a_manifest_follows_the_schemas(path, version):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="no kubernetes-validate: make test-deploy installs it"
    )
    for resource in resources(path).values():
        validate.validate(resource, version, strict=True)


@every_file
def test_selectors_ports_and_volumes_fit(path):
    kinds = resources(path)
    spec = workload(kinds)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selected = [
        spec["selector"]["matchLabels"],
        kinds["Service"]["spec"]["selector"],
        kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    if "PodDisruptionBudget" in kinds:
        selected.append(kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    assert selected == [labels] * len(selected)

    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [container[name]["httpGet"] for name in container if name.endswith("Probe")]
    assert len(probes) == 3
    app = (ROOT / "src" / "anarchic" / "server" / "app.py").read_text()
    for probe in probes:
        assert probe["port"] == "admin"  # where no certificate and no token is asked for
        assert f'"{probe["path"]}"' in app
    reached = {
        rule["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]: [
            port["port"] for port in rule["ports"]
        ]
        for rule in kinds["NetworkPolicy"]["spec"]["ingress"]
    }
    assert reached == {"ingress-nginx": ["http"], "monitoring": ["admin"]}
    assert all(port["targetPort"] in ports for port in kinds["Service"]["spec"]["ports"])
    made = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
    volumes = [volume["name"] for volume in pod["volumes"]]
    every = [container, *pod.get("initContainers", ())]
    mounts = {mount["name"] for one in every for mount in one["volumeMounts"]}
    assert mounts == {*volumes, *made}


@every_file
def test_the_server_is_given_settings_that_it_has(path):
    kinds = resources(path)
    settings = tomllib.loads(kinds["ConfigMap"]["data"]["server.toml"])
    check_settings("serve", settings)
    (container,) = workload(kinds)["spec"]["template"]["spec"]["containers"]
    command, *words = container["args"]
    check_settings(command, [word[2:] for word in words if word.startswith("--")])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert int(words[words.index("--port") + 1]) == ports["http"]
    assert settings["admin_port"] == ports["admin"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    for file in (settings["init"], words[words.index("--config") + 1]):
        assert str(Path(file).parent) in mounted


@every_file
def test_a_pod_has_no_rights(path):
    pod = workload(resources(path))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    user = (
        (DEPLOY / "container" / "Containerfile").read_text().partition("\nUSER ")[2].split(":")[0]
    )
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    for one in (container, *pod.get("initContainers", ())):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_store_in_a_file_has_one_server_and_others_have_two():
    replicas = {path.stem: workload(resources(path))["spec"]["replicas"] for path in FILES}
    assert replicas == {"postgres": 2, "sqlite": 1}
    budget = resources(DEPLOY / "kubernetes" / "postgres.yaml")["PodDisruptionBudget"]["spec"]
    assert budget["minAvailable"] < replicas["postgres"]  # or no node could ever be emptied


@pytest.mark.slow
def test_a_server_starts_with_the_settings_of_the_manifest(tmp_path):
    """Probes are answered without a token, operators are not."""
    kinds = resources(DEPLOY / "kubernetes" / "sqlite.yaml")
    text = kinds["ConfigMap"]["data"]["server.toml"]
    (before,) = workload(kinds)["spec"]["template"]["spec"]["initContainers"]
    port, admin = free_port(), free_port()
    write_model(tmp_path / "model.safetensors")
    add_token(tmp_path / "tokens.db", "ann")
    (tmp_path / "tokens.json").write_text(export_tokens(tmp_path / "tokens.db"))
    script = changed(before["command"][2], {"/data": tmp_path, "/tokens/": f"{tmp_path}/"})
    for _ in range(2):  # the second time it changes nothing
        command = ["sh", "-c", script.replace("anarchic token", f"{anarchic()} token")]
        subprocess.run(command, check=True, capture_output=True)
    values = {"/data/": f"{tmp_path}/", "/model/": f"{tmp_path}/", "8781": admin}
    (tmp_path / "server.toml").write_text(changed(text, values))
    words = ["serve", "--config", str(tmp_path / "server.toml"), "--port", str(port)]
    with running([anarchic(), *words], tmp_path / "log", port):
        status = {
            (at, path): httpx.get(f"http://127.0.0.1:{at}{path}").status_code
            for at in (admin, port)
            for path in ("/healthz", "/readyz", "/metrics")
        }
    assert status == {
        (admin, "/healthz"): 200, (admin, "/readyz"): 200, (admin, "/metrics"): 401,
        (port, "/healthz"): 200, (port, "/readyz"): 200, (port, "/metrics"): 401,
    }  # fmt: skip
