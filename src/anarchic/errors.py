"""Every exception that this package raises on purpose.

A message says what is wrong, the value found and what to do about it.
"""

from __future__ import annotations


class AnarchicError(Exception):
    """Base class; the command line prints these errors without a traceback."""


class ConfigError(AnarchicError):
    """A setting is wrong, or two settings contradict each other."""


class UnknownOption(ConfigError, TypeError):
    """A class or function has no option of that name."""


class DataError(AnarchicError):
    """A data set is missing, damaged or of the wrong shape."""


class DownloadError(DataError):
    """A data file could not be fetched from any of its mirrors."""


class RunError(AnarchicError):
    """A run cannot continue: its directory, its checkpoint or a machine that computes it fails."""


class Stop(AnarchicError):
    """Raised by a callback or a watcher: the simulated run ends here, and is complete."""


class UpdateRefused(AnarchicError):
    """A rule refuses this update; the state of the rule is unchanged.

    A remedy that is given apart ends the message; a server tells its worker the two separately.
    """

    worker: str | None = None  # who sent it, where a server found out

    def __init__(self, told: str, remedy: str | None = None) -> None:
        super().__init__(told if remedy is None else f"{told}: {remedy}.")
        self.told = told if remedy is None else f"{told}."


class MalformedUpdate(UpdateRefused):
    """The update has the wrong shape or dtype, or impossible numbers."""


class NotFinite(MalformedUpdate):
    """The update holds NaN or infinity, or numbers so large that a step would overflow."""


class StaleUpdate(UpdateRefused):
    """The update's base version is unknown to the rule, or too old for it."""


class Diverged(AnarchicError):
    """Training produced numbers that are not finite."""


class StoreError(AnarchicError):
    """An error of the server's database."""


class StoreFull(StoreError):
    """The disk or the database has no room left."""


class StoreUnavailable(StoreError):
    """The database cannot be read or written now; try again later."""


class OtherSchema(StoreUnavailable):
    """The store is whole, and was written by an earlier or a later version of anarchic."""


class StoreCorrupt(StoreError):
    """The contents of the database are wrong; nothing is served from it."""


class Deposed(StoreError):
    """Another process leads by now, or the version has moved on: nothing was written."""


class WorkerError(AnarchicError):
    """A worker cannot reach its server, its update was refused, or it cannot use its spool.

    ``code`` names the reason in one word; it is the server's error code if the server refused.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
