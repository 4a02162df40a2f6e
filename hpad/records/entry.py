"""One entry of the decision history, as the API gives it: what was said of turns with the same decision and reason."""

from datetime import datetime
from typing import Final

import msgspec

from hpad.engine.addresses import addresses
from hpad.engine.settle import sentence
from hpad.engine.trace import Trace
from hpad.engine.turn import Reconcile

MOST_TEXT: Final = 4096
"""The largest number of characters of a sentence or an error in an entry; the trace has all of them."""
Numbers = tuple[int | None, tuple[int | None, ...]]
"""The recommendation and the proposal of each metric; None where there is none."""


class Point(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What the metrics asked for from `time` on: the recommendation, and one proposal per metric of the entry."""

    time: datetime
    recommended: int | None
    proposals: tuple[int | None, ...]


class Entry(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A stretch of `turns` turns, from `began` to `ended`, with the same decision for the same reason.

    `number` is unique, and higher than that of each earlier entry of the HPA. `metrics` are the addresses of the
    metrics. `points` has one element per change of the proposals. `sentence`, `error` and `trace` are those of the
    first turn of the stretch; the trace is left out of lists. In shadow mode `current` and `desired` are the counts of
    the shadow, and `target` is that of the target; None in other modes.
    """

    number: int = 0
    namespace: str
    name: str
    began: datetime
    ended: datetime
    turns: int
    action: str
    sentence: str
    current: int
    desired: int
    min: int
    max: int
    error: str = ""
    metrics: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    target: int | None = None
    trace: Trace | None = None


def first(done: Reconcile, number: int = 0) -> Entry:
    """Returns the entry of a stretch that begins with this decision, without points and trace."""
    view, decision, settlement = done.view, done.decision, done.settlement
    return Entry(
        namespace=view.hpa.metadata.namespace,
        name=view.hpa.metadata.name,
        began=view.now,
        ended=view.now,
        turns=1,
        action=settlement.action,
        sentence=sentence(decision, done.outcome)[:MOST_TEXT],
        current=decision.current,
        desired=decision.desired,
        min=view.min_replicas,
        max=view.max_replicas,
        error=(settlement.error or "")[:MOST_TEXT],
        metrics=addresses(view.spec.metrics),
        target=None if view.shadow is None else view.shadow.replicas,
        number=number,
    )


def numbers(done: Reconcile) -> Numbers:
    """Returns what the metrics of this decision asked for; None for each metric that was not measured."""
    recommendation, proposals = done.decision.recommendation, done.decision.proposals
    recommended = None if recommendation is None or recommendation.leader is None else recommendation.replicas
    if not proposals:
        return recommended, (None,) * len(done.view.spec.metrics)
    return recommended, tuple([proposal.proposed for proposal in proposals])
