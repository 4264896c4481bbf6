"""One store under several names, with kills in the middle of a write: SQLite.

SQLite writes a journal beside the database and, after a crash, looks for it by name. Whoever opens
the same file by another name does not see an interrupted write, and damages the store.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from anarchic.errors import AnarchicError, StoreUnavailable
from anarchic.server import filelock, serve
from anarchic.server.runs import check_alone
from anarchic.server.settings import Address, RunSettings, ServerSettings
from anarchic.server.store import open_store
from tests.chaos.servers import LAYOUT, ServerProcess, free_port, write_model
from tests.chaos.talk import Line, get_json
from tests.chaos.updates import encoded
from tests.server.pusher import EMPTY, body_of, check
from tests.server.stored import new
from tests.server.test_store_crash import ENVIRONMENT, ROOT, answered, pusher
from tests.server.test_sync_before_answer import _may_trace
from tests.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="locks of Linux")

OPEN = """
import sys
from anarchic.server.accounts import put_account
from anarchic.server.records import Account
from anarchic.server.store import open_store
store = open_store(sys.argv[1])
put_account(store, Account("eve", b"hash", False))
print("claimed" if store.claim() else "refused")
"""


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT, check=False, timeout=60
    )


def open_mounted(source: Path, target: Path, *, opens: Path) -> str:
    """What a process says that opens the store, writes, and wants to serve it.

    It sees ``source`` also as ``target``, in a mount namespace of its own.
    """
    bind = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    places = (str(source), str(target), sys.executable, "-c", OPEN, str(opens))
    found = _run("unshare", "-rm", "sh", "-c", bind, "sh", *places)
    return found.stdout + found.stderr


def _may_mount() -> bool:
    there = shutil.which("unshare") is not None
    return there and _run("unshare", "-rm", "mount", "--bind", "/tmp", "/tmp").returncode == 0


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    with closing(open_store(path)) as store:
        store.create({}, b"model", EMPTY)
    return path


@pytest.fixture
def leader(store_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which leads a store and writes to it."""
    with pusher(str(store_path), "x") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.send_signal(signal.SIGCONT)


@pytest.fixture
def led_path(leader: subprocess.Popen[str], store_path: Path) -> Path:
    return store_path


def pause(process: subprocess.Popen[str], path: Path) -> None:
    """Stop a process between two transactions: it still has the lock, and ends nothing itself."""
    while True:
        process.send_signal(signal.SIGSTOP)
        with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
        time.sleep(0.01)


def by_hard_link(path: Path) -> Path:
    other = path.with_name("linked.db")
    other.hardlink_to(path)
    return other


def by_symbolic_link(path: Path) -> Path:
    other = path.with_name("symbolic.db")
    other.symlink_to(path)
    return other


def by_linked_folder(path: Path) -> Path:
    folder = path.with_name("folder")
    folder.symlink_to(path.parent)
    return folder / path.name


def without_lock_file(path: Path) -> Path:
    path.with_name(f"{path.name}.lock").unlink()
    return path


def by_a_new_name(path: Path) -> Path:
    return path.rename(path.with_name("moved.db"))


@pytest.mark.slow
@pytest.mark.tried(
    "a second server by a hard link, a symbolic link or a new name of the store, or with its .lock "
    "file deleted",
    before="it started and led the run too",
    now="refused: the lock is on the file itself",
)
def test_a_second_server_is_refused_by_any_name(
    leader: subprocess.Popen[str], led_path: Path
) -> None:
    pause(leader, led_path)  # it would end once it does not find its file at the old name
    ways = (by_hard_link, by_symbolic_link, by_linked_folder, without_lock_file, by_a_new_name)
    for way in ways:
        other = way(led_path)
        with (
            pytest.raises(AnarchicError, match=r"Another server has|has 2 names"),
            closing(open_store(other)) as store,
        ):
            check_alone(store, wait_s=0.1)
        if way is by_hard_link:
            other.unlink()


def test_no_store_is_made_where_a_server_has_one_open(tmp_path: Path) -> None:
    place, address = tmp_path / "store", Address(port=free_port())
    place.mkdir()
    path, init = place / "run.db", write_model(tmp_path / "model.safetensors")
    settings = ServerSettings(open_enrolment=True)
    with closing(open_store(path)) as store:
        check_alone(store)
        path.rename(tmp_path / "moved.db")
        before = sorted(place.iterdir())
        with pytest.raises(StoreUnavailable, match=r"run\.db is gone, but a server still has it"):
            serve.run(RunSettings(store=path, init=init), settings=settings, address=address)
        assert sorted(place.iterdir()) == before
    open_store(path).close()  # once that server has stopped


@pytest.mark.slow
@pytest.mark.tried(
    "a second server through a bind mount of the store's file, or of its directory",
    before="through a mounted file the store was opened and written to",
    now="refused: a mounted file by its name, a mounted directory by the lock on the file",
)
def test_a_second_server_is_refused_through_a_bind_mount(led_path: Path) -> None:
    if not _may_mount():
        pytest.skip("this system lets nobody mount in a namespace of his own")
    folder = led_path.parent / "a folder"  # the system writes the space as \040
    folder.mkdir()
    file = folder / "run.db"
    file.touch()
    assert "Mount its directory instead" in open_mounted(led_path, file, opens=file)
    led_path.with_name("run.db.lock").unlink()  # so that only the lock on the file is left
    assert open_mounted(led_path.parent, folder, opens=file) == "refused\n"


