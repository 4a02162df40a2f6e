"""What is known of an HPA whose faults are looked for, and how its metrics are named in sentences."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import NamedTuple

from hpad.api import amounts
from hpad.engine.annotations import PLAIN
from hpad.engine.controls import Controls
from hpad.engine.spec import UTILIZATION, CompiledMetric, CompiledSpec, compiled_spec
from hpad.simulation.advice import rescales
from hpad.simulation.advice.assessment import Facts, ModelTrust
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import PastRecord
from hpad.simulation.history import goal_of, is_total, metrics_of

Moments = Sequence[bool | None]


class LeadingMetric(NamedTuple):
    """A metric over some moments: its address, and the median of its value divided by its goal."""

    address: str
    ratio: float


class Case:
    """One HPA, its facts and its record. `now` is the rerun of its present spec."""

    def __init__(self, past: HpaPast, facts: Facts, record: PastRecord, now: Rerun | None, trust: ModelTrust) -> None:
        self.past, self.facts, self.record, self.now, self.trust = past, facts, record, now, trust

    @property
    def spec(self) -> CompiledSpec:
        return compiled_spec(self.past.hpa)

    @property
    def controls(self) -> Controls:
        return PLAIN.of(self.past.hpa).controls

    @cached_property
    def metrics(self) -> Mapping[str, CompiledMetric]:
        """The metrics by address."""
        return metrics_of(self.past.hpa)

    @cached_property
    def legs(self) -> list[rescales.Leg]:
        return rescales.legs(rescales.rescales(self.past))

    @property
    def reads(self) -> Moments:
        """Where the HPA could read its metrics."""
        return [not each for each in self.record.failing]

    def share(self, seconds: float) -> float:
        """Returns the part of the known time."""
        return seconds / self.facts.seconds if self.facts.seconds else 0.0

    def per_day(self, count: float) -> float:
        return count / self.facts.days if self.facts.days else 0.0

    def leading(self, moments: Moments) -> LeadingMetric | None:
        """Returns the metric that was farthest above its goal in these moments; None if no metric has values there."""
        found = [
            LeadingMetric(address, median(known))
            for address, column in self.record.ratios.items()
            if (known := [ratio for ratio in itertools.compress(column, moments) if ratio is not None])
        ]
        return max(found, key=lambda each: each.ratio, default=None)

    def asked(self, moments: Moments) -> int | None:
        """Returns the highest count that the metrics asked for in these moments."""
        return max(
            (count for count in itertools.compress(self.record.asked, moments) if count is not None), default=None
        )

    def values(self, moments: Moments) -> str:
        """Returns "cpu at 95 %, goal 60 %" of the leading metric; "" without one."""
        reading = self.leading(moments)
        if reading is None:
            return ""
        metric = self.metrics[reading.address]
        each = " per replica" if is_total(metric) else ""
        return f"{reading.address} at {amount(metric, reading.ratio)}{each}, goal {amount(metric, 1)}"

    def of_pods(self, moments: Moments) -> Iterator[bool]:
        """Yields for each of these moments whether the leading metric is one of pods."""
        columns = [(self.metrics[address].of_pods, column) for address, column in self.record.ratios.items()]
        for index in itertools.compress(range(len(self.record.counts)), moments):
            yield max(((column[index] or 0.0, of_pods) for of_pods, column in columns), default=(0.0, True))[1]


def amount(metric: CompiledMetric, ratio: float) -> str:
    """Returns that part of the goal of a metric: "95 %", "1.4Gi", "850m"."""
    if metric.kind == UTILIZATION:
        value = goal_of(metric) * ratio
        return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"
    return amounts.rounded(Fraction(metric.amount) * Fraction(ratio), metric.amount if ratio != 1 else 0, metric.unit)
