"""The types of the metrics in a trace; `hpad.engine.trace` has the other types, and describes the format."""

from datetime import datetime

import msgspec


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of the parts of a trace: optional fields that have no value are left out of the JSON."""


class PodTrace(Step, frozen=True):
    """One pod in one metric: its group, `why` it is not ready, its value and request, and the span of its sample.

    `group` is ready, unready, missing (no sample), ignored (ending or failed), lacking (without the container) or
    unlisted (a sample of a pod that is not listed). `assumed` is the value that counts for a pod without a usable one
    when the change is checked with all pods.
    """

    name: str
    group: str
    why: str = ""
    value: str | None = None
    request: str | None = None
    assumed: str | None = None
    timestamp: datetime | None = None
    window_seconds: float | None = None


class SampleTrace(Step, frozen=True):
    """The answer of the source: its time, and its age when the decision was made.

    `value` is that of an Object metric, `values` those of the series of an External metric; the values of metrics per
    pod are those of the pods.
    """

    timestamp: datetime
    age_seconds: float
    value: str | None = None
    values: tuple[str, ...] | None = None


class MetricTargetTrace(Step, frozen=True):
    """The metric target: Utilization (percent of the requests), Value or AverageValue."""

    type: str
    amount: str


class UsageTrace(Step, frozen=True):
    """What the sample means: `ratio` is usage / metric target over `pods` pods, None if it is not a number.

    `cautious_ratio` counts unready and missing pods in, and `pods` then includes them.
    """

    value: str | None = None
    percent: int | None = None
    total: str | None = None
    pods: int | None = None
    ratio: float | None = None
    cautious_ratio: float | None = None


class ToleranceTrace(Step, frozen=True):
    """How far the ratio may be below and above 1 without a change, and whether it is within."""

    down: float
    up: float
    within: bool


class FallbackTrace(Step, frozen=True):
    """The fallback in force: the policy as written, and its effect. `ignored`: the metric is left out.

    `until` is set where the fallback ends although the metric still fails: its value is then too old.
    """

    policy: str
    effect: str
    ignored: bool = False
    until: datetime | None = None


class NextFallbackTrace(Step, frozen=True):
    """The fallback that begins at `at` if the metric still fails then. `replicas` is None where it is left out."""

    policy: str
    at: datetime
    replicas: int | None = None


class ActivationTrace(Step, frozen=True):
    """The activation threshold: up to it the metric proposes 0 replicas, above it at least 1.

    `measured` is the proposal before it; None where the threshold changed nothing.
    """

    threshold: str
    measured: int | None = None


class FactTrace(Step, frozen=True):
    """A fact about a metric in words."""

    label: str
    text: str


class MetricTrace(Step, frozen=True):
    """One metric: sample, pods, usage and proposal, or the error.

    `address` names the metric within the HPA. `source` is the name of the metric source ("": none). `proposal` is None
    where the metric proposes nothing. `pods_omitted` is the number of pods left out of a long list. `text` is a
    clause for people. `api_error` is the error as Kubernetes words it in the error of the whole reconcile, and `fault`
    names what has to change: the spec, the source, the cluster, the pods or the program ("bug"). `unit` is "cores",
    "bytes" or "" (a count). `exact` is what the metric would propose without the tolerance, for a metric policy.
    `verdict` says after the address what the metric asks for, and `facts` how that follows from its sample.
    """

    address: str
    type: str
    name: str
    label: str
    text: str
    verdict: str = ""
    facts: tuple[FactTrace, ...] = ()
    unit: str = ""
    source: str = ""
    target: MetricTargetTrace | None = None
    sample: SampleTrace | None = None
    pods: tuple[PodTrace, ...] = ()
    pods_omitted: int = 0
    usage: UsageTrace | None = None
    tolerance: ToleranceTrace | None = None
    proposal: int | None = None
    error: str = ""
    api_error: str = ""
    fault: str = ""
    fallback: FallbackTrace | None = None
    next_fallback: NextFallbackTrace | None = None
    activation: ActivationTrace | None = None
    exact: int | None = None
