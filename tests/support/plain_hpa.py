"""The algorithm of the HorizontalPodAutoscaler, written again from its documentation and without hpad's engine.

Sources: https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ (Algorithm details,
Configurable scaling behavior), https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/
horizontal-pod-autoscaler-v2/. Times are seconds from the begin of a run; CPU is in cores, memory in bytes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PERIOD = 15
TOLERANCE = 0.1
_SUFFIXES = {"m": 1e-3, "k": 1e3, "M": 1e6, "Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3}


def quantity(written: str | int) -> float:
    """Returns the number that a quantity of Kubernetes stands for."""
    text = str(written)
    suffix = text.lstrip("0123456789.")
    return float(text.removesuffix(suffix)) * (_SUFFIXES[suffix] if suffix else 1.0)


class Reading(NamedTuple):
    """What one metric says in a turn: the value per pod, or None if it cannot be read; pods with and without it."""

    per_pod: float | None
    pods: int
    unready: int = 0


class Goal(NamedTuple):
    """A metric target as a value per pod. `shared`: one value for all replicas, so that readiness does not count.

    `request` of a pod, of a utilization: the controller compares whole percents of it, without their fraction.
    Source: Kubernetes 1.36, metrics/utilization.go: GetResourceUtilizationRatio.
    """

    name: str
    kind: str
    per_pod: float
    shared: bool
    request: float = 0.0

    def ratio(self, per_pod: float) -> float:
        """Returns a value per pod as a part of the goal."""
        if not self.request:
            return per_pod / self.per_pod
        return int(per_pod / self.request * 100 + 1e-9) / round(self.per_pod / self.request * 100)

    def proposal(self, reading: Reading, current: int) -> int | None:
        """Returns the count that this metric asks for, or None if it could not be read."""
        if reading.per_pod is None:
            return None
        if self.shared:
            total = reading.per_pod * current
            return current if abs(reading.per_pod / self.per_pod - 1) <= TOLERANCE else math.ceil(total / self.per_pod)
        ratio = self.ratio(reading.per_pod)
        if reading.unready and ratio > 1:
            everyone = reading.pods + reading.unready  # pods that are not ready yet count as idle
            diluted = self.ratio(reading.per_pod * reading.pods / everyone)
            return current if diluted <= 1 + TOLERANCE else max(current, math.ceil(diluted * everyone))
        return current if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * reading.pods - 1e-9)


@dataclass(frozen=True)
class Rules:
    """One direction of spec.behavior. Policies are (type, value, periodSeconds)."""

    window: int
    policies: Sequence[tuple[str, int, int]]
    select: str = "Max"


@dataclass(frozen=True)
class Spec:
    """What of an HPA decides its count. `up` is None without spec.behavior: then twice the count, or 4."""

    minimum: int
    maximum: int
    goals: Sequence[Goal]
    up: Rules | None
    down: Rules

    @staticmethod
    def of(manifest: Mapping[str, Any], requests: Mapping[str, float]) -> "Spec":
        """Reads a manifest of autoscaling/v2. `requests` of a pod by resource, in cores and bytes."""
        spec = manifest["spec"]
        behavior = spec.get("behavior")
        up = _rules((behavior or {}).get("scaleUp"), Rules(0, [("Percent", 100, 15), ("Pods", 4, 15)]))
        down = _rules((behavior or {}).get("scaleDown"), Rules(300, [("Percent", 100, 15)]))
        goals = [_goal(metric, requests) for metric in spec["metrics"]]
        return Spec(spec.get("minReplicas", 1), spec["maxReplicas"], goals, up if behavior else None, down)


def _rules(written: Mapping[str, Any] | None, default: Rules) -> Rules:
    if not written:
        return default
    policies = [(each["type"], each["value"], each["periodSeconds"]) for each in written.get("policies") or []]
    window = written.get("stabilizationWindowSeconds")
    return Rules(
        default.window if window is None else window, policies or default.policies, written.get("selectPolicy", "Max")
    )


def _goal(metric: Mapping[str, Any], requests: Mapping[str, float]) -> Goal:
    source = next(value for key, value in metric.items() if key != "type")
    name = source["name"] if "name" in source else source["metric"]["name"]
    target = source["target"]
    if target["type"] == "Utilization":
        return Goal(name, metric["type"], target["averageUtilization"] / 100 * requests[name], False, requests[name])
    return Goal(name, metric["type"], quantity(target["averageValue"]), metric["type"] == "External")


@dataclass
class Controller:
    """Decides the counts of one HPA, turn by turn: one call every 15 seconds."""

    spec: Spec
    recommended: list[int | None] = field(default_factory=list)
    """One for each turn; None where no metric could be read."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    wanted: int = 0
    """What the metrics asked for in the last turn, before windows, policies and bounds."""
    active: bool = True

    def decide(self, now: int, current: int, readings: Sequence[Reading]) -> int:
        """Returns the new count. Metrics that fail keep the count, and forbid removing replicas."""
        proposals = [goal.proposal(each, current) for goal, each in zip(self.spec.goals, readings, strict=True)]
        known = [each for each in proposals if each is not None]
        self.active = bool(known)
        if not known or (len(known) < len(proposals) and max(known) < current):
            self.recommended.append(None)
            return current
        self.wanted = max(known)
        after = self._limited(now, current, self._stabilized(current, self.wanted))
        if after != current:
            self.changes = [each for each in self.changes if each[0] > now - 3600] + [(now, after - current)]
        return after

    def _stabilized(self, current: int, wanted: int) -> int:
        if not self.recommended:
            self.recommended.append(current)
        self.recommended.append(wanted)
        before = self.spec.up.window if self.spec.up else 0
        lowest = min(self._within(before)) if before else wanted
        return min(max(current, lowest), max(self._within(self.spec.down.window)))

    def _within(self, window: int) -> list[int]:
        """Returns the recommendations that are younger than a window, with that of this turn."""
        return [each for each in self.recommended[-max(1, math.ceil(window / PERIOD)) :] if each is not None]

    def _limited(self, now: int, current: int, wanted: int) -> int:
        spec = self.spec
        if wanted > current:
            most = max(2 * current, 4) if spec.up is None else max(current, self._reach(now, current, spec.up, 1))
            wanted = min(wanted, most)
        elif wanted < current:
            wanted = max(wanted, min(current, self._reach(now, current, spec.down, -1)))
        return min(max(wanted, spec.minimum), spec.maximum)

    def _reach(self, now: int, current: int, rules: Rules, sign: int) -> int:
        """Returns the farthest count that the policies of one direction allow."""
        if rules.select == "Disabled":
            return current
        limits = []
        for kind, value, period in rules.policies:
            start = current - sum(change for time, change in self.changes if time > now - period)
            percent = math.ceil(start * (1 + value / 100)) if sign > 0 else math.floor(start * (1 - value / 100))
            limits.append(percent if kind == "Percent" else start + sign * value)
        return max(limits) if (rules.select == "Max") == (sign > 0) else min(limits)
