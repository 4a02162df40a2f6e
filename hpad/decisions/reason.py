"""The reason of a decision, for merging turns: equal reasons are one entry of the history.

A reason has three parts, because a change of each counts differently (see `hpad.decisions.stretch`).

| part | content | a change |
| --- | --- | --- |
| scope | the spec, settings, annotations and bounds that decide; the replica count | begins an entry at once |
| troubles | failing metrics, fallbacks, a halt, a count that was not written | a further one begins an entry at once |
| details | the leading metric, what held it (window, policy, bound), who is to blame for a failure | must last |

Usages and error texts are no part of it: they differ in each turn.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from hpad.api.sample import AdapterError
from hpad.engine.decide import Decision
from hpad.engine.examine import Halt
from hpad.engine.recommend import Recommendation
from hpad.engine.settle import Outcome
from hpad.engine.turn import Reconcile

Troubles = frozenset[Hashable]
_NONE: Final[Troubles] = frozenset()
UP: Final = "up"
DOWN: Final = "down"
UNWRITTEN: Final = "unwritten"
FAILING: Final = "failing"
FALLBACK: Final = "fallback"
_NO_METRIC: Final = "no metric"


class Reason(msgspec.Struct, frozen=True, gc=False):
    """The reason of one decision. `current` is None where the scale is unknown."""

    scope: Hashable
    current: int | None
    troubles: Troubles
    details: tuple[Hashable, ...]


class _Once:
    """The scope of a rescale, which equals no other: each rescale is an entry of its own."""


def reason(done: Reconcile) -> Reason:
    """Returns the reason of a decision. O(metrics)."""
    view, decision, outcome, settlement = done.view, done.decision, done.outcome, done.settlement
    shadow = view.shadow
    if settlement.rescaled or (shadow is not None and outcome is not None):
        return Reason(_Once(), decision.current, _NONE, ())
    restrained, recommendation = decision.restrained, decision.recommendation
    leader = _leader(recommendation)
    held = () if restrained is None else (restrained.deciding is None or restrained.able[0], restrained.limited[0])
    troubles = _troubles(decision, outcome)
    return Reason(
        (
            view.hpa.metadata.uid,
            view.hpa.spec,
            view.tunables,
            view.fallback_policies,
            view.controls,
            view.controls.schedule and view.bounds[:2],
            shadow and (shadow.withheld, shadow.replicas),
        ),
        None if view.scale is None else decision.current,
        troubles,
        (leader, held, decision.scale_to, _blames(done)) if troubles else (leader, held),
    )


def _leader(recommendation: Recommendation | None) -> str | None:
    if recommendation is None or recommendation.leader is None:
        return None
    return recommendation.source if recommendation.combined else recommendation.leader.metric.label


def _troubles(decision: Decision, outcome: Outcome | None) -> Troubles:
    found: list[Hashable] = []
    if isinstance(decision.verdict, Halt):
        found.append((decision.verdict.kind, decision.verdict.reason))
    for index, proposal in enumerate(decision.proposals):
        if proposal.error is not None:
            found += [(FAILING, index), (FALLBACK, index)] if proposal.fallback else [(FAILING, index)]
    if outcome is not None:
        found.append(UP if decision.desired > decision.current else DOWN)
        found.append((UNWRITTEN, outcome.withheld and outcome.withheld.reason))
    if decision.undecided and not found:
        found.append(_NO_METRIC)
    return frozenset(found) if found else _NONE


def _blames(done: Reconcile) -> tuple[str, ...]:
    """Returns what is to blame for each metric that fails; "" where its sample is unusable."""
    return tuple(
        answer.blame if isinstance(answer, AdapterError) else ""
        for answer, proposal in zip(done.answers, done.decision.proposals, strict=False)
        if proposal.error is not None
    )
