"""Abuse of a real server, with raw sockets and none of our client code. See ``tests/tried.py``."""
