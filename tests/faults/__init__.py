"""A deterministic simulator of faults: the whole server, and one seed that decides everything.

The real code runs: collector, aggregator, store, SQLAlchemy, SQLite, the routes. Four things
beneath it are replaced, each by a lookalike that one seed drives:

- **time and threads** (``hub``): a thread is a greenlet, a clock is a number. Nothing waits, and
  nothing runs at the same time, and a seed gives the same order of turns every time;
- **the disk** (``disk``, ``dbapi``): a layer below SQLite that knows which writes were synced. A
  power cut keeps those and any part of the others; writes and syncs can fail, or be slow;
- **the network** (``network``): requests and answers are late, lost, sent twice, out of order;
- **people** (``operator``, ``workers``): tokens, backups, a restore, a second server by mistake;
  workers that come and go, send again, or send junk.

``plan`` turns a seed into a list of events. ``world`` lets them happen, and ``invariants`` looks
after every step. A failing seed is repeated, and made shorter, by

    python -m tests.faults --seed 1234 --shrink
"""
