"""Callbacks of a live server, and how they can go wrong."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from anarchic import Stop
from anarchic.callbacks import Callback


class Recording(Callback):
    """Writes what it hears to heard.jsonl."""

    def begin(self, run):
        self._write("begin", live=run.live, rule=run.settings["rule"], names=run.layout.names)

    def version(self, at):
        self._write("version", version=at.version, metrics=at.metrics)

    def evaluation(self, at):
        total = {name: float(array.sum()) for name, array in at.tensors.items()}
        self._write("evaluation", version=at.version, metrics=at.metrics, total=total)

    def end(self, summary):
        self._write("end", summary=summary)

    def _write(self, event, **facts):
        with Path("heard.jsonl").open("a") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")


class Failing:
    def version(self, at):
        raise ValueError("I cannot")


class Stopping:
    def version(self, at):
        raise Stop("enough")


class Hanging:
    def version(self, at):
        time.sleep(1000)


class Dying:
    def version(self, at):
        if at.version:
            os._exit(3)
