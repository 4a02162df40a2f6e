"""Queries to metric sources, and the samples they answer with.

A query is one metric of one HPA; a sample is one answer of an adapter. Values are milli-units (1500 is 1.5), rounded
away from zero as in Kubernetes. Missing is never zero: without a value the answer is an `AdapterError`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Self

import msgspec

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler
from hpad.api.metadata import Moment
from hpad.api.selector import Selector
from hpad.api.text import begin

RESOURCE = "Resource"
CONTAINER_RESOURCE = "ContainerResource"
PODS = "Pods"
OBJECT = "Object"
EXTERNAL = "External"
SOURCE_TYPES = (RESOURCE, CONTAINER_RESOURCE, PODS, OBJECT, EXTERNAL)
LONGEST_NOTE: Final = 300
"""Characters of the note of a sample."""
DEFINED: Final = "own query"
"""The name of every query that an adapter gets with a definition."""


class HPAIdentity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Identifies the HPA behind a query: its name, its labels (sorted pairs) and its target."""

    name: str
    target_kind: str
    target_name: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, hpa: HorizontalPodAutoscaler) -> Self:
        """Returns the identity of an HPA."""
        target, labels = hpa.spec.scale_target_ref, hpa.metadata.labels
        return cls(
            name=hpa.metadata.name,
            target_kind=target.kind,
            target_name=target.name,
            labels=tuple(sorted(labels.items())) if labels else (),
        )


class Member(msgspec.Struct, frozen=True, gc=False):
    """A pod of a target: its name, and its IP address as text ("": none yet)."""

    name: str
    address: str = ""


class QueryDefinition(msgspec.Struct, frozen=True, eq=False, weakref=True, dict=True):
    """The definition that a query brings along, from `spec.queries` of an Autoscaler.

    `source` is the metric source that reads it, `text` its parameters as JSON with sorted keys: two definitions are
    equal if these are. For adapters `metric` has the parameters in the schema of the adapter; it is None before.
    """

    source: str
    text: str
    metric: Any = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, QueryDefinition) and (self.source, self.text) == (other.source, other.text)

    def __hash__(self) -> int:
        return hash((self.source, self.text))


class Query(msgspec.Struct, frozen=True, gc=False, kw_only=True, cache_hash=True):
    """One metric to read.

    `type` is one of SOURCE_TYPES; `name` is the name of the metric or resource. `pods` selects the target's pods
    (Resource, ContainerResource, Pods); `selector` is the metric's own selector, None where the spec has none;
    `container` is set for ContainerResource, `object` for Object; a described Namespace is always `namespace`, whatever
    name was given (Kubernetes 1.36, metrics/client.go: GetObjectMetric). `ignored_containers`, sorted, are no part of
    a Resource metric; only adapters with `ignores_containers` get such queries. `hpa` is set only for an adapter whose
    answer depends on it, so that equal queries of different HPAs are shared.

    `members`, sorted by name, are the active pods of the target, for a query of the unfinished work of each pod; None
    for all other queries. The answer then is a PodSample, also to a query of type External. Only adapters with
    `knows_members` get it.

    `definition` is set for a metric of type External that an Autoscaler defines itself; adapters get it under the name
    DEFINED, so that equal definitions of several names are one query.
    """

    type: str
    namespace: str
    name: str
    container: str = ""
    pods: Selector | None = None
    selector: Selector | None = None
    object: CrossVersionObjectReference | None = None
    hpa: HPAIdentity | None = None
    ignored_containers: tuple[str, ...] = ()
    members: tuple[Member, ...] | None = None
    definition: QueryDefinition | None = None

    def __post_init__(self) -> None:
        """Puts the HPA's own namespace in the place of another one that it describes."""
        described = self.object
        if described is None or described.kind != "Namespace" or described.name == self.namespace:
            return
        group, slash, _ = described.api_version.partition("/")
        if not (slash and group):
            own = msgspec.structs.replace(described, name=self.namespace)
            msgspec.structs.force_setattr(self, "object", own)


class PodValue(msgspec.Struct, frozen=True, gc=False):
    """One pod's value in milli-units, over the `window` that ended at `timestamp`."""

    value: int
    timestamp: Moment
    window: timedelta


class PodSample(msgspec.Struct, frozen=True, gc=False):
    """Answer to Resource, ContainerResource and Pods: pod name -> value; pods without a value are absent.

    `most_busy` belongs to queries with `members`: how many members at most have unfinished work, for a source that can
    count them and does not know which of those without a value they are; None: not known. If it is 0, the source gives
    each member the value 0.
    """

    values: Mapping[str, PodValue]
    timestamp: datetime
    most_busy: int | None = None


class ObjectSample(msgspec.Struct, frozen=True, gc=False):
    """Answer to Object: one value in milli-units."""

    value: int
    timestamp: datetime


class ExternalSample(msgspec.Struct, frozen=True, gc=False):
    """Answer to External: the values of all matching series in milli-units; the engine sums them.

    `note` is a remark about the values for people, as it follows "but" in the sentence of a decision ("": none). It
    changes no decision, is shown while pods of the target are ready, and is cut after LONGEST_NOTE characters.
    """

    values: tuple[int, ...]
    timestamp: datetime
    note: str = ""


Sample = PodSample | ObjectSample | ExternalSample


class PastPromQL(msgspec.Struct, frozen=True, gc=False):
    """PromQL by which a Prometheus knows the past of a metric: the sum of the series of `values` is what the HPA read.

    Of a Pods metric it is the mean of the pods. `published` and `acked` are, of the backlog of a queue, the messages
    that were published and acknowledged per second; "" for all else. `problem`: why there are no `values`, "" if there
    are.
    """

    values: str = ""
    published: str = ""
    acked: str = ""
    problem: str = ""


_LONGEST_ERROR: Final = 4096
"""Characters of the message of an error."""


class AdapterError(Exception):
    """The reason for a missing sample. Adapters return it in place of a sample, or raise it.

    `blame` is "spec" (the HPA asks for something impossible), "source" (the metric source failed), "cluster" (the
    API server failed) or "bug". The message is shown in the HPA's condition and event: it names the source and the
    query, and never contains a secret. `lasting`: an immediate retry is useless, for example with wrong credentials.
    `alive`: the source works and only this metric has no value, so the error opens no circuit breaker. It is lasting:
    the others of the call would wait for another attempt.
    `late`: it had no answer in time, and the others of its call have waited for it. It is not asked again in this call;
    from then on it is asked apart from them, until it is late no more.
    """

    def __init__(
        self, message: str, blame: str = "source", *, lasting: bool = False, alive: bool = False, late: bool = False
    ) -> None:
        # The texts of servers are in it, and statuses and logs hold it.
        message = begin(message, _LONGEST_ERROR) if isinstance(message, str) else message
        super().__init__(message)
        self.message = message
        self.blame = blame
        self.alive = alive or blame == "spec"
        self.lasting = lasting or late or self.alive
        self.late = late

    def __repr__(self) -> str:
        return f"AdapterError({self.message!r}, blame={self.blame!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AdapterError) and (self.message, self.blame) == (other.message, other.blame)

    def __hash__(self) -> int:
        return hash((self.message, self.blame))


Answer = Sample | AdapterError
"""What a metric source answers to one query."""
