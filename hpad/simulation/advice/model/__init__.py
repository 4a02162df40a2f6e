"""Runs of a spec over the load of the past, and how far they can be trusted."""
