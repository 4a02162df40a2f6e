"""Metrics from Prometheus, or from whatever speaks its HTTP API."""

from hpad_adapters.prometheus.adapter import Prometheus

__all__ = ["Prometheus"]
