"""What a reconcile tells people: the last decision for page and API, and lines of the log where there is news.

Other writers of the HPAs that are reconciled: looked up each turn, reported when they come and go.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import structlog

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.controller.cluster import Cluster
from hpad.engine import decide, explain, settle
from hpad.engine.propose import Proposal
from hpad.engine.view import HPA, STATUS, Competitor, View, Withheld, yielded
from hpad.store.memory import Last
from hpad.telemetry import Telemetry

_SPAN: Final = re.compile(r"\b(\d+(\.\d+)?(h|m|s|ms|µs))+\b")


def told(view: View, decision: decide.Decision, outcome: settle.Outcome | None, settlement: settle.Settlement) -> Last:
    """The last decision for people, with the cause of what is wrong; a count that was not written says why."""
    failed = None if outcome is None else outcome.error
    return Last(
        at=view.now,
        sentence=settle.sentence(decision, outcome),
        error=(failed or decision.trouble or settlement.error) if settlement.error else None,
        withheld=decision.scale_to if outcome is not None and outcome.withheld is not None else None,
        relieved=tuple(proposal.metric.label for proposal in decision.proposals if proposal.fallback),
    )


def say(log: Any, view: View, decision: decide.Decision, now: Last, before: Last, *, dry_run: bool) -> None:
    """One line for a change of the replica count or of what is wrong; the rest is for debugging.

    A count that is withheld stays decided turn after turn: that is said when it changes. A fallback says when it begins
    and when it ends.
    """
    _say_fallbacks(log, view, decision.proposals, now.relieved, before.relieved)
    moves = decision.scale_to is not None and now.withheld is None
    trouble = _topic(now.error) != _topic(before.error)
    news = trouble or now.withheld != before.withheld
    line = log.warning if now.error and trouble else log.info if news or moves else log.debug
    line(
        now.sentence,
        hpa=str(view.hpa.metadata.key),
        target=f"{view.hpa.spec.scale_target_ref.kind}/{view.hpa.spec.scale_target_ref.name}",
        replicas=view.scale.spec.replicas if view.scale is not None else None,
        scale_to=decision.scale_to,
        **({"dry_run": True} if dry_run else {}),
    )


def _say_fallbacks(
    log: Any, view: View, proposals: Sequence[Proposal], now: Sequence[str], before: Sequence[str]
) -> None:
    key, found = str(view.hpa.metadata.key), {proposal.metric.label: proposal for proposal in proposals}
    for label in now:
        if label not in before:
            begun = f"a fallback begins: {explain.failure(found[label])}"
            log.warning(begun, hpa=key)
    for label in before:
        if label not in now:
            ended = f"a fallback ends: {_ended(label, found.get(label))}"
            log.info(ended, hpa=key)


def _ended(label: str, proposal: Proposal | None) -> str:
    if proposal is None:
        return f"{label} was not asked for"
    return explain.failure(proposal) if proposal.error is not None else f"{label} can be read again"


def _topic(error: str | None) -> str | None:
    """What is wrong, without the durations that change from turn to turn."""
    return None if error is None else _SPAN.sub("…", error)


class Competing:
    """Remembers which writers have been reported of each HPA."""

    def __init__(self, cluster: Cluster, telemetry: Telemetry) -> None:
        self._cluster = cluster
        self._telemetry = telemetry
        self._reported: dict[Key, tuple[Competitor, ...]] = {}
        self._log = structlog.get_logger("hpad.reconcile")

    def of(self, hpa: HorizontalPodAutoscaler, *, writes_status: bool) -> tuple[Competitor, ...]:
        """The other writers of what hpad writes for this HPA; nobody competes for a status that hpad never writes."""
        found = self._cluster.competitors(hpa)
        return found if writes_status else tuple(each for each in found if each.what != STATUS)

    def report(self, key: Key, found: tuple[Competitor, ...], *, yields: bool) -> None:
        """Set the series of the writers, and log them when they differ from those before."""
        self._telemetry.controller.competing(key, [(each.what, each.name) for each in found])
        if found == self._reported.get(key, ()):
            return
        if not found:
            del self._reported[key]
            self._log.info("no other writer is seen any more", hpa=str(key))
            return
        self._reported[key] = found
        withheld = yields and yields_to(found) is not None
        what = "another writer competes; hpad does not scale the target" if withheld else "another writer competes"
        self._log.warning(f"{what}: {'; '.join(map(str, found))}", hpa=str(key))

    def forget(self, key: Key) -> None:
        self._reported.pop(key, None)


def yields_to(found: tuple[Competitor, ...]) -> Withheld | None:
    """Why the target is left to another HPA, None where there is no other."""
    other = next((each for each in found if each.what == HPA), None)
    return None if other is None else yielded(other)
