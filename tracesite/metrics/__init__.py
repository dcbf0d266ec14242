"""Prometheus metrics: registry, database gauges and the /metrics view."""
