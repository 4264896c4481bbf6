"""Faults on purpose: servers and workers killed, bodies cut, answers lost, updates sent twice.

``python -m tests.chaos --help`` runs it for as long as you like; a short form is in the suite.
"""
