"""The algorithms: NumPy only; no clock, sockets, files, logging or hidden randomness."""
