"""What there is to tell of each HPA, for as long as it exists."""

from collections.abc import Iterable, Iterator

from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hpad.api.metadata import Key
from hpad.engine.conditions import ABLE_TO_SCALE, FALSE, SCALING_ACTIVE, SCALING_LIMITED, TRUE, Condition
from hpad.telemetry.series import ORIGINAL, Series


class _PerHpa(registry.Collector):
    """What there is of each HPA: plain dicts, read when somebody looks, so that a deleted HPA leaves nothing behind.

    `at_max`: seconds spent at maxReplicas so far. `held_since`: when an HPA that is there was last seen there.
    `held_back`: (condition, reason) of all that keeps an HPA from the size it wants. `competing`: kind and name of all
    other writers of its target or status.
    """

    def __init__(self) -> None:
        self.desired: dict[Key, int] = {}
        self.at_max: dict[Key, float] = {}
        self.held_since: dict[Key, float] = {}
        self.held_back: dict[Key, list[tuple[str, str]]] = {}
        self.competing: dict[Key, list[tuple[str, str]]] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["namespace", "hpa_name"]
        family = GaugeMetricFamily(f"{ORIGINAL}desired_replicas", "Replicas the HPA last wanted", labels=labels)
        for key, replicas in self.desired.copy().items():
            family.add_metric([key.namespace, key.name], replicas)
        yield family
        help_ = "Seconds an HPA has wanted maxReplicas"
        counts = CounterMetricFamily("hpad_hpa_at_max_seconds", help_, labels=labels)
        for key, seconds in self.at_max.copy().items():
            counts.add_metric([key.namespace, key.name], seconds)
        yield counts
        help_ = "1 for each condition that keeps an HPA from the size it wants"
        troubles = GaugeMetricFamily("hpad_hpa_held_back", help_, labels=[*labels, "condition", "reason"])
        for key, conditions in self.held_back.copy().items():
            for condition, reason in conditions:
                troubles.add_metric([key.namespace, key.name, condition, reason], 1)
        yield troubles
        help_ = "1 for each other writer of the target of an HPA (kind hpa or scale) or of its status (kind status)"
        writers = GaugeMetricFamily("hpad_hpa_competing_writer", help_, labels=[*labels, "kind", "writer"])
        for key, found in self.competing.copy().items():
            for kind, writer in found:
                writers.add_metric([key.namespace, key.name, kind, writer], 1)
        yield writers

    def forget(self, key: Key) -> None:
        for held in (self.desired, self.at_max, self.held_since, self.held_back, self.competing):
            held.pop(key, None)


class Hpas(Series):
    """Fed by whoever has decided on an HPA, and by whoever sees it go."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._per_hpa = _PerHpa()
        to.register(self._per_hpa)
        self._hpas = self._gauge(f"{ORIGINAL}num_horizontal_pod_autoscalers", "HPAs under control")

    def desired(self, key: Key, replicas: int, maximum: int, now: float) -> None:
        """What an HPA wants, and its maxReplicas; `now` is monotonic. Time counts as at max between two such sights."""
        held = self._per_hpa
        held.desired[key] = replicas
        since = held.held_since.pop(key, now)
        held.at_max[key] = held.at_max.get(key, 0.0) + now - since
        if replicas >= maximum:
            held.held_since[key] = now

    def conditions(self, key: Key, held: Iterable[Condition]) -> None:
        """The conditions an HPA has now; counted are those that say that it cannot scale, or not as far as it wants."""
        good = {ABLE_TO_SCALE: TRUE, SCALING_ACTIVE: TRUE, SCALING_LIMITED: FALSE}
        self._per_hpa.held_back[key] = [(c.type, c.reason) for c in held if c.status != good.get(c.type, c.status)]

    def competing(self, key: Key, writers: list[tuple[str, str]]) -> None:
        """The other writers of an HPA's target and status now, as kind and name."""
        if writers:
            self._per_hpa.competing[key] = writers
        else:
            self._per_hpa.competing.pop(key, None)

    def forget(self, key: Key) -> None:
        """The HPA is gone, and its series with it."""
        self._per_hpa.forget(key)

    def hpas(self, count: int) -> None:
        self._hpas.set(count)
