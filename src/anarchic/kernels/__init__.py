"""Faster forms of what core, models and train do; each has a plain twin."""
