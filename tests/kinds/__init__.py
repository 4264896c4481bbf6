"""Kinds of models and training loops, tried in every world; ``python -m tests.kinds`` tells of them."""
