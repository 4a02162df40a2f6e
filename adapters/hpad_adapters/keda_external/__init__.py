"""Metrics of KEDA's external scalers, by gRPC; needs the extra `keda-external`."""

# "import X as X" makes a name part of this package (PEP 484), from which the entry point takes it.
from hpad_adapters.keda_external.adapter import KedaExternal as KedaExternal
