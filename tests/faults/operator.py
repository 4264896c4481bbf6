"""What people do to a server, and what happens to its machine: one method per kind of event."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import apsw
import numpy as np

from anarchic.errors import AnarchicError
from anarchic.server.accounts import new_token, put_account
from anarchic.server.operate import steer
from anarchic.server.runs import begin
from anarchic.server.settings import RuleSettings
from anarchic.server.store import open_store
from anarchic.server.tokens import add_token, revoke_token
from tests.faults.disk import MEMORY
from tests.faults.hub import Hub, Process
from tests.faults.lookalikes import in_place
from tests.faults.plan import WORKERS, Event, Plan
from tests.faults.workers import LAYOUT

if TYPE_CHECKING:
    from tests.faults.server import Server
    from tests.faults.world import World

STEER_S = 3.0  # how long an operator waits for a command
LIVE_S = 5.0  # how long a server runs whose store was replaced
_made: dict[tuple[object, ...], tuple[bytes, dict[str, str]]] = {}


def first_store(path: Path, plan: Plan) -> dict[str, str]:
    """A store with a run and a token per worker; returns the tokens. Made once per process."""
    key = (plan.rule, plan.m, plan.guard, plan.keep_payloads)
    if key not in _made:
        _made[key] = _make_store(plan)
    content, tokens = _made[key]
    path.write_bytes(content)
    path.chmod(0o600)
    return tokens


def _make_store(plan: Plan) -> tuple[bytes, dict[str, str]]:
    """In memory, without faults, with tokens and a run id that are the same every time."""
    nobody = Hub(Random(0))
    with in_place(nobody, sqlite3.connect, "first store"), TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "run.db"
        store = open_store(path, keep_payloads=plan.keep_payloads)
        params = np.linspace(-1, 1, LAYOUT.dim).astype(np.float32)
        rate = 1.0 if plan.guard else 1e21
        rules = RuleSettings(rule=plan.rule, m=plan.m, server_lr=rate, guard=plan.guard)
        begin(store, rules, LAYOUT, params)
        tokens = {}
        for name in WORKERS:
            tokens[name], account = new_token(name)
            put_account(store, account)
        store.close()
        return path.read_bytes(), tokens


class Operator:
    """Methods are named after the kinds of events."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._commands: list[Process] = []
        self._links: list[Path] = []

    def command(self, run: Callable[[], object], name: str) -> None:
        """Run a command line in a process of its own."""
        process = Process(name)
        self._commands.append(process)

        def main() -> None:
            try:
                run()
            except (AnarchicError, OSError) as error:
                self._world.note(f"{name} failed: {error}")

        self._world.hub.spawn(process, main, name)

    def kill_commands(self) -> None:
        for process in self._commands:
            self._world.hub.kill(process)
        self._commands.clear()

    # The machine

    def kill(self, event: Event, rng: Random) -> None:
        self._world.kill_server()
        self._world.start_at = self._world.hub.now + event["back_after_s"]

    def power_cut(self, event: Event, rng: Random) -> None:
        self._world.cut_power()
        self._world.start_at = self._world.hub.now + event["back_after_s"]

    def kill_in_write(self, event: Event, rng: Random, *, power: bool = False) -> None:
        self._world.disk.faults.kill_after = event["after"]
        self._world.disk.faults.power = power

    def power_cut_in_write(self, event: Event, rng: Random) -> None:
        self.kill_in_write(event, rng, power=True)

    def stop(self, event: Event, rng: Random) -> None:
        world = self._world
        world.start_at = world.hub.now + event["back_after_s"]
        if world.server is not None:
            world.server.stop()

    def pause(self, event: Event, rng: Random) -> None:
        if self._world.server is not None:
            self._world.server.paused_until = self._world.hub.now + event["for_s"]

    def full_disk(self, event: Event, rng: Random) -> None:
        faults = self._world.disk.faults
        faults.full = True
        self._world.later(event["for_s"], lambda: setattr(faults, "full", False))

    def failing_disk(self, event: Event, rng: Random) -> None:
        faults = self._world.disk.faults
        faults.errors = event["chance"]
        self._world.later(event["for_s"], lambda: setattr(faults, "errors", 0.0))

    def slow_disk(self, event: Event, rng: Random) -> None:
        faults = self._world.disk.faults
        faults.slow_s = event["sync_s"]
        self._world.later(event["for_s"], lambda: setattr(faults, "slow_s", 0.0))

    def full_log(self, event: Event, rng: Random) -> None:
        self._world.log_full_until = self._world.hub.now + event["for_s"]

    def blocked_log(self, event: Event, rng: Random) -> None:
        self._world.log_blocked_until = self._world.hub.now + event["for_s"]

    def clock_jump(self, event: Event, rng: Random) -> None:
        self._world.hub.wall_offset += event["by_s"]

    def bad_network(self, event: Event, rng: Random) -> None:
        self._world.network.bad_until = self._world.hub.now + event["for_s"]

    def hostile(self, event: Event, rng: Random) -> None:
        world, worker = self._world, self._world.workers[event["who"]]
        world.hub.spawn(
            world.hub.outside, lambda: worker.misbehave(world, event["what"], event, rng), "hostile"
        )

    # The people

    def token_add(self, event: Event, rng: Random) -> None:
        world, who = self._world, event["who"]

        def add() -> None:
            world.workers[who].token = add_token(world.path, who)

        self.command(add, f"token add {who}")

    def token_revoke(self, event: Event, rng: Random) -> None:
        path, who = self._world.path, event["who"]
        self.command(lambda: revoke_token(path, who), f"token revoke {who}")

    def steer(self, event: Event, rng: Random) -> None:
        path, arguments = self._world.path, dict(event.args)
        what, part = arguments.pop("what"), arguments.pop("part", None)
        if part is not None:
            arguments["to"] = int(part * self._world.invariants.newest_version)

        def give() -> None:
            found = steer(path, what, arguments, by="operator", wait_s=STEER_S)
            self._world.note(f"{what} {found.outcome}: {found.reason}")

        self.command(give, what)

    def restore(self, event: Event, rng: Random) -> None:
        """Copy the store while its server runs, as docs/commands.md says; go back to it later."""
        world = self._world
        copy = world.disk.folder / f"backup{event.number}.db"
        if world.server is None or not world.server.ready:
            world.note("no backup: no server runs")
            return
        source = apsw.Connection(str(world.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            source.execute("VACUUM INTO ?", (str(copy),))
        except apsw.BusyError as error:
            world.note(f"no backup: {error}")
            return
        finally:
            source.close()
        world.later(event["for_s"], lambda: self._put_back(copy, live=event["live"]))

    def _put_back(self, copy: Path, *, live: bool) -> None:
        """Stop the server, put the backup in place of the store, start again.

        If the server runs meanwhile (``live``), it must notice; it is stopped a while later.
        """
        world = self._world
        world.note(f"the backup is restored{' while the server runs' if live else ''}")
        if live:
            world.later(LIVE_S, world.kill_server)
        else:
            world.kill_server()
        self.kill_commands()
        Path(f"{world.path}-journal").unlink(missing_ok=True)
        copy.chmod(0o600)
        os.replace(copy, world.path)
        world.invariants.restored()

    def second_server(self, event: Event, rng: Random) -> None:
        """Somebody starts a server on the same store, through another name for it."""
        world, through = self._world, event["through"]
        other = world.path.with_name(f"other{event.number}.db")
        match through:
            case "same":
                other = world.path
            case "symlink":
                other.symlink_to(world.path)
            case "hard_link":
                other.hardlink_to(world.path)
            case "no_lock_file":
                other = world.path
                Path(f"{world.path}.lock").unlink(missing_ok=True)
        if other != world.path:
            self._links.append(other)
        server = world.start_other(other)
        world.later(event["for_s"], lambda: self._end_second(server, other))

    def _end_second(self, server: Server, link: Path) -> None:
        world = self._world
        if server in world.others:
            world.note(f"second server ends ({server.failure or 'it was serving'})")
            world.others.remove(server)
            world.kill(server)
        self._unlink(link)

    def _unlink(self, link: Path) -> None:
        if link in self._links:
            self._links.remove(link)
            link.unlink(missing_ok=True)
            Path(f"{link}.lock").unlink(missing_ok=True)

    def tidy_up(self) -> None:
        """At the end of all faults."""
        self._world.disk.faults.kill_after = None
        for server in list(self._world.others):
            self._world.others.remove(server)
            self._world.kill(server)
        for link in list(self._links):
            self._unlink(link)
        if self._world.server is not None:
            self._world.server.paused_until = 0.0
