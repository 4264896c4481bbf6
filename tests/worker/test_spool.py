import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anarchic import Update
from anarchic.errors import WorkerError
from anarchic.worker import Retry, Spool
from anarchic.worker.spool import OutgoingUpdate
from tests.waiting import until
from tests.worker.faulty import ids

ONES = np.ones(2, np.float32)


def finished(id="a", body=b"body", run="run-a", **kept):
    return OutgoingUpdate(id, run, 3, body, kept)


def test_an_update_comes_back_as_it_was(tmp_path):
    spool = Spool(tmp_path / "deep" / "spool")
    name = spool.put(finished(control=ONES))
    found = spool.get(name)
    assert (found.id, found.run, found.base_version, found.body) == ("a", "run-a", 3, b"body")
    assert found.local_state["control"].tolist() == [1.0, 1.0]
    spool.remove(name)
    assert spool.waiting() == []


def test_updates_wait_in_order(tmp_path):
    spool = Spool(tmp_path)
    names = [spool.put(finished(str(n))) for n in range(12)]
    spool.remove(names[0])
    names.append(spool.put(finished("12")))
    spool.close()
    again = Spool(tmp_path)
    assert [again.get(name).id for name in again.waiting()] == [str(n) for n in range(1, 13)]


def test_an_update_is_on_disk_before_its_file_has_a_name(tmp_path, monkeypatch):
    """File, rename, folder: in this order, or a power cut could lose what was promised."""
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))
        )
    Spool(tmp_path).put(finished())
    assert calls == ["fsync", "replace", "fsync"]


def test_a_full_spool_takes_no_more(tmp_path):
    spool = Spool(tmp_path, max_updates=2, max_bytes=100_000)
    with pytest.raises(WorkerError, match="full") as caught:
        spool.put(finished(body=b"x" * 200_000))
    assert caught.value.code == "spool_full"
    spool.put(finished())
    spool.put(finished())
    with pytest.raises(WorkerError, match="full: 2 updates"):
        spool.put(finished())


def test_a_spool_is_locked_by_one_worker(tmp_path):
    first = Spool(tmp_path)
    with pytest.raises(WorkerError, match="in use by another worker"):
        Spool(tmp_path)
    first.close()
    Spool(tmp_path).close()


def damage(path, how):
    whole = path.read_bytes()
    torn = {"empty": b"", "short": whole[:-5], "text": b"hello" * 30}
    if how in torn:
        return path.write_bytes(torn[how])
    at = how if how >= 0 else len(whole) + how
    return path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


@pytest.mark.parametrize("how", ["empty", "short", "text", *range(0, 400, 7), -1, -9])
@pytest.mark.slow
def test_a_damaged_file_is_set_aside_and_the_others_are_sent(tmp_path, server, how, caplog):
    spool = Spool(tmp_path)
    server.faults = ["refused connection"] * 2
    worker = server.worker(spool=spool, retry=Retry(tries=1))
    for _ in range(2):
        with pytest.raises(WorkerError, match="refused"):
            worker.send(worker.encode(Update("ann", 0, 1, 0.5, ONES)))
    names = spool.waiting()
    damage(tmp_path / names[0], how)
    server.posts.clear()
    assert worker.send_spooled() == {"damaged": 1, "accepted": 1}
    assert len(server.posts) == len(server.taken) == 1
    assert (tmp_path / "damaged" / names[0]).exists()
    assert "spool_damaged" in caplog.text


def test_half_written_files_are_deleted(tmp_path):
    (tmp_path / "000000000000.update.part").write_bytes(b"half")
    assert Spool(tmp_path).waiting() == []
    assert not list(tmp_path.glob("*.part"))


def test_a_full_disk_does_not_keep_an_update_from_being_sent(tmp_path, server, monkeypatch, caplog):
    worker = server.worker(spool=tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("anarchic.wire.write", full)
    assert worker.push(ONES, local_lr=0.5).status == "accepted"
    assert "spool_failed" in caplog.text


def test_spooled_updates_are_sent_first_after_a_restart(tmp_path, server):
    server.faults = [503] * 2
    worker = server.worker(spool=tmp_path, retry=Retry(tries=2))
    with pytest.raises(WorkerError):
        worker.push(ONES, local_lr=0.5)
    worker.close()
    with server.worker(spool=tmp_path) as again:
        again.push(2 * ONES, local_lr=0.5)
    assert ids(server.posts)[0] == ids(server.posts)[2] == next(iter(server.taken))[1]
    assert len(set(server.posts[:3])) == 1
    assert len(server.taken) == 2


def test_an_update_of_another_run_is_dropped(tmp_path, server):
    """A version number means another model there."""
    server.faults = [503]
    worker = server.worker(spool=tmp_path, retry=Retry(tries=1))
    with pytest.raises(WorkerError):
        worker.push(ONES, local_lr=0.5)
    server.run = "run-b"
    assert worker.send_spooled() == {"other_run": 1}
    assert (server.taken, worker.spool.waiting()) == ({}, [])


def test_local_state_belongs_to_one_run(tmp_path):
    spool = Spool(tmp_path)
    assert spool.local_state("run-a") == {}
    spool.save_local_state("run-a", {"own_control": ONES})
    assert spool.local_state("run-a")["own_control"].tolist() == [1.0, 1.0]
    assert spool.local_state("run-b") == {}
    (tmp_path / "kept").write_bytes(b"")
    assert spool.local_state("run-a") == {}


ONE_PUSH = """
import sys
import numpy as np
from anarchic.worker import Worker
with Worker(sys.argv[1], name="ann", spool=sys.argv[2]) as worker:
    print(worker.push(np.ones(2, np.float32), local_lr=0.5).status)
"""


@pytest.mark.slow
def test_a_worker_killed_while_sending_sends_the_same_update_again(tmp_path, listening):
    scripted = listening.scripted
    scripted.faults = ["hang"]
    command = [sys.executable, "-c", ONE_PUSH, listening.url, str(tmp_path / "spool")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    first = subprocess.Popen(command, env=environment)
    until(lambda: scripted.posts)
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    assert scripted.taken == {}
    scripted.faults.clear()
    second = subprocess.run(command, env=environment, timeout=60, check=True, capture_output=True)
    assert second.stdout.split() == [b"accepted"]
    assert len(scripted.taken) == 2  # what the first had finished, and the second's own
    assert scripted.posts[0] == scripted.posts[1] != scripted.posts[2]
