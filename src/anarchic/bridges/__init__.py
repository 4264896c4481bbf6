"""Training code of other libraries as workers: one small module per library."""
