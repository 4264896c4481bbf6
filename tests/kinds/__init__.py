"""Kinds of models and training loops, tried in every world, and the page that tells of them."""
