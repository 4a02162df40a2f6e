"""How large an HPA and a label selector may be, so that no author of one holds up the others.

The API server bounds an object by its bytes alone (etcd: 1.5 MiB): a name may have a million characters, and a selector
thousands of requirements (pkg/apis/autoscaling/validation: no limits on numbers or on names of metrics). What is larger
than these limits, which no user reaches, is refused where it enters, so that nothing behind has to bound it again.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from hpad.api.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HPAScalingRules,
    MetricIdentifier,
    MetricSpec,
)
from hpad.api.selector import LabelSelector
from hpad.api.selector_syntax import LONGEST, MOST_REQUIREMENTS

OBJECT: Final = 3 << 19
"""Characters of an object in a file: those of the largest that etcd takes."""
SPEC_BYTES: Final = 1 << 16
"""The JSON of `spec`."""
METRICS: Final = 100
POLICIES: Final = 100
"""Of one direction."""
NAME: Final = 1024
"""Characters of any name in `spec`; names of objects have at most 253, those of kinds 63."""
LEVELS: Final = 16
"""Of lists and objects in the parameters of a query."""
LABELS: Final = 256
"""Of an HPA."""


def within(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA, or, if anything in it is too large, what is left of it (`refused`)."""
    found = fault(hpa)
    return hpa if found is None else refused(hpa, found)


def size_fault(size: int) -> str | None:
    """Returns what is wrong with a spec of so many bytes as JSON."""
    return None if size <= SPEC_BYTES else f"spec has {size:,} bytes; hpad takes at most {SPEC_BYTES:,}"


def refused(hpa: HorizontalPodAutoscaler, why: str) -> HorizontalPodAutoscaler:
    """Returns what is left of an HPA that is too large; `spec.refused` is `why`."""
    spec = HorizontalPodAutoscalerSpec(
        scale_target_ref=reference(hpa.spec.scale_target_ref),
        min_replicas=hpa.spec.min_replicas,
        max_replicas=hpa.spec.max_replicas,
        refused=why,
    )
    metadata = hpa.metadata
    if len(metadata.labels or ()) > LABELS:
        metadata = msgspec.structs.replace(metadata, labels=None)
    return msgspec.structs.replace(hpa, metadata=metadata, spec=spec)


def reference(ref: CrossVersionObjectReference) -> CrossVersionObjectReference:
    """Returns the reference with texts that are cut at the limit: such an object does not exist."""
    if max(len(ref.kind), len(ref.name), len(ref.api_version)) <= NAME:
        return ref
    return CrossVersionObjectReference(_cut(ref.kind), _cut(ref.name), _cut(ref.api_version))


def _cut(text: str) -> str:
    return text if len(text) <= NAME else f"{text[:NAME]}…"


def fault(hpa: HorizontalPodAutoscaler) -> str | None:
    """Returns what is too large in an HPA, except for the bytes of its spec as a whole."""
    spec = hpa.spec
    if len(hpa.metadata.labels or ()) > LABELS:
        return f"metadata.labels has {len(hpa.metadata.labels or ()):,} labels; hpad takes at most {LABELS}"
    if len(spec.metrics) > METRICS:
        return f"spec.metrics has {len(spec.metrics):,} metrics; hpad takes at most {METRICS}"
    ref = spec.scale_target_ref
    if reference(ref) is not ref:
        return _too_long("spec.scaleTargetRef", max(map(len, (ref.kind, ref.name, ref.api_version))))
    for index, metric in enumerate(spec.metrics):
        found = _metric_fault(metric)
        if found is not None:
            return f"spec.metrics[{index}]{found}"
    for index, query in enumerate(spec.queries):
        if _is_deeper(query.parameters, LEVELS):
            return f"spec.queries[{index}].parameters has too many levels; hpad takes at most {LEVELS}"
    return None if spec.behavior is None else _behavior_fault(spec.behavior.scale_up, spec.behavior.scale_down)


def _is_deeper(value: Any, levels: int) -> bool:
    """Returns whether there are lists and objects in more levels. Does not recurse."""
    layer = [value]
    for _ in range(levels):
        layer = list(chain.from_iterable(map(_children, layer)))
    return any(isinstance(each, dict | list) for each in layer)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _metric_fault(metric: MetricSpec) -> str | None:
    """Returns what is too large in a metric, after its path."""
    longest = max((len(name) for name in _names(metric)), default=0)
    if longest > NAME:
        return _too_long("", longest)
    for named in _identifiers(metric):
        if named.selector is not None and (found := _selector_fault(named.selector)) is not None:
            return f".metric.selector has {found}"
    return None


def _names(metric: MetricSpec) -> Iterator[str]:
    yield metric.type
    for resource in (metric.resource, metric.container_resource):
        if resource is not None:
            yield resource.name
    if metric.container_resource is not None:
        yield metric.container_resource.container
    if metric.object is not None:
        described = metric.object.described_object
        yield from (described.kind, described.name, described.api_version)
    for named in _identifiers(metric):
        yield named.name


def _identifiers(metric: MetricSpec) -> Iterator[MetricIdentifier]:
    for source in (metric.object, metric.pods, metric.external):
        if source is not None:
            yield source.metric


def _selector_fault(selector: LabelSelector) -> str | None:
    count = len(selector.match_labels) + len(selector.match_expressions)
    if count > MOST_REQUIREMENTS:
        return f"{count:,} requirements; hpad takes at most {MOST_REQUIREMENTS}"
    size = sum([len(key) + len(value) for key, value in selector.match_labels.items()])
    size += sum([len(term.key) + sum(map(len, term.values)) for term in selector.match_expressions])
    return f"{size:,} characters; hpad takes at most {LONGEST:,}" if size > LONGEST else None


def _behavior_fault(*directions: HPAScalingRules | None) -> str | None:
    for rules, name in zip(directions, ("scaleUp", "scaleDown"), strict=True):
        count = 0 if rules is None else len(rules.policies or ())
        if count > POLICIES:
            return f"spec.behavior.{name}.policies has {count:,} policies; hpad takes at most {POLICIES}"
    return None


def _too_long(path: str, length: int) -> str:
    return f"{path} has a name of {length:,} characters; hpad takes at most {NAME:,}"
