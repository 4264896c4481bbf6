"""Workers: they pull, train, push, and send again until they have an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from anarchic import Layout, Update, wire
from tests.faults.network import Answer, Request
from tests.faults.plan import Event
from tests.faults.server import digest

if TYPE_CHECKING:
    from tests.faults.world import World

LAYOUT = Layout.of({"bias": ((2,), "F32"), "weight": ((2, 3), "F32")})
TRIES = 3
LATER = (429, 503, 507)  # and no answer at all: the same update is sent again


@dataclass
class Parcel:
    """An update that has no answer yet."""

    id: str
    body: bytes
    base: str  # digest of the model that it was trained from


@dataclass
class Worker:
    """One worker, across its visits."""

    name: str
    token: str
    etag: str | None = None
    model: bytes = b""
    spool: list[Parcel] = field(default_factory=list)
    sent: list[Parcel] = field(default_factory=list)

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def visit(self, world: World, event: Event, rng: Random) -> None:
        """Pull, train, push; first what an earlier visit could not send."""
        self.flush(world, rng, TRIES)
        if not self.pull(world, rng):
            return
        world.hub.sleep(rng.uniform(0.05, 3.0))
        seed = rng.randrange(2**32)
        direction = np.random.default_rng(seed).standard_normal(LAYOUT.dim).astype(np.float32)
        self.spool.append(self.parcel(f"u{event.number}", direction))
        self.flush(world, rng, TRIES)

    def pull(self, world: World, rng: Random) -> bool:
        """The newest model, if it is not the one that is here; whether there is one."""
        known = {"if-none-match": self.etag} if self.etag else {}
        answer = world.network.call(
            Request(world, "GET", "/v1/model", {**self.headers(), **known}), rng
        )
        if answer is not None and answer.status == 200:
            self.etag, self.model = answer.headers["etag"], answer.body
        elif answer is not None and answer.status == 304:
            world.invariants.unchanged(self)
        if self.model and rng.random() < 0.2:
            self._look_up(world, rng)
        return bool(self.model)

    def _look_up(self, world: World, rng: Random) -> None:
        """The same version by its address, which may be cached for ever."""
        model = self.model  # another visit may pull a newer one meanwhile
        _, snapshot, run = wire.decode_snapshot(model)
        _, _, epoch = wire.snapshot_facts(model)
        told = f"?epoch={epoch}" if epoch else ""
        path = f"/v1/runs/{run}/models/{snapshot.version}{told}"
        answer = world.network.call(Request(world, "GET", path, self.headers()), rng)
        if answer is not None and answer.status == 200 and answer.body != model:
            world.invariants.violated("identity", f"{path} gives another model than it did")

    def parcel(
        self,
        id: str,
        direction: np.ndarray,
        *,
        base_version: int | None = None,
        local_lr: float = 0.1,
    ) -> Parcel:
        _, snapshot, run = wire.decode_snapshot(self.model)
        base = snapshot.version if base_version is None else base_version
        update = Update(self.name, base, 2, local_lr, direction, id=id)
        _, _, epoch = wire.snapshot_facts(self.model)
        body = wire.encode_update(LAYOUT, update, run=run, epoch=epoch)
        return Parcel(id, body, digest(self.model))

    def flush(self, world: World, rng: Random, tries: int) -> None:
        """Send what is in the spool, oldest first, until one gets no answer that settles it."""
        while self.spool:
            parcel = self.spool[0]
            for _ in range(tries):
                answer = self.push(world, parcel, rng)
                if answer is not None and answer.status not in LATER:
                    break
                world.hub.sleep(rng.uniform(0.5, 2.0))
            else:
                return
            if parcel in self.spool:  # two visits may send the same at the same time
                self.spool.remove(parcel)
                self.sent.append(parcel)
            if answer.status == 409:  # what it trained from is too old, or is gone
                self.etag = None

    def push(self, world: World, parcel: Parcel, rng: Random) -> Answer | None:
        request = Request(
            world, "POST", "/v1/updates", self.headers(), parcel.body,
            key=(self.name, parcel.id), base=parcel.base,
        )  # fmt: skip
        answer = world.network.call(request, rng)
        told = "no answer" if answer is None else f"{answer.status} {answer.code}".strip()
        world.note(f"{self.name} pushes {parcel.id}: {told}")
        return answer

    def misbehave(self, world: World, what: str, event: Event, rng: Random) -> None:
        """Send something that no honest worker sends."""
        if not self.pull(world, rng):
            return
        id, ones = f"h{event.number}", np.ones(LAYOUT.dim, np.float32)
        match what:
            case "junk":
                parcel = Parcel(id, rng.randbytes(rng.randrange(1, 400)), "")
            case "nan":
                body = bytearray(self.parcel(id, ones).body)
                body[-4:] = np.float32("nan").tobytes()
                parcel = Parcel(id, bytes(body), "")
            case "large":
                parcel = self.parcel(id, ones * np.float32(1e15))
            case "overflow":
                parcel = self.parcel(id, ones * np.float32(1e18), local_lr=1.0)
            case "invented":
                parcel = self.parcel(id, ones, base_version=10_000)
            case "conflict" if self.sent:
                old = rng.choice(self.sent)
                parcel = self.parcel(old.id, ones)
            case _ if self.sent:
                parcel = rng.choice(self.sent)
            case _:
                return
        self.push(world, parcel, rng)
