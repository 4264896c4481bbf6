"""The algorithms: NumPy only; no clock, files, sockets, logging or hidden randomness."""
