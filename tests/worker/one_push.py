"""A worker that pushes once: ``python -m tests.worker.one_push URL SPOOL``."""

import sys

import numpy as np

from anarchic.worker import Worker

if __name__ == "__main__":
    with Worker(sys.argv[1], name="ann", spool=sys.argv[2]) as worker:
        answer = worker.push(np.ones(2, np.float32), local_lr=0.5)
    sys.stdout.write(answer.status)
