"""Who has pulled lately: what the live page shows as visits that are under way, or were lost.

It is in memory only and knows the workers that this server can name, that is by their tokens.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock
from typing import Literal, NamedTuple, final

MOST_WORKERS = 1024
MOST_EACH = 48

Kind = Literal["pulled", "refused"]


class SeenRequest(NamedTuple):
    """A request of a worker; ``what`` is the version that it pulled, or the code of a refusal."""

    kind: Kind
    at_s: float  # wall clock
    what: int | str


@final
class RecentRequests:
    """The newest requests of the workers that were heard last."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, deque[SeenRequest]] = OrderedDict()
        self._lock = Lock()

    def note(self, worker: str, seen: SeenRequest) -> None:
        with self._lock:
            if worker not in self._seen:
                self._seen[worker] = deque(maxlen=MOST_EACH)
                if len(self._seen) > MOST_WORKERS:
                    self._seen.popitem(last=False)
            self._seen.move_to_end(worker)
            self._seen[worker].append(seen)

    def of(self, worker: str) -> list[SeenRequest]:
        with self._lock:
            return list(self._seen.get(worker, ()))


Mark = list[float | int | None]


def with_visits(
    marks: list[Mark], seen: list[SeenRequest], since_s: float
) -> dict[str, list[object]]:
    """What became of a worker's visits: those that were pushed begin where it pulled.

    A pull after which the worker pulled again, and no update came in between, was lost. The newest
    one is still being worked on.
    """
    pulls = [s.at_s for s in seen if s.kind == "pulled"]
    pushed: list[object] = []
    taken: set[float] = set()
    before = -1.0
    for mark in marks:
        end_s = mark[1] or 0.0
        begun = [at for at in pulls if before < at <= end_s]
        if mark[0] is None and begun:
            mark = [round(begun[-1], 3), *mark[1:]]
            taken.add(begun[-1])
        pushed.append(mark)
        before = end_s
    refusals = [s for s in seen if s.kind == "refused" and s.at_s >= since_s]
    ends = sorted([s.at_s for s in refusals] + [before])
    open_pulls = [at for at in pulls if at not in taken and at >= since_s]
    lost: list[object] = []
    working: float | None = None
    for at in open_pulls:
        later = [other for other in pulls if other > at]
        if not later:
            working = round(at, 3) if not any(end > at for end in ends) else None
        elif not any(at < end <= later[0] for end in ends):
            lost.append([round(at, 3), round(later[0], 3)])
    refused: list[object] = [[round(s.at_s, 3), s.what] for s in refusals]
    return {"pushed": pushed, "lost": lost, "refusals": refused, "working": [working]}
