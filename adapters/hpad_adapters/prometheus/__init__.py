"""Metrics from Prometheus, or from a server with its HTTP API."""

from hpad_adapters.prometheus.adapter import Prometheus as Prometheus
