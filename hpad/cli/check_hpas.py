"""What `hpad check` says about an HPA or Autoscaler beyond the rules of the API server.

Errors are what the daemon refuses: annotations, queries and budgets. Warnings are what has no effect.
"""

from collections.abc import Iterator
from typing import Any, Final

from hpad.api import hpa as v2
from hpad.api import older
from hpad.api import selector as selectors
from hpad.api.autoscaler import PREFIX
from hpad.api.problem import Place, Problem, invalid, path_of
from hpad.api.selector import LabelSelector
from hpad.api.text import hint
from hpad.cli.check_configuration import Given
from hpad.engine import annotations, busy, controls
from hpad.engine.annotations import PLAIN, missing_fields


def errors(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any], given: Given) -> Iterator[Problem]:
    """Yields what the daemon refuses in an HPA that the API server takes. `value`: its document.

    Imports adapters if an Autoscaler has queries.
    """
    yield from annotation_errors(hpa, value)
    if hpa.spec.queries:
        from hpad.sources import own_queries  # imported late, since `hpad check` of HPAs alone must start fast

        yield from own_queries.problems(hpa, given.sources)
    named = PLAIN.budget(hpa)
    if named is not None and given.budgets is not None and named[0] not in given.budgets:
        text = f"the configuration has no such budget{hint(named[0], tuple(given.budgets)) if given.budgets else ''}"
        yield invalid(_place(controls.BUDGET, value), named[0], text)


def annotation_errors(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any]) -> Iterator[Problem]:
    """Errors in the annotations or options of a document that the daemon reads; the API server accepts most of them."""
    present = hpa.metadata.annotations or {}
    for error in PLAIN.of(hpa).errors:
        if error.path in present:  # else a field of the spec says it, which is validated as such
            yield invalid(_place(error.path, value), present[error.path], error.text)


def _place(annotation: str, value: dict[str, Any]) -> str:
    """Returns the field of a document that holds an annotation of hpad."""
    spec = value.get("spec")
    options = spec.get("options") if value.get("kind") == v2.AUTOSCALER and isinstance(spec, dict) else None
    is_option = isinstance(options, dict) and annotation.removeprefix(PREFIX) in options
    return controls.written(annotation, v2.AUTOSCALER) if is_option else f"metadata.annotations[{annotation}]"


def warnings(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any], given: Given) -> Iterator[Problem]:
    """Yields what has no effect in an HPA, or another one than it seems to have. `value`: its document."""
    yield from _without_effect(hpa, value)
    yield from _unmatchable(hpa)
    yield from _mistyped(hpa)
    if why := unserved_target(hpa):
        path = "spec.scaleTargetRef.apiVersion"
        yield Problem(path, f"{path}: {why}")
    yield from _unread_queries(hpa)
    if hpa.kind != v2.AUTOSCALER:
        yield from missing_fields(hpa.spec)
        return
    yield from _fractions(value)
    if hpa.spec.min_replicas == 0 and not given.scale_to_zero:
        detail = "counts as 1 unless hpad's configuration sets the feature gate HPAScaleToZero"
        yield invalid("spec.minReplicas", 0, detail)


_NEEDED: Final = {
    controls.PRIORITY: (controls.BUDGET,),
    controls.BUSY_METRIC: (controls.ORDER, controls.KEEP_BUSY),
    annotations.FAILURE_DURATION: (annotations.FALLBACK,),
}
"""Annotations that have an effect beside one of others only."""
_FOR_ZERO: Final = (controls.ZERO_AFTER, controls.INITIAL_DELAY)
"""Annotations that have an effect where minReplicas is 0 only. (So has hpad.io/activation, which may wait for that.)"""


def _without_effect(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any]) -> Iterator[Problem]:
    """Warnings about annotations that change nothing in this HPA, and about too many spare replicas.

    Idle-first changes nothing on a StatefulSet, which removes its pods by ordinal.
    """
    named = hpa.metadata.annotations or {}
    own = controls.read(named).controls

    def warning(name: str, text: str) -> Problem:
        return invalid(_place(name, value), named[name], text)

    if controls.ORDER in named and own.idle_first and busy.by_ordinal(hpa):
        yield warning(controls.ORDER, "has no effect: a StatefulSet removes the pod with the highest ordinal")
    for name, needed in _NEEDED.items():
        if name in named and not any(each in named for each in needed):
            others = " or ".join([controls.written(each, hpa.kind) for each in needed])
            yield warning(name, f"has no effect without {others}, unless the configuration gives the HPA one")
    for name in _FOR_ZERO if hpa.spec.min_replicas else ():
        if name in named:
            yield warning(name, f"has no effect: minReplicas is {hpa.spec.min_replicas}, and not 0")
    most = hpa.spec.max_replicas
    if own.spare is not None and own.spare.on(1) > most:
        text = f"leaves the metrics no choice: with one replica that they want there would be {own.spare.on(1)}"
        yield warning(controls.SPARE, f"{text}, and maxReplicas is {most}")


