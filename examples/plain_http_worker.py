"""A worker without our SDK, in plain HTTP: python plain_http_worker.py URL [SAMPLES.npz]

It trains softmax regression (64 inputs) on the file's images, or on samples that it generates.
ANARCHIC_TOKEN may hold a token. Start two or more: no worker may fill a server step alone."""

import json
import os
import sys
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np

if len(sys.argv) < 2:
    sys.exit(print(__doc__))
rng, headers = np.random.default_rng(), {"Content-Type": "application/octet-stream"}
if token := os.environ.get("ANARCHIC_TOKEN"):
    headers["Authorization"] = f"Bearer {token}"
y = rng.integers(10, size=500)
x = np.random.default_rng(0).normal(size=(10, 64))[y] + rng.normal(size=(500, 64))
if len(sys.argv) > 2:
    x, y = (np.load(sys.argv[2])[name] for name in ("images", "labels"))
x = np.insert((x.reshape(len(y), -1) - x.mean()) / x.std(), 0, 1, axis=1)  # 1 for the bias


def ask(path, body=None):
    """What the server says; until it says something, the same bytes are sent again."""
    for _ in range(20):
        try:
            return urlopen(Request(sys.argv[1] + path, body, headers), timeout=60).read()
        except HTTPError as refusal:
            if refusal.code == 409:  # the base version is too old: drop this one, pull again
                return refusal.read()
            if refusal.code not in (408, 429, 503, 507):
                sys.exit(refusal.read().decode())
            time.sleep(float(refusal.headers.get("Retry-After") or 1))
        except Exception:  # nobody there, or the answer was lost
            time.sleep(rng.uniform(0.5, 2))
    sys.exit("The server does not answer.")


for _ in range(10):
    file = ask("/v1/model")
    start = 8 + int.from_bytes(file[:8], "little")
    header, numbers = json.loads(file[8:start]), np.frombuffer(file, "<f4", offset=start)
    place = {n: slice(*np.array(header[n]["data_offsets"]) // 4) for n in ("bias", "weight")}
    first = np.column_stack([numbers[place["bias"]], numbers[place["weight"]].reshape(10, -1)])
    w, steps = first, rng.integers(1, 9)
    for pick in rng.integers(len(y), size=(steps, 32)):
        p = np.exp(x[pick] @ w.T)
        p = p / p.sum(axis=1, keepdims=True) - np.eye(10)[y[pick]]
        w = w - 0.05 * p.T @ x[pick] / 32
    mean = (first - w) / (0.05 * steps)  # of the gradients
    update = np.array(numbers)  # a file like the one pulled: the same places, other numbers
    update[place["bias"]], update[place["weight"]] = mean[:, 0], mean[:, 1:].ravel()
    facts = {"id": os.urandom(8).hex(), "base_version": header["__metadata__"]["version"]}
    facts |= {"local_steps": str(steps), "local_lr": "0.05", "worker": f"plain-{os.getpid()}"}
    text = json.dumps(header | {"__metadata__": facts}).encode()
    print(ask("/v1/updates", len(text).to_bytes(8, "little") + text + update.tobytes()).decode())
