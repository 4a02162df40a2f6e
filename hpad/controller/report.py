"""What a reconcile reports: its last decision, log lines for news, and other writers of the same objects."""

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
    """The last decision for page and API, with the cause of a failure and the count that was withheld."""
    failed = None if outcome is None else outcome.error
    return Last(
        at=view.now,
        sentence=settle.sentence(decision, outcome),
        error=(failed or decision.trouble or settlement.error) if settlement.error else None,
        withheld=decision.scale_to if outcome is not None and outcome.withheld is not None else None,
        fallbacks=tuple(proposal.metric.label for proposal in decision.proposals if proposal.fallback),
    )


def say(log: Any, view: View, decision: decide.Decision, now: Last, before: Last, *, dry_run: bool) -> None:
    """Logs a change of the replica count or of the trouble at info or warning, everything else at debug.

    A withheld count is decided again each turn, and is logged when it changes. A fallback is logged when it starts and
    when it ends.
    """
    _say_fallbacks(log, view, decision.proposals, now.fallbacks, before.fallbacks)
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
            message = f"a fallback begins: {explain.failure(found[label])}"
            log.warning(message, hpa=key)
    for label in before:
        if label not in now:
            ended = f"a fallback ends: {_ended(label, found.get(label))}"
            log.info(ended, hpa=key)


def _ended(label: str, proposal: Proposal | None) -> str:
    if proposal is None:
        return f"{label} was not asked for"
    return explain.failure(proposal) if proposal.error is not None else f"{label} can be read again"


def _topic(error: str | None) -> str | None:
    """The error text without durations, which change from turn to turn."""
    return None if error is None else _SPAN.sub("…", error)


class Competing:
    """Remembers which other writers have been reported for each HPA."""

    def __init__(self, cluster: Cluster, telemetry: Telemetry) -> None:
        self._cluster = cluster
        self._telemetry = telemetry
        self._reported: dict[Key, tuple[Competitor, ...]] = {}
        self._log = structlog.get_logger("hpad.reconcile")

    def of(self, hpa: HorizontalPodAutoscaler, *, writes_status: bool) -> tuple[Competitor, ...]:
        """The other writers of what hpad writes for this HPA. Writers of the status count only if hpad writes it."""
        found = self._cluster.competitors(hpa)
        return found if writes_status else tuple(each for each in found if each.what != STATUS)

    def report(self, key: Key, found: tuple[Competitor, ...], *, yields: bool) -> None:
        """Sets the series of the other writers, and logs them when they change."""
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
    """Why the target is left to another HPA; None if no other HPA scales it."""
    other = next((each for each in found if each.what == HPA), None)
    return None if other is None else yielded(other)
