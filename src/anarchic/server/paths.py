"""Paths of several runs: what is asked of ``/v1/runs/NAME/...`` is answered by the app of that run.

Each run has an application of its own, that of a server of one run. It is asked by the path that
such a server has, so a route that is added there is there for every run.
"""

from __future__ import annotations

import re

from starlette.types import Scope

PREFIX = "/v1/runs/"
_PATH = re.compile(r"/v1/runs/([^/]{1,64})/(.*)", re.S)
# Not below /v1 in a server of one run.
_TOP = re.compile(r"healthz|readyz|metrics|join(\.svg|/.*)?", re.S)


def split(path: str) -> tuple[str | None, str]:
    """The run that a path names, if it does, and the rest of the path."""
    found = _PATH.fullmatch(path) if path.startswith(PREFIX) else None
    return (None, path) if found is None else (found[1], found[2])


def within_run(scope: Scope, run: str) -> Scope:
    """The same request to a server of one run, whose id is ``run``."""
    _, rest = split(scope["path"])
    if rest.startswith("models/"):
        path = f"{PREFIX}{run}/{rest}"
    else:
        path = f"/{rest}" if _TOP.fullmatch(rest) else f"/v1/{rest}"
    return {**scope, "path": path, "raw_path": path.encode("utf-8", "replace")}


def join_path(run: str | None) -> str:
    """Where anybody with a browser takes part in a run."""
    return f"{PREFIX}{run}/join" if run else "/join"
