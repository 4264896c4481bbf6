"""The worker's side of the live system."""
