"""Every exception that this package raises on purpose.

    AnarchicError
      ConfigError         a setting is wrong, or two settings contradict each other
      DataError           a data set is missing, damaged or of the wrong shape
        DownloadError     it could not be fetched either
      RunError            a run directory or checkpoint cannot be used
      UpdateRefused       a rule will not fold this update; its state is as it was
        MalformedUpdate   wrong shape, dtype or numbers
          NotFinite       among them NaN, infinity, or what would soon become that
        StaleUpdate       its base version is unknown or too old
      Diverged            training produced numbers that are not finite
      StoreError          the server's database
        StoreFull         has no room left
        StoreUnavailable  cannot be read or written now
        StoreCorrupt      holds what cannot be right
        Deposed           takes no version from one that no longer leads
      WorkerError         a worker cannot reach its server, was refused, or cannot use its spool

A message says what is wrong, the value found and what to do about it.
"""

from __future__ import annotations


class AnarchicError(Exception):
    """Root of the tree; the command line prints it without a traceback."""


class ConfigError(AnarchicError):
    """A setting is wrong, or two settings contradict each other."""


class DataError(AnarchicError):
    """A data set is missing, damaged or of the wrong shape."""


class DownloadError(DataError):
    """A data file could not be fetched from any of its mirrors."""


class RunError(AnarchicError):
    """A run cannot go on: its directory, its checkpoint or the machines that compute it fail."""


class UpdateRefused(AnarchicError):
    """A rule will not fold this update; the state it was offered to is unchanged."""


class MalformedUpdate(UpdateRefused):
    """The update has the wrong shape or dtype, or numbers that cannot be right."""


class NotFinite(MalformedUpdate):
    """The update holds NaN or infinity, or numbers so large that a step would make them so."""


class StaleUpdate(UpdateRefused):
    """The update's base version is unknown to the rule, or too old for it."""


class Diverged(AnarchicError):
    """Training produced numbers that are not finite."""


class StoreError(AnarchicError):
    """Something is wrong with the database of a server."""


class StoreFull(StoreError):
    """The disk or the database has no room left."""


class StoreUnavailable(StoreError):
    """The database cannot be read or written now; later it may."""


class StoreCorrupt(StoreError):
    """The database holds what cannot be right; nothing is served from it."""


class Deposed(StoreError):
    """Another process leads by now, or the version has moved on: nothing was written."""


class WorkerError(AnarchicError):
    """A worker cannot reach its server, its update was refused, or it cannot use its spool.

    ``code`` names the reason in one word; it is the server's where the server refused.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
