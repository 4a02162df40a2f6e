"""The types of an outlook, as the API and `hpad explain -o json` have them."""

from datetime import datetime
from typing import Final

from hpad.engine.trace.metric_types import Step

ABOVE: Final = "above"
AT_LEAST: Final = "atLeast"
BELOW: Final = "below"
AT_MOST: Final = "atMost"

STEP: Final = "step"
GROWTH: Final = "growth"
SHRINKING: Final = "shrinking"
PODS: Final = "pods"
READING: Final = "reading"
FALLBACK: Final = "fallback"
SCHEDULE: Final = "schedule"
BLOCKED: Final = "blocked"
STOPPED: Final = "stopped"


class Threshold(Step, frozen=True):
    """A reading of a metric beyond which its proposal differs from the count.

    `relation` says on which side: above, atLeast, below or atMost.

    `amount` is a quantity, or a percentage where the metric target is a Utilization. For Object and External metrics it
    is the total, which `pods` replicas share (None: they do not share it).
    """

    metric: str
    relation: str
    amount: str
    pods: int | None = None


class Outlook(Step, frozen=True):
    """A condition under which the count changes, or the reason why it cannot.

    | kind | the count changes to `replicas` |
    | --- | --- |
    | step | by itself, with the first reconcile after `at` (None: the next one) |
    | growth | up, once one of `thresholds` is crossed |
    | shrinking | down, once all of `thresholds` are crossed |
    | pods | once any `needed` of `pods` are ready and as busy as the others; some may change it further |
    | reading | once `metrics` can be read and want no more than the others |
    | fallback | at `at`, or not at all: a fallback of `metrics` begins, ends or is in force |
    | schedule | at `at`, if it is outside the minimum and maximum of the schedule from then on |
    | blocked | not in one direction: what blocks it |
    | stopped | not before what `text` says: the metrics do not decide, or the count cannot be written |

    `replicas` is None where the count is not known, or does not change. `rest` is the end of `text`, behind the time
    `at` in it.
    """

    text: str
    kind: str
    at: datetime | None = None
    rest: str = ""
    replicas: int | None = None
    thresholds: tuple[Threshold, ...] = ()
    metrics: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    needed: int | None = None