def killed_at(path: Path, sync: int) -> list[str]:
    """What was accepted by a process that is killed at its n-th fdatasync."""
    inject = ("-e", "trace=fdatasync", "-e", f"inject=fdatasync:signal=KILL:when={sync}")
    words = ["strace", "-f", "-o", "/dev/null", *inject]
    done = _run(*words, sys.executable, "-m", "tests.server.pusher", str(path), str(sync))
    return answered(done.stdout.splitlines(keepends=True))


@pytest.mark.slow
@pytest.mark.tried(
    "a kill at an fdatasync in the middle of a write, then updates through a hard link",
    before="4 accepted updates were gone after 3 of 11 kills",
    now="the link is refused, everything accepted is there",
)
def test_a_kill_in_a_write_costs_nothing_though_the_file_has_a_second_name(
    store_path: Path,
) -> None:
    if not _may_trace():
        pytest.skip("strace is not installed or may not trace here")
    accepted: list[str] = []
    for sync in (9, 13):  # the store is written, and the journal still holds its old pages
        accepted += killed_at(store_path, sync)
        assert store_path.with_name("run.db-journal").read_bytes()[:8] != bytes(8)
        other = by_hard_link(store_path)
        names = [f"by link {sync} {number}" for number in range(4)]
        with suppress(StoreUnavailable), closing(open_store(other)) as store:
            store.append([new("eve", name, body_of(name)) for name in names])
            accepted += names
        other.unlink()
        with closing(open_store(store_path)) as store:
            assert set(accepted) <= {row.id for row in store.trace()}
            check(store, accepted)


def pushed(port: int, worker: str) -> int:
    with Line(port) as line:
        return line.push(encoded(LAYOUT, worker, "1")).status


@pytest.mark.slow
@pytest.mark.tried(
    "the store replaced by a backup, and put back, while its server runs",
    before="after one 503 it went on in the other file, from an older version, with health 200",
    now="503 for updates and health until the file is back; then it goes on by itself",
)
def test_nothing_is_written_to_a_store_that_was_replaced(tmp_path: Path) -> None:
    path, backup = tmp_path / "run.db", tmp_path / "backup.db"
    words = ("--open-enrolment", "--m", "2")
    init = write_model(tmp_path / "model.safetensors")
    with ServerProcess(str(path), init, tmp_path / "log", *words) as server:
        with Line(server.port) as line:
            assert line.push(encoded(LAYOUT, "ann", "1")).status == 202
        shutil.copy(path, backup)
        before = backup.read_bytes()
        path.rename(tmp_path / "away.db")
        backup.rename(path)
        for _ in range(2):
            assert pushed(server.port, "bob") == 503
        until(lambda: get_json(server.port, "/healthz")[0] == 503)
        assert "was moved or replaced while it was open" in server.text()
        assert path.read_bytes() == before
        (tmp_path / "away.db").rename(path)
        until(
            lambda: pushed(server.port, "bob") == 202
        )  # a connection to the other file ends first
        until(lambda: get_json(server.port, "/healthz")[0] == 200)
        until(lambda: server.status()["version"] == 1)


def test_a_store_whose_maker_was_killed_can_be_opened(store_path: Path) -> None:
    """It is made under another name first, and that name is removed last."""
    litter = store_path.with_name("run.db.0123.new")
    litter.hardlink_to(store_path)
    other = store_path.with_name("run.db.4567.new")
    other.touch()
    open_store(store_path).close()
    assert not litter.exists()
    assert other.exists()  # of somebody who is at work


def test_a_lock_ends_with_its_process_though_a_forked_child_lives(store_path: Path) -> None:
    code = (
        "import os, sys, time; from anarchic.server.store import open_store\n"
        "store = open_store(sys.argv[1]); assert store.claim()\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True); os.kill(os.getpid(), 9)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store_path)],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=ROOT, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.wait(20)
            with closing(open_store(store_path)) as store:
                until(store.claim)
                os.kill(child, 0)  # it is still there
        finally:
            os.kill(child, signal.SIGKILL)


def test_closing_one_store_leaves_the_locks_of_another_in_the_same_process(
    store_path: Path,
) -> None:
    """The system frees all of SQLite's locks if any descriptor of the file is closed."""
    one, other = open_store(store_path), open_store(store_path)
    write = (
        "import sqlite3, sys\n"
        "sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    )
    with closing(one):
        with one._database.writing():
            assert other.claim()
            other.close()
            done = _run(sys.executable, "-c", write, str(store_path))
            assert "database is locked" in done.stderr
        assert one.claim()
    assert filelock._open == {}  # with the last store its descriptors are closed


def test_a_server_of_an_earlier_version_keeps_this_one_out(store_path: Path) -> None:
    with (
        closing(sqlite3.connect(f"{store_path}.lock", isolation_level=None)) as earlier,
        closing(open_store(store_path)) as store,
    ):
        earlier.execute("BEGIN EXCLUSIVE")  # its lock
        assert not store.claim()
        earlier.rollback()
        assert store.claim()


@pytest.mark.parametrize("error", [None, errno.EINVAL, errno.EIO])
def test_where_files_have_no_such_lock_the_one_beside_them_remains(
    store_path: Path, error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, "told so")

    if error is None:  # as on macOS and Windows
        monkeypatch.delattr(filelock.fcntl, "F_OFD_SETLK")
    else:
        monkeypatch.setattr(filelock, "_set_lock", refuse)
    with closing(open_store(store_path)) as one, closing(open_store(store_path)) as other:
        if error == errno.EIO:
            with pytest.raises(StoreUnavailable, match="told so"):
                one.claim()
        else:
            assert (one.claim(), other.claim()) == (True, False)
        monkeypatch.undo()
