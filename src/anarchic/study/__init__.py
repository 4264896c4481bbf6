"""Experiments and sweeps: cells run over seeds, raw results kept, tables and pages made of them.

``experiments/README.md`` says how to write one. Everything here runs with NumPy, PyTorch and
safetensors alone, from ``src``; Rich and matplotlib are used where they are installed.
"""

from anarchic.study.cell import Cell, Job
from anarchic.study.find import beside, sibling
from anarchic.study.findings import Findings, Outcome
from anarchic.study.flags import Flags, main
from anarchic.study.groups import Asked, Group, groups_of
from anarchic.study.results import Result, accuracies, curve_of
from anarchic.study.study import Claim, Picture, Study
from anarchic.study.sweeps import Sweep, load_sweep, sweep
from anarchic.study.tuning import Tuned, Tuning, tune
from anarchic.study.verdicts import Test, compare_groups, sentences

__all__ = [
    "Asked",
    "Cell",
    "Claim",
    "Findings",
    "Flags",
    "Group",
    "Job",
    "Outcome",
    "Picture",
    "Result",
    "Study",
    "Sweep",
    "Test",
    "Tuned",
    "Tuning",
    "accuracies",
    "beside",
    "compare_groups",
    "curve_of",
    "groups_of",
    "load_sweep",
    "main",
    "sentences",
    "sibling",
    "sweep",
    "tune",
]
