"""Metric sources: plugins, routing, batching, caching, limits and the circuit breaker."""
