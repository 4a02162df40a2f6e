"""What can be wrong with an HPA: the kinds of faults, and one found."""

import enum

import msgspec


class HpaFault(enum.StrEnum):
    """A kind of fault; the value is its name in JSON, in links and in filters."""

    AT_MAXIMUM = "at-maximum"
    """At the maximum for hours while the metrics ask for more."""
    FLAPPING = "flapping"
    """The count goes up and down again in a sawtooth that the load does not ask for."""
    IDLE_MINIMUM = "idle-minimum"
    """The minimum is far above what the load needs."""
    GOAL_LOW = "goal-low"
    """The metric target is so low that most of what is paid for does nothing."""
    GOAL_HIGH = "goal-high"
    """The metric target is so high that pods are overloaded before more are there."""
    WINDOW_SHORT = "window-short"
    """Replicas are removed and needed again soon after, as the window of scale-downs is short."""
    WINDOW_USELESS = "window-useless"
    """A stabilization window that costs replicas or time and prevents nothing."""
    POLICY_SLOW = "policy-slow"
    """A policy or window delays scale-ups so that the load is above the goal."""
    REQUESTS_MISSING = "requests-missing"
    """Containers without the request that a utilization needs."""
    METRIC_FAILING = "metric-failing"
    """Metrics could not be read for a part of the time."""
    MINIMUM_IS_MAXIMUM = "minimum-is-maximum"
    """minReplicas equals maxReplicas: the HPA never scales."""
    QUEUE_SLOW = "queue-slow"
    """A queue stays above its goal although replicas could be added."""
    GOAL_BELOW_ONE_POD = "goal-below-one-pod"
    """Each pod exceeds the goal however many there are."""
    NOT_SCALING = "not-scaling"
    """The metrics ask for more replicas for hours, and nothing in the spec keeps it from scaling."""
    PAUSED = "paused"
    """An annotation of hpad pauses the HPA, so nothing scales it."""


class Severity(enum.StrEnum):
    """How much a fault matters."""

    ERROR = "error"
    """It does not scale, or the load is not served."""
    WARNING = "warning"
    """Something is lost: replicas, time above goal, or calm."""
    NOTE = "note"
    """Worth knowing; nothing is lost now."""


class FoundFault(msgspec.Struct, frozen=True):
    """One fault of one HPA. `text` is a sentence with the figures that show it, without the name of the HPA.

    `brief` is its core for a line of 100 characters; "" where the text is short enough.
    """

    fault: HpaFault
    severity: Severity
    text: str
    brief: str = ""
