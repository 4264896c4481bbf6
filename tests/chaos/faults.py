"""The fault test: push, kill, restart, and compare."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from anarchic.server.store import open_store
from tests.chaos.ledger import Ledger, Verdict, check, stories
from tests.chaos.servers import ServerProcess, write_model
from tests.chaos.talk import Unreachable
from tests.chaos.workers import Herd, start

TAKE_OVER_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    kills: int = 4
    workers: int = 8
    herds: int = 1  # of these workers, a quarter each lives in a process that is killed too
    replicas: int = 1
    rule: str = "afa-cd"
    m: int = 4
    options: tuple[str, ...] = ()
    calm_s: tuple[float, float] = (0.1, 0.8)  # between a start and the next kill
    seed: int = 0


@dataclass
class Report:
    verdict: Verdict
    kills: int
    herd_kills: int
    seconds: float
    take_overs_s: list[float] = field(default_factory=list)  # from a leader's death to the next
    restarts_s: list[float] = field(default_factory=list)  # from a start to the first answer


def run(
    plan: Plan, folder: Path, store: str, say: Callable[[str], None] = lambda text: None
) -> Report:
    """Kill as planned; then stop gracefully and check. ``AssertionError`` says what is wrong."""
    began = time.monotonic()
    rng = random.Random(plan.seed)
    init = write_model(folder / "model.safetensors")
    words = ("--rule", plan.rule, "--m", str(plan.m), "--open-enrolment", "--keep-payloads")
    servers = [
        ServerProcess(store, init, folder / f"server-{n}.log", *words, *plan.options)
        for n in range(plan.replicas)
    ]
    ports = [server.port for server in servers]
    stop, report = threading.Event(), Report(None, 0, 0, 0.0)  # type: ignore[arg-type]
    names = [f"worker-{n}" for n in range(plan.workers)]
    herded = max(1, plan.workers // 4)
    herds = [
        Herd(names[n * herded : (n + 1) * herded], ports, folder / f"herd-{n}.ledger")
        for n in range(plan.herds)
    ]
    free = names[plan.herds * herded :]
    threads: list[threading.Thread] = []
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.await_ready()
        threads = start(free, ports, Ledger(folder / "here.ledger"), stop, plan.seed * 1000)
        for number, herd in enumerate(herds):
            herd.start(plan.seed * 1000 + 500 + number)
        for kill in range(plan.kills):
            time.sleep(rng.uniform(*plan.calm_s))
            if herds and rng.random() < 0.5:
                rng.choice(herds).kill()
                report.herd_kills += 1
            _kill_and_restart(servers, report)
            for number, herd in enumerate(herds):
                herd.kill()
                herd.start(plan.seed * 1000 + 1000 * kill + number)
            say(f"kill {kill + 1} of {plan.kills}, version {_version(servers)}")
        for server in servers:
            server.await_ready()
        time.sleep(1.0)
        stop.set()
        for herd in herds:
            herd.stop()
        for thread in threads:
            thread.join()
        for server in servers:
            assert server.stop() == 0, server.text()[-3000:]
    finally:
        stop.set()
        for server in servers:
            if server.running:
                server.kill()
    report.kills = plan.kills
    for server in servers:
        assert "Traceback" not in server.text(), server.text()[-5000:]
    opened = open_store(store, keep_payloads=True)
    try:
        report.verdict = check(opened, stories(sorted(folder.glob("*.ledger"))), m=plan.m)
    finally:
        opened.close()
    report.seconds = time.monotonic() - began
    return report


def _kill_and_restart(servers: list[ServerProcess], report: Report) -> None:
    victim = leader(servers)
    others = [server for server in servers if server is not victim]
    if others:
        _await_any(others)
    victim.kill()
    died = time.monotonic()
    if others:
        leader(others)
        report.take_overs_s.append(time.monotonic() - died)
    began = time.monotonic()
    victim.start()
    if not others:
        victim.await_ready()
        report.restarts_s.append(time.monotonic() - began)


def _await_any(servers: list[ServerProcess], timeout_s: float = 30.0) -> None:
    """Wait until one of them can take over: processes take their time to start."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        for server in servers:
            with suppress(Unreachable):
                server.status()
                return
        time.sleep(0.02)
    raise AssertionError("none of the replicas has started")


def leader(servers: list[ServerProcess], timeout_s: float = 30.0) -> ServerProcess:
    """The one that leads; waits until there is one."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        for server in servers:
            with suppress(Unreachable):
                if server.running and server.status()["leads"]:
                    return server
        time.sleep(0.01)
    raise AssertionError("nobody leads:\n" + "\n".join(s.text()[-1000:] for s in servers))


def _version(servers: list[ServerProcess]) -> object:
    for server in servers:
        with suppress(Unreachable):
            return server.status()["version"]
    return "?"
