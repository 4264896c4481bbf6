"""The live system: a server that collects updates from workers who answer to nobody."""
