"""The servers of one run: tried in turn, and stayed with while they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import httpx

from anarchic.errors import ConfigError, WorkerError


@final
class Servers:
    """Addresses of one run, its replicas on one store; one of them is in use.

    An update has one id wherever it is sent, so that replicas count it once. Another run would
    count it again, or refuse it: a server with another run than the one before it is refused.
    """

    def __init__(self, urls: str | Sequence[str]) -> None:
        self.all = list(dict.fromkeys(checked_url(url) for url in server_urls(urls)))
        self._at = 0
        self._run: str | None = None  # of the server that was in use when a model last came
        self._run_at = 0

    @property
    def url(self) -> httpx.URL:
        """The one in use."""
        return self.all[self._at]

    def next(self) -> None:
        self._at = (self._at + 1) % len(self.all)

    @property
    def confirmed(self) -> bool:
        """Whether the server in use is known to have the run that the worker takes part in."""
        return self._run is None or self._run_at == self._at

    def confirm(self, run: str) -> None:
        """Refuse a server that has another run than the one before it."""
        if not self.confirmed and run != self._run:
            raise WorkerError(
                f"{self.url} has run {run}, but {self.all[self._run_at]} has run {self._run}. "
                "Several servers must be replicas of one run: give those that share a store.",
                "other_run",
            )
        self._run, self._run_at = run, self._at


def server_urls(given: str | Sequence[str]) -> list[str]:
    """Addresses as they were given: one, several separated by commas, or a list of such texts."""
    texts = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"A server's address is a text, got {given!r}.")
    found = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    return found or [""]  # which is refused as an address


def checked_url(url: str) -> httpx.URL:
    """The address of a server; refuses what cannot be one."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigError(f"{url!r} is not a URL: {error}.") from error
    if parsed.userinfo:
        raise ConfigError("The server's URL holds a password: give a token instead.")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"The server's URL begins with http:// or https://, got {url!r}.")
    return parsed
