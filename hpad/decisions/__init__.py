"""The decision history: past decisions of each HPA with their traces, bounded in memory and on disk."""
