"""The parts of uvicorn that BoundedProtocol uses though uvicorn does not promise to keep them.

If a test here fails, read what changed in uvicorn, adapt src/anarchic/server/protocol.py, run
tests/server/test_listen.py, and only then change the range in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from anarchic.server.protocol import BoundedProtocol
from anarchic.server.settings import Limits

OVERRIDDEN = {name for name in vars(BoundedProtocol) if not name.startswith("_")}


def test_uvicorn_is_of_a_version_that_was_tested() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extra = map(Requirement, project["project"]["optional-dependencies"]["server"])
    pinned = next(requirement for requirement in extra if requirement.name == "uvicorn")
    assert pinned.specifier.contains(uvicorn.__version__), (
        f"uvicorn {uvicorn.__version__} is outside of {pinned}."
    )


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_what_is_overridden_exists_and_takes_the_same_arguments(name: str) -> None:
    theirs = getattr(HttpToolsProtocol, name, None)
    assert theirs is not None, f"uvicorn {uvicorn.__version__} has no HttpToolsProtocol.{name}."
    taken = [len(inspect.signature(f).parameters) for f in (theirs, getattr(BoundedProtocol, name))]
    assert taken[0] == taken[1], f"uvicorn {uvicorn.__version__} changed HttpToolsProtocol.{name}."


class Transport(asyncio.Transport):
    """Leads nowhere."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False


async def _app(scope: object, receive: object, send: Callable[..., Awaitable[None]]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_connection_has_the_attributes_that_are_read() -> None:
    async def connected() -> None:
        config = uvicorn.Config(
            _app, http=partial(BoundedProtocol, limits=Limits()), ws="none", log_config=None
        )
        config.load()
        made = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})
        assert made.loop is asyncio.get_running_loop()
        made.connection_made(Transport())
        assert made.cycle is None  # no request yet
        made.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
        assert (b"host", b"x") in made.headers
        assert made in made.connections
        assert isinstance(made.flow, FlowControl)
        assert made.flow.write_paused is False
        assert made.cycle.response_complete is False
        assert made.cycle.more_body is True

    asyncio.run(connected())


def test_servers_are_made_where_the_time_for_handshakes_is_set() -> None:
    assert "loop.create_server(" in inspect.getsource(uvicorn.Server.startup)
