"""Faults that the past of an HPA shows."""
