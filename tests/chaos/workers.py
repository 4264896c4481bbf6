"""Workers that misbehave in every way that a network and a crash allow.

They run as threads, here or in a process that can be killed (``python -m tests.chaos.workers``).
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from anarchic import Update, wire
from tests.chaos.ledger import Ledger
from tests.chaos.servers import LAYOUT
from tests.chaos.talk import Answer, Line, Unreachable, get_json, push_head

Sent = tuple[str, bytes]  # id, body


class Pusher:
    """One worker. What it does next is drawn; what it did stands in the ledger."""

    def __init__(self, name: str, ports: Sequence[int], ledger: Ledger, seed: int) -> None:
        self.name, self._ports, self._ledger = name, ports, ledger
        self._random, self._numbers = random.Random(seed), np.random.default_rng(seed)
        self._port = self._random.choice(ports)
        self._line = Line(self._port)
        self._version = 0
        self._past: list[Sent] = []
        self._habits = [
            (self._plainly, 8),
            (self._again, 2),
            (self._twice_at_once, 1),
            (self._cut, 2),
            (self._without_listening, 1),
            (self._malformed, 1),
            (self._other_body_same_id, 1),
        ]

    def run(self, stop: threading.Event) -> None:
        habits, weights = zip(*self._habits, strict=True)
        while not stop.is_set():
            try:
                self._random.choices(habits, weights)[0]()
            except Unreachable:
                self._move()
                stop.wait(self._random.uniform(0.0, 0.1))
        self._line.close()

    def _move(self) -> None:
        self._line.close()
        self._port = self._random.choice(self._ports)
        self._line = Line(self._port)

    def _new(self, *, scale: float = 1.0) -> Sent:
        direction = scale * self._numbers.standard_normal(LAYOUT.dim).astype(np.float32)
        id = uuid.UUID(int=self._random.getrandbits(128)).hex
        base = max(0, self._version - self._random.randrange(3))
        update = Update(self.name, base, self._random.randint(1, 9), 0.1, direction, id=id)
        dtype = self._random.choice(("F32", "F32", "F16", "BF16"))
        return id, wire.encode_update(LAYOUT, update, dtype=dtype, worker=self.name)

    def _push(self, sent: Sent, line: Line | None = None) -> Answer:
        id, body = sent
        self._ledger.sends(self.name, id, body)
        answer = (line or self._line).push(body)
        self._hear(sent, answer)
        return answer

    def _hear(self, sent: Sent, answer: Answer) -> None:
        self._ledger.hears(self.name, *sent, answer.status)
        if answer.status in (200, 202):
            self._version = answer.json()["version"]
            self._past = [*self._past[-50:], sent]
        elif answer.status == 409:  # too old, perhaps
            self._version = get_json(self._port, "/v1/status")[1]["version"]
        elif answer.status == 429:
            time.sleep(self._random.uniform(0.005, 0.03))

    def _plainly(self) -> None:
        """Most settle what a crash left open by sending it again; some never do."""
        sent = self._new()
        try:
            self._push(sent)
        except Unreachable:
            if self._random.random() < 0.3:
                raise
            for _ in range(20):
                self._move()
                time.sleep(self._random.uniform(0.0, 0.2))
                with contextlib.suppress(Unreachable):
                    if self._push(sent).status not in (429, 503):
                        return
            raise

    def _again(self) -> None:
        if self._past:
            self._push(self._random.choice(self._past))

    def _twice_at_once(self) -> None:
        sent = self._new()

        def push(port: int) -> None:
            with Line(port) as line, contextlib.suppress(Unreachable):
                self._push(sent, line)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(push, self._random.choices(self._ports, k=2)))

    def _cut(self) -> None:
        id, body = self._new()
        request = push_head(len(body)) + body
        self._ledger.sends(self.name, id, body, whole=False)
        with Line(self._port) as line:
            line.send(request[: self._random.randrange(1, len(request))])
            time.sleep(self._random.uniform(0.0, 0.02))

    def _without_listening(self) -> None:
        id, body = self._new()
        self._ledger.sends(self.name, id, body)
        with Line(self._port) as line:
            line.send(push_head(len(body)) + body)
            time.sleep(self._random.choice((0.0, 0.002, 0.02)))

    def _malformed(self) -> None:
        self._push(self._new(scale=float("nan")))

    def _other_body_same_id(self) -> None:
        if self._past:
            id, _ = self._random.choice(self._past)
            ones = np.ones(LAYOUT.dim, np.float32)
            update = Update(self.name, self._version, 1, 0.5, ones, id=id)
            self._push((id, wire.encode_update(LAYOUT, update, worker=self.name)))


def start(
    names: Sequence[str], ports: Sequence[int], ledger: Ledger, stop: threading.Event, seed: int
) -> list[threading.Thread]:
    pushers = [Pusher(name, ports, ledger, seed + n) for n, name in enumerate(names)]
    threads = [threading.Thread(target=pusher.run, args=(stop,)) for pusher in pushers]
    for thread in threads:
        thread.start()
    return threads


class Herd:
    """Workers in a process of their own, which can be killed."""

    def __init__(self, names: Sequence[str], ports: Sequence[int], ledger: Path) -> None:
        self._words = (list(names), list(ports), str(ledger))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, seed: int) -> None:
        words = json.dumps([*self._words, seed])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.workers", words], stdin=subprocess.PIPE
        )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """It ends by itself when its input does."""
        assert self._process is not None
        self._process.communicate(timeout=60)


def main() -> None:
    names, ports, path, seed = json.loads(sys.argv[1])
    stop = threading.Event()
    threads = start(names, ports, Ledger(Path(path)), stop, seed)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
