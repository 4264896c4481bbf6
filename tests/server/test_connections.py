"""Which connection makes room for a new one."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from anarchic.server import connections
from anarchic.server.connections import Connections, Listener


class Line:
    def __init__(self, network, name):
        self.network, self.name, self.closed = network, name, False

    def abort(self):
        self.closed = True


def lines(crowd, **wanted):
    """Connections by what they do and where they are from, such as ``idle="aab"``."""
    made = []
    for kind, networks in wanted.items():
        for number, network in enumerate(networks):
            line = Line(network, f"{kind} {network}{number}")
            crowd.enter(line)
            getattr(crowd, kind)(line)
            made.append(line)
    return made


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def closed(made):
    return [line.name for line in made if line.closed]


def test_an_address_with_more_than_its_share_gives_way_to_one_that_has_just_come():
    crowd = Connections(8, clock := Clock())
    made = lines(crowd, waited_for="aaabb", idle="cd", at_work="e")
    assert crowd.make_room()
    assert closed(made) == ["waited_for a0"]
    lines(crowd, at_work="f")
    assert crowd.make_room()  # nobody has more than a quarter now
    assert closed(made) == ["waited_for a0", "idle c0"]
    crowd = Connections(8, clock)
    made = lines(crowd, waited_for="aaabb", idle="cd", at_work="e")
    clock.now = connections.NEW_S  # time enough for a head
    assert crowd.make_room()
    assert closed(made) == ["idle c0"]


def test_among_addresses_with_few_the_quiet_one_goes_first():
    crowd = Connections(32, clock := Clock())
    made = lines(crowd, waited_for="aa" + "bcdefghijklmnopqrstuvwxyz01234")
    clock.now = 1.0
    for line in made[:2]:
        crowd.waited_for(line)  # two uploads of one address go on
    assert crowd.make_room()
    assert closed(made) == ["waited_for b2"]
    lines(crowd, waited_for="a")  # more than a few
    assert crowd.make_room()
    assert closed(made) == ["waited_for a0", "waited_for b2"]


def test_one_that_was_closed_is_never_counted_again():
    crowd = Connections(2)
    made = lines(crowd, idle="ab")
    assert crowd.make_room()
    for say in (crowd.idle, crowd.waited_for, crowd.at_work, crowd.idle):
        say(made[0])  # what was under way when it was closed
    assert crowd.make_room()
    assert closed(made) == ["idle a0"]
    assert crowd._counted == {made[1]}


def test_nobody_is_closed_while_there_is_room():
    crowd = Connections(3)
    made = lines(crowd, idle="ab")
    assert crowd.make_room()
    assert closed(made) == []


def test_one_without_a_request_goes_first_of_the_address_with_the_most():
    crowd = Connections(8, clock := Clock())
    made = lines(crowd, waited_for="aaaa", idle="abb", at_work="c")
    clock.now = connections.NEW_S
    assert crowd.make_room()
    assert closed(made) == ["idle b1"]  # the first that came from there
    lines(crowd, idle="d")
    assert crowd.make_room()
    assert len(closed(made)) == 2


def test_then_one_whose_client_has_been_quiet_longest():
    crowd = Connections(3)
    made = lines(crowd, waited_for="aaa")
    crowd.waited_for(made[0])  # bytes of its body have come
    assert crowd.make_room()
    assert closed(made) == ["waited_for a1"]


def test_nobody_is_closed_while_the_server_works_for_it():
    crowd = Connections(2)
    made = lines(crowd, at_work="aa")
    assert not crowd.make_room()
    crowd.idle(made[0])
    assert crowd.make_room()
    assert closed(made) == ["at_work a0"]


def test_descriptors_that_are_not_free_yet_count():
    crowd = Connections(2)
    lines(crowd, idle="aa")
    with ExitStack() as stack:
        for _ in range(2 + connections.CLOSING):
            crowd.accepted(stack.enter_context(socket.socket()))
        assert not crowd.make_room()
    assert crowd.make_room()  # however they were closed
    assert crowd.open == 0


def test_a_connection_that_has_left_is_forgotten():
    crowd = Connections(2)
    for line in lines(crowd, idle="a", waited_for="b", at_work="c"):
        crowd.forget(line)
    assert (crowd._idle, crowd._waited_for, crowd._counted) == ({}, {}, set())


class Quiet(asyncio.Protocol):
    network = "a"

    def __init__(self, crowd, made):
        self.crowd, self.made, self.transport = crowd, made, None

    def connection_made(self, transport):
        self.transport = transport
        self.made.add(self)
        self.crowd.enter(self, self.arriving)
        self.crowd.waited_for(self)  # as if it had sent a head

    def connection_lost(self, error):
        self.crowd.forget(self)
        self.made.remove(self)

    def abort(self):
        self.transport.abort()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connections_are_counted_until_they_are_closed(host):
    async def run():
        crowd = Connections(10)
        listener = Listener(crowd, handshake_s=5.0)
        await listener.create_server(lambda: Quiet(crowd, set()), host=host, port=0)
        port = listener.sockets[0].getsockname()[1]
        found = [await asyncio.open_connection(host, port) for _ in range(3)]
        async with asyncio.timeout(5):
            while crowd.open < 3:
                await asyncio.sleep(0.01)
            for _, writer in found:
                writer.close()
            while crowd.open:
                await asyncio.sleep(0.01)
        listener.close()
        await listener.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, port), 1)

    asyncio.run(run())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_connections_closed_while_they_arrive_are_forgotten(loop, monkeypatch):
    monkeypatch.setattr(connections, "NEW_S", 0.0)  # so that these are closed first

    async def run():
        crowd, made = Connections(4), set()
        listener = Listener(crowd, handshake_s=5.0)
        await listener.create_server(lambda: Quiet(crowd, made), host="127.0.0.1", port=0)
        address = listener.sockets[0].getsockname()
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(address, 5))
            async with asyncio.timeout(5):
                while crowd.open < 4:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.3)  # those of the backlog take each other's place
        async with asyncio.timeout(5):
            while crowd.open or crowd._counted or made:  # each protocol is told
                await asyncio.sleep(0.01)
        listener.close()
        await listener.wait_closed()

    make = pytest.importorskip(loop).new_event_loop
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(run())
