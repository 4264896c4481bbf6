"""A server of raw sockets that answers as it likes. It shares no code with ours."""

import json
import socket
import struct
import threading
import time
from contextlib import suppress


def snapshot(tensors=None, *, dtype="F32", **metadata):
    """The bytes of a model; ``tensors`` maps names to shapes."""
    header = {"__metadata__": {"version": "0", "run": "run-a", **metadata}}
    end, width = 0, {"F32": 4, "BF16": 2, "F64": 8}[dtype]
    for name, shape in (tensors or {"x": [2]}).items():
        size = width
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(end)


def answer(body=b"", status="200 OK", length=None, **headers):
    """An answer as bytes; ``Content_Type`` becomes Content-Type."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


ACCEPTED = answer(b'{"status":"accepted","version":1,"buffered":0}', "202 Accepted")


class HostileServer:
    """Answers each request with what ``answers`` has for its method.

    That is bytes, a function that is given the socket, or a list of these that are used up one by
    one, the last for ever.
    """

    def __init__(self, **answers):
        self.answers = {"GET": answer(snapshot()), "POST": ACCEPTED, **answers}
        self.heads, self.asked = [], threading.Event()
        self.over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self._listening.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line):
        with line, suppress(OSError, ValueError):
            while head := self._head(line):
                self.heads.append(head)
                self.asked.set()
                said = self.answers[head.split(b" ", 1)[0].decode()]
                if isinstance(said, list):
                    said = said.pop(0) if len(said) > 1 else said[0]
                if callable(said):
                    said(line)
                    return
                line.sendall(said)

    def _head(self, line):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = line.recv(65536)
            if not piece:
                return b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for field in head.split(b"\r\n")[1:]:
            name, _, value = field.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(body) < length:
            body += line.recv(65536)
        return head

    def trickle(self, line, first, piece=b"x", every_s=0.1):
        """Send a beginning, and then a byte at a time until the other side has gone."""
        line.sendall(first)
        while not self.over.is_set():
            line.sendall(piece)
            time.sleep(every_s)

    def flood(self, line, first, piece):
        """Send a beginning, and then more and more."""
        line.sendall(first)
        while not self.over.is_set():
            line.sendall(piece)