def _unmatchable(hpa: v2.HorizontalPodAutoscaler) -> Iterator[Problem]:
    """Warnings about selectors of metrics that no label can match. The API server takes them; their metrics fail."""
    for index, metric in enumerate(hpa.spec.metrics or ()):
        for kind, source in (("external", metric.external), ("object", metric.object), ("pods", metric.pods)):
            selector = None if source is None else source.metric.selector
            if selector is not None and (why := _never(selector)):
                yield Problem(f"spec.metrics[{index}].{kind}.metric.selector", why)


def _never(selector: LabelSelector) -> str:
    """Returns why no label can match the selector, "" if one can."""
    try:
        found = selectors.from_object(selector)
    except selectors.SelectorError as error:
        return f"no label can match the selector: {error}"
    label = found.contradiction
    return (
        f'no label can match the selector "{found}": what it requires of "{label}" excludes each other' if label else ""
    )


_FIELDS: Final = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}
"""The field that belongs to each type of a metric target."""


def _mistyped(hpa: v2.HorizontalPodAutoscaler) -> Iterator[Problem]:
    """Warnings about metric targets whose field belongs to another type. The controller looks at the field alone.

    Source: Kubernetes 1.36, horizontal.go: computeStatusForExternalMetric and the others.
    """
    for index, metric in enumerate(v2.to_builtins(hpa.spec.metrics or ())):
        for kind, source in metric.items():
            target = source.get("target", {}) if isinstance(source, dict) else {}
            for type, field in _FIELDS.items():
                if target.get(field) is not None and target["type"] != type:
                    path = f"spec.metrics[{index}].{kind}.target.type"
                    yield Problem(path, f"{path}: {target['type']} has no effect, since {field} is set")


def unserved_target(hpa: v2.HorizontalPodAutoscaler) -> str:
    """Returns why a target of the group `extensions` cannot be scaled; "" for other groups."""
    version = hpa.spec.scale_target_ref.api_version or ""
    served = version.partition("/")[0] != "extensions"
    return "" if served else f'{version} is not served since Kubernetes 1.16: write "apps/v1"'


def _unread_queries(hpa: v2.HorizontalPodAutoscaler) -> Iterator[Problem]:
    """Warnings about queries of an Autoscaler that none of its metrics names."""
    named = {metric.external.metric.name for metric in hpa.spec.metrics or () if metric.external is not None}
    for index, query in enumerate(hpa.spec.queries):
        if query.name not in named:
            text = f"spec.queries[{query.name}]: is not read: no External metric has this name"
            yield Problem(f"spec.queries[{index}].name", text)


def _fractions(value: dict[str, Any]) -> Iterator[Problem]:
    """Warnings about quantities of an Autoscaler with a fraction. A schema knows integers and text (IntOrString)."""
    fields = {name: each for name, each in (value.get("spec") or {}).items() if name != "queries"}
    for place, leaf in leaves(fields, ("spec",)):
        if isinstance(leaf, float) and not leaf.is_integer():
            yield invalid(path_of(place), leaf, f'an API server takes it as text only: write "{leaf}"')


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yields what a value holds beside objects and lists, with its place."""
    match value:
        case dict():
            for key, entry in value.items():
                yield from leaves(entry, (*place, str(key)))
        case list():
            for index, entry in enumerate(value):
                yield from leaves(entry, (*place, index))
        case _:
            yield place, value


def ignored_annotations(value: dict[str, Any]) -> Iterator[Problem]:
    """Warnings about annotations of autoscaling/v1 that stand for fields of v2 and cannot be decoded."""
    metadata = value.get("metadata")
    present = metadata.get("annotations") if isinstance(metadata, dict) else None
    if value.get("apiVersion") != older.V1_VERSION or not isinstance(present, dict):
        return
    for name in older.ignored_annotations(present):
        yield invalid(f"metadata.annotations[{name}]", present[name], "it cannot be read, and is ignored")


def lacks_behavior(defaulted: dict[str, Any] | None) -> bool:
    """Returns whether a valid HPA has an External metric, such as the length of a queue, and no spec.behavior.

    Then the highest count of the window is carried out step by step, also once the queue is empty. With a behavior the
    window only delays a scale-down (horizontal.go: normalizeDesiredReplicas, normalizeDesiredReplicasWithBehaviors).
    """
    spec = defaulted["spec"] if defaulted is not None else {}
    return "behavior" not in spec and any(metric["type"] == "External" for metric in spec.get("metrics", ()))
