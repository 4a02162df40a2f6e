"""Kubernetes API types: HPA, metadata, quantities and selectors; decoding, defaulting, validation, conversion."""
