"""The simulator: a timetable walked with real training in virtual time."""
