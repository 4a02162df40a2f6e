"""What an HPA's spec asks for, worked out once per object instead of once per decision."""

from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import EXTERNAL, OBJECT
from hpad.model import goal, rules
from hpad.model.goal import Goal
from hpad.model.rules import Behavior

_HELD: Final = "intent"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """`reference` is Kind/namespace/name of the target, `version_flaw` what is wrong with its apiVersion, if anything.

    `wakes` says whether a metric is there that exists without pods (Object or External).
    """

    key: Key
    reference: str
    version_flaw: str | None
    min_replicas: int
    max_replicas: int
    goals: tuple[Goal, ...]
    behavior: Behavior | None
    wakes: bool


def of(hpa: HorizontalPodAutoscaler) -> Intent:
    """The intent of an HPA: kept with its spec, so that it lives and dies with it."""
    held: Intent | None = hpa.spec.__dict__.get(_HELD)
    metadata = hpa.metadata
    if held is not None and held.key.name == metadata.name and held.key.namespace == metadata.namespace:
        return held
    intent = hpa.spec.__dict__[_HELD] = _compile(hpa)
    return intent


def _compile(hpa: HorizontalPodAutoscaler) -> Intent:
    spec, key = hpa.spec, hpa.metadata.key
    target = spec.scale_target_ref
    return Intent(
        key=key,
        reference=f"{target.kind}/{key.namespace}/{target.name}",
        version_flaw=_version_flaw(target.api_version),
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        max_replicas=spec.max_replicas,
        goals=tuple(goal.compile(metric, key.namespace) for metric in spec.metrics),
        behavior=rules.compile(spec.behavior),
        wakes=any(metric.type in (OBJECT, EXTERNAL) for metric in spec.metrics),
    )


def _version_flaw(api_version: str) -> str | None:
    """An apiVersion is empty, `version` or `group/version`."""
    if api_version in ("", "/") or api_version.count("/") <= 1:
        return None
    return f"unexpected GroupVersion string: {api_version}"
