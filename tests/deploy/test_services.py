"""The units of deploy/systemd under a real systemd: this machine's own, booted on a copy of it.

The copy is an overlay that is thrown away, so that nothing here changes. The services see no home
directories, as the units say: Python and its packages are shown to them elsewhere.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.deploy.programs import DEPLOY, ROOT, found, needs

BOOT_S = 120.0
TRY = """
[Unit]
Requires=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash -x /result/try.sh
StandardOutput=append:/result/out
StandardError=inherit
ExecStopPost=/bin/systemctl --force --force poweroff
"""
SERVER = """
store = "/var/lib/anarchic/run.db"
init = "/etc/anarchic/model.safetensors"
tls_cert = "cert.pem"
tls_key = "key.pem"
client_ca = "ca.pem"
bind_names = true
admin_port = 8781
admin_tls = false
m = 2
"""
WORKER = """
server = "https://localhost:8780"
task = "digits:1/2"
ca_file = "ca.pem"
client_cert = "ann.pem"
updates = 8
"""
SCRIPT = """
cd /etc/anarchic
operators=http://127.0.0.1:8781
ready() {
    for _ in $(seq 150); do curl --silent --fail $operators/readyz && return; sleep 0.2; done
}
logs() { journalctl --no-pager --output=cat --unit="$1" > "/result/$2"; }
ldconfig
systemd-sysusers /etc/sysusers.d/anarchic.conf
chown anarchic key.pem
install -d -o anarchic -g anarchic -m 700 /var/lib/anarchic
export PATH=/opt/anarchic/bin:$PATH
anarchic init --model logistic --out model.safetensors
chmod 644 model.safetensors
runuser -u anarchic -- /opt/anarchic/bin/anarchic token add ann \\
    --store /var/lib/anarchic/run.db > worker-ann.token
systemctl daemon-reload
systemctl start anarchic-server@8780
ready
systemctl start anarchic-worker@ann
for _ in $(seq 150); do systemctl is-active anarchic-worker@ann || break; sleep 0.2; done
systemctl show --property=Result --property=ExecMainStatus anarchic-worker@ann > /result/worker
systemctl reload anarchic-server@8780
for _ in $(seq 150); do
    logs anarchic-server@8780 so-far
    grep -q certificate_loaded /result/so-far && break
    sleep 0.2
done
systemctl show --property=MainPID anarchic-server@8780 > /result/first
systemctl kill --kill-whom=main --signal=KILL anarchic-server@8780
for _ in $(seq 150); do
    systemctl show --property=MainPID anarchic-server@8780 | diff -q - /result/first || break
    sleep 0.2
