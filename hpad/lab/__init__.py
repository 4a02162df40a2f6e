"""Playing with time: the embedded cluster, the demo, replay, simulation and backtests."""
