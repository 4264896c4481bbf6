"""The units of deploy/systemd, judged by systemd's own tools."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.programs import DEPLOY, anarchic, changed, found, needs

UNITS = {"anarchic-server@.service": "8780", "anarchic-worker@.service": "ann"}
MOST_EXPOSED = 20  # tenths, of 100: "OK" by the words of systemd begins at 50, without units 96


@pytest.fixture(params=UNITS)
def unit(request, tmp_path) -> Path:
    """An instance of a unit, with the command where it is on this machine."""
    name = request.param
    text = (DEPLOY / "systemd" / name).read_text()
    path = tmp_path / name.replace("@", f"@{UNITS[name]}")
    path.write_text(changed(text, {"/opt/anarchic/bin/anarchic": anarchic()}))
    (tmp_path / name).write_text(path.read_text())
    return path


def analyzed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    needs("systemd-analyze")
    command = [found("systemd-analyze"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_a_unit_has_no_fault(unit):
    result = analyzed("verify", "--man=no", unit)
    # Other units of this machine may have faults of their own.
    assert [line for line in result.stderr.splitlines() if "anarchic" in line] == []
    assert result.returncode == 0


def test_systemd_finds_faults_of_such_a_unit(unit):
    unit.write_text(unit.read_text().replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"))
    assert "NoNewPrivilege" in analyzed("verify", "--man=no", unit).stderr


def test_a_unit_can_do_little_harm(unit):
    words = ("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", unit)
    result = analyzed(*words)
    assert re.search(r"Overall exposure level for .*: [01]\.\d", result.stdout), result.stderr
    assert result.returncode == 0


def test_users_file_names_the_user_of_the_server():
    user = re.search(r"^u (\w+) ", (DEPLOY / "systemd" / "anarchic.conf").read_text(), re.M)
    unit = (DEPLOY / "systemd" / "anarchic-server@.service").read_text()
    assert user is not None
    assert f"\nUser={user[1]}\n" in unit
