"""The daemon: its composition, start and stop order, process, memory limit and logging."""
