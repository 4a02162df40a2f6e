"""Series of the last decision about each HPA."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import structlog
from prometheus_client import registry
from prometheus_client.core import GaugeMetricFamily, Metric

from hpad.api.metadata import Key
from hpad.engine import shadow
from hpad.engine.addresses import addresses
from hpad.engine.examine import Clamp
from hpad.engine.holds import held_by
from hpad.engine.propose import Proposal
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.turn import Reconcile
from hpad.telemetry.series import SeriesFactory

_Sample = tuple[str, tuple[str, ...], float | None]
"""The name of a series of an HPA, the labels beside those of the HPA, and the value; None: no sample.

Counts are in replicas; targets and values of metrics are in base units.
"""
_LABELS: Final = ("namespace", "hpa_name")
_FAMILIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "min_replicas": ("The fewest replicas that the metrics may ask for", ()),
    "max_replicas": ("maxReplicas of the HPA", ()),
    "current_replicas": ("Replicas that the target had when the HPA was last decided", ()),
    "recommendation": ("Replicas before spec.behavior and limits; none where the metrics did not decide", ()),
    "decision": ("Replicas after them, written or not; none where nothing was decided", ()),
    "shadow_replicas": ("Replicas that the target would have; in shadow mode and in a dry run only", ()),
    "metric_target": ("Metric target: cores, bytes, a count, or a ratio to the request", ("metric",)),
    "metric_value": ("Usage that is compared with the target, in its unit; none while the metric fails", ("metric",)),
    "metric_proposal": ("Replicas that the metric proposes; none while it fails without a fallback", ("metric",)),
    "held_by": ("1 for each reason that holds the replicas from what the metrics ask for", ("reason",)),
    "competing_writer": (
        "1 for each other writer of the target of an HPA (kind hpa or scale) or of its status (kind status)",
        ("kind", "writer"),
    ),
}
"""The text and the further labels of each series, by its name without `hpad_hpa_`."""


class DecisionSeries(registry.Collector):
    """The last decision about each HPA; its samples are worked out in a scrape.

    An HPA has five or six of them, three for each metric, and one for each reason that holds it and for each competing
    writer.
    """

    def __init__(self, make: SeriesFactory) -> None:
        self._decided: dict[Key, Reconcile] = {}
        self._log = structlog.get_logger("hpad.telemetry")
        self._failed: set[Key] = set()
        make.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yields one family after the other, all of the same moment."""
        found: defaultdict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for key, done in self._decided.copy().items():  # the event loop goes on while a thread renders the series
            for name, labels, value in self._worked_out(key, done):
                if value is not None:
                    found[name].append(((*key, *labels), value))
        for name, (text, labels) in _FAMILIES.items():
            family = GaugeMetricFamily(f"hpad_hpa_{name}", text, labels=(*_LABELS, *labels))
            for sample in found.pop(name, ()):
                family.add_metric(*sample)
            yield family

    def decided(self, done: Reconcile) -> None:
        """Replaces the decision about an HPA."""
        self._decided[done.view.key] = done

    def forget(self, key: Key) -> None:
        """Removes the series of an HPA."""
        self._decided.pop(key, None)

    def _worked_out(self, key: Key, done: Reconcile) -> list[_Sample]:
        """Returns the samples of an HPA. One that fails has none, and is logged once."""
        try:
            return list(_samples(done))
        except Exception:  # noqa: BLE001  # a bug of one HPA must not take the series of all
            if key not in self._failed:
                self._failed.add(key)
                self._log.exception("bug: the series of an HPA could not be worked out", hpa=str(key))
            return []


def _samples(done: Reconcile) -> Iterator[_Sample]:
    view, decision, metrics = done.view, done.decision, done.view.spec.metrics
    recommendation = decision.recommendation
    leads = recommendation is not None and recommendation.leader is not None
    yield ("min_replicas", (), view.min_replicas)
    yield ("max_replicas", (), view.max_replicas)
    yield ("current_replicas", (), None if view.scale is None else view.target_replicas)
    if recommendation is not None and leads:
        yield ("recommendation", (), max(0, recommendation.replicas))
    if leads or isinstance(decision.verdict, Clamp):
        yield ("decision", (), decision.desired)
    yield ("shadow_replicas", (), shadow.count_after(view, decision))
    proposals = decision.proposals or (None,) * len(metrics)
    for address, metric, proposal in zip(addresses(metrics), metrics, proposals, strict=True):
        yield from _of_metric((address,), metric, proposal)
    for reason in held_by(view, decision, done.outcome):
        yield ("held_by", (reason,), 1)
    for writer in view.competitors:
        yield ("competing_writer", (writer.what, writer.name), 1)


def _of_metric(labels: tuple[str, ...], metric: CompiledMetric, proposal: Proposal | None) -> Iterator[_Sample]:
    """Yields the samples of one metric; `proposal` is None where the metrics were not queried."""
    yield ("metric_target", labels, metric.amount / _per_unit(metric) if metric.kind else None)
    if proposal is not None and proposal.proposed is not None:
        yield ("metric_value", labels, _value(proposal))
        yield ("metric_proposal", labels, proposal.replicas)


def _value(proposal: Proposal) -> float | None:
    """Returns the usage that is compared with the metric target; that of all replicas together where there are none."""
    usage, metric = proposal.usage, proposal.metric
    if usage is None:
        return None
    if metric.kind == UTILIZATION:
        value: float | None = usage.percent
    else:
        value = usage.value if usage.total is None else usage.total / max(1, usage.pods or 0)
    return None if value is None else value / _per_unit(metric)


def _per_unit(metric: CompiledMetric) -> int:
    """Returns how much of the metric target is one base unit: 100 percent, or 1000 milli-units."""
    return 100 if metric.kind == UTILIZATION else 1000
