"""The pages that a server shows: the live page and the browser worker, their static files, headers.

The live page shows pictures of a run: records for JSON with a bounded size, whatever the number of
workers. Who reads a store or a run directory makes one (``server/picture.py``,
``report/picture.py``); the page, the report and ``anarchic view`` show it.
"""
