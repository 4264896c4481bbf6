"""The algorithms: NumPy only; no clock, sockets, logging or hidden randomness.

Files are touched by ``MappedRows`` alone, a memory of AFA-CS that is larger than the machine's.
"""
