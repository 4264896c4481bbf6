"""One script a contestant: it trains a workload once, against the clock, and hands in the model."""
