"""A service: ready replicas share the load evenly, and each serves at most its capacity.

What exceeds the capacity of all is lost, as with clients that give up. CPU grows in proportion to the work done.
"""

from collections.abc import Mapping
from typing import Final

from hpad.simulation.fleet import SimulatedReplica
from hpad.simulation.model import Measured, Model, ModelParameters

_POINTS: Final = 4
"""At how many moments of an interval the load is read."""


class Service(ModelParameters, frozen=True, kw_only=True):
    """The parameters of a service.

    `capacity`: units per second that one replica can serve. `cpu`, `cpu_idle`: millicores that it uses at full
    capacity, and without work. `memory`: thousandths of bytes that it uses. `startup`: seconds until a new replica
    serves; `cpu_startup`: millicores that it uses until then. `noise`: the relative standard deviation of the CPU usage
    of a pod. The requests are those of `container`.
    """

    capacity: float = 100.0
    cpu: float = 500.0
    cpu_idle: float = 0.0
    cpu_startup: float = 0.0
    memory: float = 0.0
    noise: float = 0.0


class ServiceModel(Model[Service]):
    """A workload (`run.Workload`) that serves a load. `lost` counts the units that nobody served."""

    def _prepare(self) -> None:
        self._arrived = self._done = self._seconds = 0.0
        self._shared = 0.0
        """Units that a replica has done which was ready for the whole interval."""
        self._joined: dict[str, tuple[float, float]] = {}
        """The replicas that joined in this interval: what `_shared` and `_seconds` were then."""
        self.lost = 0.0

    def _work(self, begin: float, end: float) -> None:
        ready, length = self.fleet.ready, end - begin
        part = length / _POINTS
        for index in range(_POINTS):
            rate = self._load(begin + (index + 0.5) * part)
            each = min(rate / ready, self._parameters.capacity) if ready else 0.0
            self._arrived += rate * part
            self._shared += each * part
            self._done += each * ready * part
            self.lost += (rate - each * ready) * part
        self._seconds += length

    def _join(self, replicas: list[SimulatedReplica]) -> None:
        for replica in replicas:
            self._joined[replica.pod.name] = self._shared, self._seconds

    def _leave(self, replicas: list[SimulatedReplica]) -> None:
        for replica in replicas:
            self._joined.pop(replica.pod.name, None)

    def _measure(self, at: float) -> Measured:
        seconds = self._seconds
        if seconds == 0.0:  # the first scrape: values of this moment
            ready = self.fleet.ready
            rate = self._load(at)
            each = min(rate / ready, self._parameters.capacity) if ready else 0.0
            totals = {"load": rate, "served": each * ready, "backlog": 0.0, "waiting": 0.0}
            rates = {replica.pod.name: each for replica in self.fleet.replicas if replica.is_ready}
            return Measured(at, self._usages(rates, {}), totals)
        totals = {"load": self._arrived / seconds, "served": self._done / seconds, "backlog": 0.0, "waiting": 0.0}
        rates, parts = self._shares(seconds)
        self._arrived = self._done = self._shared = self._seconds = 0.0
        self._joined = {}
        return Measured(at, self._usages(rates, parts), totals)

    def _shares(self, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
        """Returns the units per second of each replica, and for which part of the interval it was ready, if not all."""
        each = self._shared / seconds
        rates = {replica.pod.name: each for replica in self.fleet.replicas}
        if not self._joined and self.fleet.ready == len(rates):
            return rates, {}
        parts: dict[str, float] = {}
        for replica in self.fleet.replicas:
            name = replica.pod.name
            if not replica.is_ready:
                rates[name], parts[name] = 0.0, 0.0
            elif name in self._joined:
                shared, ready_since = self._joined[name]
                rates[name], parts[name] = each - shared / seconds, 1 - ready_since / seconds
        return rates, parts

    def _usages(self, rates: Mapping[str, float], parts: Mapping[str, float]) -> Mapping[str, Mapping[str, float]]:
        """Returns the values of each pod; `parts`: for which part of the interval it was ready, if not for all."""
        service, gauss = self._parameters, self._chance.gauss
        per_unit = (service.cpu - service.cpu_idle) / service.capacity / 1000
        idle, starting = service.cpu_idle / 1000, service.cpu_startup / 1000
        cpu = {name: idle + per_unit * rate for name, rate in rates.items()}
        for name, part in parts.items():
            cpu[name] += (starting - idle) * (1 - part)
        if service.noise:
            cpu = {name: max(0.0, used * gauss(1.0, service.noise)) for name, used in cpu.items()}
        return {"cpu": cpu, "memory": dict.fromkeys(rates, service.memory / 1000), "rate": rates}
