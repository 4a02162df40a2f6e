"""How histories are kept."""

from typing import Final

from prometheus_client import registry

from hpad.telemetry.series import Series

STORE_OPERATIONS: Final = ("load", "save", "decode")


class Stores(Series):
    """Fed by the store."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._store_writes = self._counter("hpad_store_writes", "Saves of histories, each one transaction a group")
        self._store_errors = self._counter("hpad_store_errors", "What went wrong with histories", ["operation"])
        self._store_seconds = self._histogram("hpad_store_seconds", "Reading and saving histories", ["operation"])
        for operation in STORE_OPERATIONS:
            self._store_errors.labels(operation)
        self._store_bytes = self._gauge("hpad_store_bytes", "What histories take where they survive a restart")
        self._store_hpas = self._gauge("hpad_store_hpas", "HPAs that something is remembered of")

    def store_took(self, operation: str, seconds: float) -> None:
        """Histories were read (`load`) or written (`save`), or it was tried."""
        self._store_seconds.labels(operation).observe(seconds)
        if operation == "save":
            self._store_writes.inc()

    def store_failed(self, operation: str) -> None:
        self._store_errors.labels(operation).inc()

    def stored(self, hpas: int, size: int) -> None:
        """How many HPAs are remembered, in how many bytes."""
        self._store_hpas.set(hpas)
        self._store_bytes.set(size)
