"""What the simulator costs, measured next to what one would use instead."""