done
ready
systemctl show --property=MainPID anarchic-server@8780 > /result/second
curl --silent $operators/v1/status > /result/status
systemctl stop anarchic-server@8780
systemctl show --property=Result anarchic-server@8780 > /result/server
logs anarchic-server@8780 server.log
logs anarchic-worker@ann worker.log
"""


def write_python(root: Path) -> list[str]:
    """An environment in /opt/anarchic like that of the tests; what it needs is bound to /opt."""
    home, script = root / "opt" / "anarchic", root / "opt" / "anarchic" / "bin" / "anarchic"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    script.parent.mkdir()
    (home / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    (home / "bin" / "python").symlink_to(f"/opt/python/bin/python{version}")
    script.write_text("#!/opt/anarchic/bin/python\nfrom anarchic.cli import main\nmain()\n")
    script.chmod(0o755)
    # A shared library of this Python comes before another one of the system.
    (root / "etc" / "ld.so.conf.d" / "000-python.conf").write_text("/opt/python/lib\n")
    places = [p for p in sys.path if "site-packages" in p and Path(p).is_dir()]
    shown = {str(ROOT / "src"): "/opt/site/src"}
    shown |= {place: f"/opt/site/{number}" for number, place in enumerate(places)}
    (packages / "all.pth").write_text("\n".join(shown.values()) + "\n")
    shown[sys.base_prefix] = "/opt/python"
    return [f"--bind-ro={place}:{target}" for place, target in shown.items()]


def write_site(root: Path) -> None:
    etc = root / "etc" / "anarchic"
    etc.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(etc / "ca.pem")
    own = authority.issue_cert("localhost")
    own.private_key_pem.write_to_path(etc / "key.pem")
    worker = authority.issue_cert("ann")
    for cert, name in ((own, "cert.pem"), (worker, "ann.pem")):
        (etc / name).write_bytes(b"".join(part.bytes() for part in cert.cert_chain_pems))
    worker.private_key_pem.write_to_path(etc / "worker-ann-key.pem")
    (etc / "server.toml").write_text(SERVER)
    (etc / "worker-ann.toml").write_text(WORKER)
    for private in ("key.pem", "worker-ann-key.pem"):
        (etc / private).chmod(0o600)
    units = root / "etc" / "systemd" / "system"
    for unit in (DEPLOY / "systemd").glob("*.service"):
        (units / unit.name).write_text(unit.read_text())
    (units / "try.service").write_text(TRY)
    (root / "etc" / "sysusers.d").mkdir(exist_ok=True)
    users = (DEPLOY / "systemd" / "anarchic.conf").read_text()
    (root / "etc" / "sysusers.d" / "anarchic.conf").write_text(users)


@contextmanager
def copy_of_this_machine(folder: Path) -> Iterator[Path]:
    """Its disk, with an overlay that takes the changes; skips where that is not allowed."""
    disk, root = folder / "disk", folder / "disk" / "root"
    disk.mkdir()
    if mount("tmpfs", "tmpfs", disk) != 0:
        pytest.skip("no mounts are allowed here: run it as root of a machine of its own")
    try:
        for name in ("upper", "work", "root"):
            (disk / name).mkdir()
        options = f"lowerdir=/,upperdir={disk}/upper,workdir={disk}/work"
        if mount("overlay", "overlay", root, "-o", options) != 0:
            pytest.skip("this kernel makes no overlay of its own root file system")
        try:
            yield root
        finally:
            subprocess.run(["umount", root], check=True)
    finally:
        subprocess.run(["umount", disk], check=True)


def mount(kind: str, what: str, where: Path, *words: str) -> int:
    command = ["mount", "-t", kind, *words, what, where]
    return subprocess.run(command, check=False, capture_output=True).returncode


def boot(root: Path, result: Path, words: list[str]) -> None:
    """Boot it until ``try.service`` has ended."""
    private = ["--private-network", "--register=no", "--keep-unit", f"--bind={result}:/result"]
    command = [found("systemd-nspawn"), "--quiet", "--directory", root, *private, *words, "--boot"]
    with (result / "boot").open("wb") as log:
        process = subprocess.Popen(
            [*command, "systemd.unit=try.service"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(BOOT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def events(log: Path) -> list[str]:
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.slow
def test_server_and_worker_run_as_services():
    needs("systemd-nspawn", "systemd-analyze", "curl")
    if os.geteuid() != 0:
        pytest.skip("a system can be booted by root only")
    with tempfile.TemporaryDirectory(prefix="anarchic-services-") as name:
        folder, result = Path(name), Path(name) / "result"
        result.mkdir()
        (result / "try.sh").write_text(SCRIPT)
        with copy_of_this_machine(folder) as root:
            write_site(root)
            boot(root, result, write_python(root))
        if not (result / "out").exists():
            pytest.skip(f"systemd does not boot here: {(result / 'boot').read_text()[-300:]}")
        shown = {path.name: path.read_text() for path in result.iterdir() if path.is_file()}
        assert "server" in shown, shown["out"][-3000:]
        told = shown["out"][-3000:] + shown["server.log"] + shown["worker.log"]
        assert shown["worker"].split() == ["Result=success", "ExecMainStatus=0"], told
        assert shown["server"].split() == ["Result=success"], told
        # Killed, it was started again, and went on with what it had.
        assert shown["first"] != shown["second"] != "MainPID=0\n", told
        assert json.loads(shown["status"])["version"] == 4, told
        log = events(result / "server.log")
        assert (log.count("leads"), log[-1]) == (2, "stopped"), told
        assert "certificate_loaded" in log, told  # by systemctl reload
