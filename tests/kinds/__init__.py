"""Kinds of models and training loops, tried in every world."""
