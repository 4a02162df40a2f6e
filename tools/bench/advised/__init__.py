"""A Prometheus with the past of many HPAs, for the benchmark of `hpad advise`."""
