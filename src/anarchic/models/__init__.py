"""Anarchic federated learning."""
