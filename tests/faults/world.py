"""The world of one seed: it lets the events of a plan happen, and looks after every step."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from greenlet import getcurrent

from anarchic.server import access, filelock
from tests.faults.disk import Disk
from tests.faults.hub import Hub, Process, Task
from tests.faults.invariants import Invariants, Violation
from tests.faults.lookalikes import in_place
from tests.faults.network import Network, Request
from tests.faults.operator import Operator, first_store
from tests.faults.plan import HORIZON_S, WORKERS, Event, Plan
from tests.faults.server import Server, without_sockets
from tests.faults.workers import Worker

STEP_S = 1.0  # at most this long between two looks
CALM_S = 20.0  # without faults, at the end: everything must come right by itself
LEAST_CALM_S = 4.0  # it ends earlier if nothing more will happen
ACCOUNTS_S = 3.0  # less often than a real server: each time costs a transaction
RESTART_S = 1.0  # how long the supervisor waits before it starts the server again


@dataclass(frozen=True)
class Outcome:
    """What became of a seed."""

    seed: int
    violation: Violation | None
    history: list[str]
    happened: Counter[str]
    checks: Counter[str]
    updates: int
    versions: int


class World:
    """Everything that is simulated, for one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.hub = Hub(plan.rng("turns"), plan.switching)
        self.disk = Disk(self.hub, plan.rng("disk"))
        self.path = self.disk.folder / "run.db"
        self.network, self.operator = Network(self), Operator(self)
        self.history: list[str] = []
        self.happened: Counter[str] = Counter()
        self.log_lines = 0
        self.log_full_until = self.log_blocked_until = 0.0
        self.server: Server | None = None
        self.others: list[Server] = []  # that somebody started by mistake
        self.start_at = 0.0  # when the supervisor may start the server
        self.calm = False
        self.invariants = Invariants(self)
        tokens = first_store(self.path, plan)
        self.workers = {name: Worker(name, tokens[name]) for name in WORKERS}
        self._ends: list[tuple[float, Callable[[], None]]] = []  # when a fault ends

    def note(self, text: str) -> None:
        text = text.replace(f"{self.disk.folder}/", "")  # it has another name every time
        self.history.append(f"{self.hub.now - 1000:8.3f}  {text}")

    def run(self) -> Outcome:
        violation = None
        with (
            warnings.catch_warnings(),
            patch.object(access, "ACCOUNTS_S", ACCOUNTS_S),
            without_sockets(self.hub),
            in_place(self.hub, self.disk.connect, f"{self.plan.seed} secrets"),
        ):
            warnings.simplefilter("ignore")  # as in a server: a warning is no error
            try:
                self._live()
            except Violation as found:
                violation = found
                self.note(f"VIOLATED {found}")
            finally:
                self._end()
        self.happened += self.disk.happened
        checked = self.invariants
        return Outcome(
            self.plan.seed, violation, self.history, self.happened, checked.checks,
            len(checked.entries), checked.newest_version,
        )  # fmt: skip

    def _live(self) -> None:
        self.hub.spawn(self.hub.outside, self._ask_health, "monitor")
        begin = self.hub.now
        for event in self.plan.events:
            self._until(begin + event.at)
            self._happen(event)
        self._until(begin + HORIZON_S)
        self._calm_down()
        end = self.hub.now + CALM_S
        while self.hub.now < end and not self._is_settled():
            self._until(self.hub.now + LEAST_CALM_S)
        self.invariants.at_the_end()

    def _until(self, when: float) -> None:
        """Let time pass, and look after every step."""
        while self.hub.now < when:
            step = min(when, self.hub.now + STEP_S, *(end for end, _ in self._ends), when)
            self.hub.run_until(max(step, self.hub.now), self._reap)
            for end in [end for end in self._ends if end[0] <= self.hub.now]:
                self._ends.remove(end)
                end[1]()
            self._supervise()
            self.invariants.look()
            if self.hub.outside.deaths:  # a bug of the simulator itself
                raise RuntimeError(self.hub.outside.traces[0])

    def _happen(self, event: Event) -> None:
        rng = self.plan.rng(f"event {event.number}")
        if event.kind == "visit":
            worker = self.workers[event["who"]]
            self.hub.spawn(
                self.hub.outside, lambda: worker.visit(self, event, rng), f"visit {event.number}"
            )
            return
        self.note(str(event))
        self.happened[event.kind] += 1
        getattr(self.operator, event.kind)(event, rng)
        self.hub.run_until(self.hub.now, self._reap)
        self.invariants.look()

    def later(self, after_s: float, end: Callable[[], None]) -> None:
        """When a fault is over."""
        self._ends.append((self.hub.now + after_s, end))

    def _reap(self) -> None:
        """End the process, or all of them, that a fault hit in the middle of a write."""
        doomed = self.disk.doomed
        if doomed is None:
            return
        if self.disk.faults.power:
            self.cut_power()
        elif doomed is self.server:
            self.kill_server()
        else:
            self.kill(doomed)
        self.disk.doomed = None

    def kill(self, process: Process) -> None:
        self.note(f"{process.name} is killed")
        self.invariants.store.forget()
        if isinstance(process, Server):
            process.abandon()
        if process is self.server:
            self.invariants.unanswered()
        self.hub.kill(process)
        self.disk.forget(process)
        if isinstance(process, Server):
            process.free_locks()

    def kill_server(self) -> None:
        if self.server is not None:
            self.kill(self.server)
            self.server = None

    def cut_power(self) -> None:
        self.note("the power is cut")
        for other in self.others:
            self.kill(other)
        self.others.clear()
        self.operator.kill_commands()
        self.kill_server()
        self.disk.cut_power(self.plan.rng(f"cut {self.hub.now}"))

    def _supervise(self) -> None:
        """Start the server again if it is gone, as systemd does."""
        if self.server is not None and self.server.ended:
            self.note(f"server ended: {self.server.failure}")
            self.invariants.ended(self.server)
            self.kill(self.server)
            self.server = None
            self.start_at = max(self.start_at, self.hub.now + RESTART_S)
        if self.server is None and self.hub.now >= self.start_at:
            self.server = Server(self, self.path, "server")
            self.note("server starts")

    def start_other(self, path: Path) -> Server:
        other = Server(self, path, "second server")
        self.others.append(other)
        return other

    def _ask_health(self) -> None:
        rng = self.plan.rng("health")
        while True:
            self.hub.sleep(1.0)
            request = Request(self, "GET", "/healthz", {})
            asked = self.hub.now
            answer = self.network.call(request, rng, reliable=True)
            self.invariants.health_told(asked, answer)

    def _calm_down(self) -> None:
        """No more faults; workers settle what they still hold."""
        self.note("no more faults")
        for _, end in self._ends:
            end()
        self._ends.clear()
        self.calm = True
        self.disk.faults.__init__()  # type: ignore[misc]
        self.network.bad_until = self.log_full_until = self.log_blocked_until = 0.0
        self.operator.tidy_up()
        for worker in self.workers.values():
            rng = self.plan.rng(f"settle {worker.name}")
            self.hub.spawn(self.hub.outside, lambda w=worker, r=rng: w.flush(self, r, 20), "settle")

    def _is_settled(self) -> bool:
        """Whether nothing more will happen, and all is well."""
        busy = any(task.name in ("settle", "packet") for task in self.hub.outside.tasks)
        visits = any(task.name.startswith("visit") for task in self.hub.outside.tasks)
        return not (busy or visits) and self.invariants.all_well()

    def _end(self) -> None:
        assert not isinstance(getcurrent(), Task)
        for server in [*self.others, *([self.server] if self.server else [])]:
            self.kill(server)
        self.hub.kill(self.hub.outside)
        self.operator.kill_commands()
        self.invariants.store.forget()
        self.disk.close()
        for descriptor in filelock._open:  # of commands that were killed
            os.close(descriptor)
        for kept in (filelock._open, filelock._unused, filelock._users):
            kept.clear()
