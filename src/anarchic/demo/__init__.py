"""Two demos on the embedded digits: a simulated race, and real processes that get killed."""
