"""Reconciles of the past: the decision history, recordings, and deciding them again."""
