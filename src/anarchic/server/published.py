"""The published versions: the newest in memory, older ones read from the store on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from anarchic import wire
from anarchic.server.records import Epochs, epoch_of
from anarchic.server.store import Store


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PublishedModel:
    """One published version, as the bytes that workers pull."""

    run: str
    version: int
    body: bytes
    loss: float | None  # mean of the losses that workers reported with its updates
    extras: frozenset[str]  # names of the vectors that travel beside the model
    epoch: str | None  # in which it was published; None for the first, and before epochs had names

    @property
    def etag(self) -> str:
        """Names run, version and epoch: a restored run gives its version numbers a second time."""
        epoch = "" if self.epoch is None else f"-{self.epoch}"
        return f'"{self.run}-{self.version}{epoch}"'


class PublishedModels:
    """Gives out published versions, and wakes those who wait for the next one.

    ``post`` may be called from any thread, the coroutines only in the server's event loop.
    ``posted`` is called with every new version, ``touched`` when a command of an operator took
    effect, both in the thread that says so.
    """

    def __init__(
        self,
        run: str,
        store: Store,
        posted: Callable[[PublishedModel], object] = lambda model: None,
        touched: Callable[[], object] = lambda: None,
    ) -> None:
        self.run = run
        self.epochs: Epochs = ()  # in which versions were published, the newest last
        self.closed = False  # the server is stopping: nobody should wait any longer
        self._store, self._tell_posted, self._tell_touched = store, posted, touched
        self._newest: PublishedModel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self.touched = 0  # commands of operators that took effect
        # An old version is in memory once, however many pull it. The one read last stays.
        self._older: WeakValueDictionary[object, PublishedModel] = WeakValueDictionary()
        self._last_read: PublishedModel | None = None
        self._reading = asyncio.Lock()

    @property
    def newest(self) -> PublishedModel:
        assert self._newest is not None, "the first version is posted before anything is served"
        return self._newest

    @property
    def has_one(self) -> bool:
        return self._newest is not None

    def read(self, number: int) -> PublishedModel | None:
        """A version of the store, if it is still kept; only the header of its body is parsed."""
        body = self._store.model(number)
        return None if body is None else self.parsed(number, body)

    def parsed(self, number: int, body: bytes) -> PublishedModel:
        return PublishedModel(self.run, number, body, *wire.snapshot_facts(body))

    def follow(self, number: int, *, again: bool) -> None:
        """Show the store's newest version, which another server has published.

        One that is shown already is read ``again`` if the store may have been restored meanwhile.
        """
        if not again and self._newest is not None and self._newest.version == number:
            return
        model = self.read(number)
        if model is None:
            return
        if model.epoch != epoch_of(self.epochs, number):
            self.epochs = self._store.epochs()  # before anybody can push what started from it
        self.post(model)

    def go_on_from(self, number: int, body: bytes, epochs: Epochs) -> None:
        """Show the version from which this server leads."""
        self.epochs = epochs
        self.post(self.parsed(number, body))

    def post(self, model: PublishedModel) -> None:
        """Show a version, which must be durable already."""
        self._newest = model
        self._tell_posted(model)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def touch(self) -> None:
        """Something else than the version has changed."""
        self.touched += 1
        self._tell_touched()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all waiting."""
        self.closed = True
        self._wake()

    async def version(self, number: int) -> PublishedModel | None:
        """The version with this number, or None where it does not exist or is no longer kept."""
        newest = self.newest
        if number >= newest.version:
            return newest if number == newest.version else None
        key = (number, epoch_of(self.epochs, number))
        async with self._reading:
            model = self._older.get(key)
            if model is None:
                model = await asyncio.to_thread(self.read, number)
                if model is None:
                    return None
                self._older[key] = model
            self._last_read = model
            return model

    async def changed(self, seen: int, timeout_s: float, touched: int | None = None) -> bool:
        """Wait until the newest version is not ``seen``; False after the timeout.

        Also until anything else has changed, where ``touched`` says what is known of that.
        """
        self._loop = asyncio.get_running_loop()  # before looking: ``post`` does it the other way
        try:
            async with asyncio.timeout(timeout_s):
                while self.newest.version == seen and not self.closed:
                    if touched not in (None, self.touched):
                        break
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
