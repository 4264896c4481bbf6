"""Training loops of other libraries as workers, one module per library."""
