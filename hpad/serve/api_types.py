"""The answers of the JSON API v1. Their JSON is camelCase; a field without a value is left out."""

from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api.hpa import (
    HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerCondition,
    MetricSpec,
    MetricStatus,
)
from hpad.engine.outlook.types import Outlook
from hpad.engine.trace import Trace
from hpad.records.entry import Entry
from hpad.sources.limits import SourceReport

FAILING: Final = "failing"
AT_MAX: Final = "atMax"
LIMITED: Final = "limited"
FALLBACK: Final = "fallback"
COMPETING: Final = "competing"
PAUSED: Final = "paused"
SHADOW: Final = "shadow"
DRY_RUN: Final = "dryRun"
STATES: Final = (FAILING, AT_MAX, LIMITED, FALLBACK, COMPETING, PAUSED, SHADOW, DRY_RUN)
"""The states of an HPA, the most serious first. An HPA may be in several, or in none."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of the answers."""


class Error(_Answer, frozen=True):
    """Why there is no other answer."""

    error: str


class Version(_Answer, frozen=True):
    """The build of hpad, the version of Kubernetes whose controller it follows, and the version of this API."""

    version: str
    kubernetes: str
    api: str
    commit: str = ""
    build_date: str = ""


class Status(_Answer, frozen=True):
    """What this process does at present, in a sentence and in a few `facts`.

    `unready` are the reasons why it is not ready, and `problems` those it has now, one sentence each.
    """

    doing: str
    dry_run: bool
    facts: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Target(_Answer, frozen=True):
    """The object that is scaled."""

    api_version: str
    kind: str
    name: str


class Metric(_Answer, frozen=True):
    """One metric of an HPA in the last decision; before the first one, in the status.

    `address` names the metric within the HPA. `proposal` is the count it asks for, absent while it cannot be read.
    `current` and `target` are the usage and the metric target for people, such as "80%" and "50%"; both are per replica
    for an AverageValue. `ratio` is usage / metric target.
    """

    address: str
    proposal: int | None = None
    current: str | None = None
    target: str | None = None
    ratio: float | None = None


class LastDecision(_Answer, frozen=True):
    """The last decision of this process.

    `brief` is the sentence for a table that has the metrics beside it: what failed or holds the count comes first.
    `error` says what failed; `cause` is the first failure, without the name of the metric, and `group`, of a failing
    HPA, the cause without what differs from HPA to HPA. `action` is scale_up, scale_down or none. `held_by` is the
    reason why the target does not get the count that its metrics ask for, as in the series; of several, that of the
    last stage.
    """

    time: datetime
    sentence: str
    brief: str = ""
    error: str = ""
    cause: str = ""
    group: str = ""
    action: str = ""
    held_by: str = ""


class Summary(_Answer, frozen=True):
    """One HPA in a list. `kind` is HorizontalPodAutoscaler or Autoscaler: one of each may have the same name.

    `shadowReplicas` is the count that hpad would have given the target, in shadow mode only. `notes` name competing
    writers, and mistakes in the annotations of hpad.
    """

    namespace: str
    name: str
    kind: str
    target: Target
    min_replicas: int
    max_replicas: int
    current_replicas: int
    desired_replicas: int
    states: tuple[str, ...]
    dry_run: bool
    metrics: tuple[Metric, ...]
    shadow_replicas: int | None = None
    last_scale_time: datetime | None = None
    last_decision: LastDecision | None = None
    notes: tuple[str, ...] = ()


class HpaList(_Answer, frozen=True):
    """A page of the HPAs.

    `total` is the number of HPAs that match all filters, on all pages. `counts` has the number of HPAs in each state,
    of those that match `namespace`, `kind` and `search`. `continue` gives the next page; it is absent on the last one.
    """

    items: tuple[Summary, ...]
    total: int
    counts: dict[str, int]
    continue_: str = msgspec.field(name="continue", default="")


class Detail(Summary, frozen=True, kw_only=True):
    """One HPA with its last decision.

    `specMetrics` and `behavior` are those of the spec, and `conditions` those of the status, as in autoscaling/v2.
    `currentMetrics` are those of the last decision, or of the status if it measured none. `owner` is the identity of
    the process that reconciles the HPA, as far as this one knows. `troubles` are the types of the conditions that say
    that something is wrong; ScalingLimited is not one of them where only the minimum limits the count.
    `annotationErrors` has the error of each invalid annotation of hpad. `trace` is the last decision of this process,
    stage by stage, and `outlook` what would change the count next.
    """

    sentence: str
    spec_metrics: tuple[MetricSpec, ...]
    current_metrics: tuple[MetricStatus, ...]
    conditions: tuple[HorizontalPodAutoscalerCondition, ...]
    troubles: tuple[str, ...]
    annotation_errors: dict[str, str]
    outlook: tuple[Outlook, ...]
    owner: str = ""
    behavior: HorizontalPodAutoscalerBehavior | None = None
    trace: Trace | None = None


class EntryList(_Answer, frozen=True):
    """A page of the decision history of an HPA, the newest entry first. `continue` gives the next page."""

    items: tuple[Entry, ...]
    continue_: str = msgspec.field(name="continue", default="")


class DecisionAt(Entry, frozen=True, kw_only=True):
    """The decision that was in force at a time.

    `trace` and `outlook` (what would have changed the count next) are those of this version of hpad for the inputs of
    that time; `notes` says so where it decides otherwise than the hpad of that time. Without a `trace` the inputs are
    not kept, as they were too large.
    """

    outlook: tuple[Outlook, ...]
    notes: tuple[str, ...] = ()


class Recording(_Answer, frozen=True):
    """The last decisions of an HPA, from `began` to `ended`, as a recording that `hpad replay` reads.

    Each of `scenarios` is a line of its file.
    """

    began: datetime
    ended: datetime
    decisions: int
    scenarios: tuple[Any, ...]


class SourceList(_Answer, frozen=True):
    """The state of the metric sources."""

    items: tuple[SourceReport, ...]


class Replica(_Answer, frozen=True):
    """One process of hpad, as far as the answering process knows.

    `role` is leader, standby or single (without election). `owned` is the number of HPAs that it reconciles.
    """

    identity: str
    role: str
    owned: int | None = None


class ReplicaList(_Answer, frozen=True):
    """The known processes of hpad; `self` is the identity of the answering one."""

    items: tuple[Replica, ...]
    self_: str = msgspec.field(name="self")
