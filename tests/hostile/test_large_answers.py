"""Answers that are large or have no end: how much memory the worker of the SDK takes."""

import gc
import tracemalloc

import pytest

from anarchic import wire
from anarchic.errors import WorkerError
from anarchic.worker import Retry, exchange
from tests.hostile.answers import HostileServer, answer, snapshot
from tests.hostile.impatient import push, worker


def test_a_model_that_is_announced_as_too_large_is_not_read():
    def announce(line):
        line.sendall(answer(b"", length=10**12))
        line.recv(1)  # until the worker hangs up

    too_long = pytest.raises(WorkerError, match="more than 1073741824 bytes")
    with HostileServer(GET=announce) as server, worker(server) as someone, too_long:
        someone.pull()


def test_an_answer_without_end_is_not_read_whole():
    with HostileServer() as server:
        server.answers["POST"] = lambda line: server.flood(
            line, answer(b"", "500 Oh", length=10**12), b"x" * 65536
        )
        with worker(server) as someone:
            someone.pull()
            tracemalloc.start()
            with pytest.raises(WorkerError, match="HTTP 500 Oh"):
                push(someone)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2_000_000


@pytest.mark.tried(
    "a model without a length that goes on for ever, asked for again and again",
    before="2.2 GB of memory: the first answer was still held while the second came",
    now="1,090 MB after five of them: only one answer is held",
)
@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", answer(b"", length=9 << 20)],
    ids=["endless", "cut"],
)
def test_only_one_failed_answer_is_in_memory(head, monkeypatch):
    """Without a length it is too long; with one it is cut before it has come as a whole."""
    most = 8 << 20
    monkeypatch.setattr(exchange, "MAX_ANSWER", most if b"Length" not in head else 2 * most)

    def send(line):
        line.sendall(head)
        for _ in range(most >> 16):
            line.sendall(bytes(1 << 16))
        if b"Length" not in head:
            server.flood(line, b"", bytes(65536))

    retry = Retry(tries=3, first_s=0.01, max_s=0.01)
    with HostileServer(GET=send) as server, worker(server, connection={"retry": retry}) as someone:
        gc.disable()
        tracemalloc.start()
        try:
            with pytest.raises(WorkerError, match="failed 3 times"):
                someone.pull()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            gc.enable()
    assert peak < 1.5 * most


# What an answer costs


@pytest.mark.tried(
    "a model of BF16 numbers",
    before="a pull took 5.0 times the bytes of the answer",
    now="the answer, its numbers as float32, and a piece of 1 MB",
)
@pytest.mark.parametrize(("dtype", "times"), [("BF16", 3.0), ("F32", 2.0), ("F64", 2.0)])
def test_a_pull_takes_the_answer_and_its_numbers(dtype, times):
    body = snapshot({"a": [1 << 21], "b": [1 << 20, 2]}, dtype=dtype)
    with HostileServer(GET=answer(body)) as server, worker(server) as someone:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        assert someone.pull().params.size == 1 << 22
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        # A bytearray that grows has an eighth of its size to spare.
        assert peak < (times + 0.15) * len(body) + 3_000_000


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_model_file_takes_the_file_and_its_numbers(dtype, tmp_path):
    body = snapshot({"a": [1 << 22]}, dtype=dtype)
    (tmp_path / "model").write_bytes(body)
    tracemalloc.start()
    assert wire.load_model(tmp_path / "model")[1].size == 1 << 22
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < {"BF16": 3.0, "F32": 2.0}[dtype] * len(body) + 3_000_000


def test_narrow_tensors_beside_a_double_do_not_multiply():
    mixed = snapshot({"none": [0], "b": [4]}, dtype="BF16").replace(b'"BF16"', b'"F64"', 1)
    mixed = (int.from_bytes(mixed[:8], "little") - 1).to_bytes(8, "little") + mixed[8:]
    one = pytest.raises(WorkerError, match="BF16 and F64, those of a snapshot have one")
    with HostileServer(GET=answer(mixed)) as server, worker(server) as someone, one:
        someone.pull()
