"""Lag of consumer groups of Apache Kafka; needs the extra `kafka`."""

# "import X as X" makes a name part of this package (PEP 484), from which the entry point takes it.
from hpad_adapters.kafka.adapter import Kafka as Kafka
