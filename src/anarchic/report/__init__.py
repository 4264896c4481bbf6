"""Tables and pictures of runs, timetables and partitions of data, and the simulated demo."""
