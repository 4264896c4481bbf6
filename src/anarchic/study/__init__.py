"""Experiments: cells run over seeds, raw results kept, tables and pages made of them.

``experiments/README.md`` says how to write one. Everything here runs with NumPy, PyTorch and
safetensors alone, from ``src``; Rich and matplotlib are used where they are installed.
"""

from anarchic.study.cell import Cell, Job
from anarchic.study.find import beside, sibling
from anarchic.study.findings import Findings, Outcome
from anarchic.study.flags import Flags, main
from anarchic.study.results import Result, accuracies, curve_of
from anarchic.study.study import Claim, Picture, Study

__all__ = [
    "Cell",
    "Claim",
    "Findings",
    "Flags",
    "Job",
    "Outcome",
    "Picture",
    "Result",
    "Study",
    "accuracies",
    "beside",
    "curve_of",
    "main",
    "sibling",
]
