"""What a run ends with."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError
from anarchic.models.module import set_tensors
from anarchic.sim.chart import chart
from anarchic.sim.record import MetricsRow
from anarchic.sim.worker_table import PerWorker

SHOWN = ("accuracy", "loss")


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: the last model, a row of metrics for each evaluation, and the summary.

    ``per_worker`` is there if the workers set samples aside for it.
    """

    params: Vector
    metrics: list[MetricsRow]
    summary: dict[str, Any]
    layout: Layout | None = None
    per_worker: PerWorker | None = field(default=None, compare=False)

    @property
    def accuracy(self) -> float | None:
        """At the end."""
        value: float | None = self.summary["final_accuracy"]
        return value

    def load_into(self, module: Any) -> Any:
        """Put the last model into a ``torch.nn.Module`` of the same kind, and return that.

        Parameters that were not trained stay as they are; buffers that travelled are set too.
        """
        if self.layout is None:
            raise ConfigError("This run does not know the names of its tensors: run it again.")
        set_tensors(module, self.layout.split(self.params), type(module).__name__)
        return module

    def __repr__(self) -> str:
        return f"Run({'; '.join(self._facts())})"

    def _facts(self) -> list[str]:
        summary, last = self.summary, self.metrics[-1] if self.metrics else {}
        columns = (
            *("round", "virtual_s", "updates", "local_steps", "train_seconds", "test_samples"),
            *("refused", "steps_in_vain"),
        )
        numbers = {n: v for n, v in last.items() if n not in columns and v is not None}
        found = [", ".join(f"{name} {value:.4g}" for name, value in list(numbers.items())[:8])]
        found.append(f"{summary.get('rounds'):,} rounds, {summary.get('updates'):,} updates")
        if summary.get("virtual_s") is not None:
            found.append(f"{summary['virtual_s']:,.0f} virtual s")
        if summary.get("stopped_at") not in (None, "rounds", "until_s"):
            found.append(f"stopped: {summary.get('stop_reason') or summary['stopped_at']}")
        found.append(f"{len(self.metrics)} evaluations, {len(self.params):,} parameters")
        return [fact for fact in found if fact]

    def _repr_html_(self) -> str:
        """For a notebook: the facts, and a chart of accuracy and loss by round."""
        facts = "<br>".join(escape(fact) for fact in self._facts())
        charts = "".join(
            chart(name, [(row["round"], row.get(name)) for row in self.metrics]) for name in SHOWN
        )
        return f"<div><b>Run</b><br>{facts}<div>{charts}</div></div>"
