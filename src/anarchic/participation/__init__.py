"""Participation: who turns up when, from which version, and how hard it works.

No worker's timing depends on the server, so all of it can be drawn as arrays before any training.
The result is a `Timetable`. It comes from

- the paper's `Sampler` (m of M workers a round, without a clock),
- a process in continuous time, such as `Habits`, through `make_timetable` or, block by block and
  in the memory of a block, `timetable_blocks`,
- recorded `Visits`, through `from_visits`,
- for comparison, `Synchronous` rounds.
"""

from anarchic.participation.availability import Availability, read_availability
from anarchic.participation.battery import Battery
from anarchic.participation.diurnal import Diurnal
from anarchic.participation.dropout import Dropout
from anarchic.participation.folding import from_visits
from anarchic.participation.habits import Habits
from anarchic.participation.horizon import make_timetable, timetable_blocks
from anarchic.participation.idle import Exponential, Idle, LogNormal
from anarchic.participation.sampler import Sampler
from anarchic.participation.steps import ConstantSteps, StepPolicy, UniformSteps
from anarchic.participation.synchronous import Synchronous
from anarchic.participation.timetable import Timetable
from anarchic.participation.visits import Course, Participation, Visits
from anarchic.participation.work import (
    ExponentialSpread,
    LogNormalSpread,
    NoSpread,
    SpeedClasses,
    Spread,
    Work,
)

__all__ = [
    "Availability",
    "Battery",
    "ConstantSteps",
    "Course",
    "Diurnal",
    "Dropout",
    "Exponential",
    "ExponentialSpread",
    "Habits",
    "Idle",
    "LogNormal",
    "LogNormalSpread",
    "NoSpread",
    "Participation",
    "Sampler",
    "SpeedClasses",
    "Spread",
    "StepPolicy",
    "Synchronous",
    "Timetable",
    "UniformSteps",
    "Visits",
    "Work",
    "from_visits",
    "make_timetable",
    "read_availability",
    "timetable_blocks",
]
