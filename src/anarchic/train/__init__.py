"""Computing updates: tasks, and the backends that carry visits out."""
