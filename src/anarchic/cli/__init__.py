"""The command line: one thin module a command."""

from anarchic.cli.app import app, main

__all__ = ["app", "main"]
