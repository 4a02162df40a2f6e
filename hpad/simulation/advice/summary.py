"""The fleet in a few figures, and its HPAs in the order in which a reader should look at them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.simulation.advice import words
from hpad.simulation.advice.assessment import Assessment, NotAssessed, Severity
from hpad.simulation.history import DAY

_ORDER: Final = (*Severity, None)


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over all HPAs. Replica-seconds are of the time that was read.

    `severities`: HPAs by their most severe fault. `judged`: HPAs on which advice could be given. `short`: less than a
    day is known of each. `saved` and `added`: what the advices save, and what those that cost more add: the share that
    the model gives of the recorded replica-seconds.
    """

    hpas: int
    severities: dict[Severity, int]
    advised: int
    judged: int
    short: bool
    replica_seconds: float
    saved: float
    added: float

    @property
    def faulty(self) -> int:
        return sum(self.severities.values())


def severity(assessment: Assessment) -> Severity | None:
    """Returns that of the most severe fault; None without one."""
    return min((each.severity for each in assessment.findings), key=_ORDER.index, default=None)


def saved(assessment: Assessment) -> float:
    """Returns the replica-seconds that the advice saves of the recorded ones; negative if it costs more."""
    return 0.0 if assessment.advice is None else assessment.advice.saved * assessment.facts.replica_seconds


def ranked(assessments: Iterable[Assessment]) -> list[Assessment]:
    """Sorts by severity, then by risk in whole percent, then by what could be saved, then by name."""
    return sorted(
        assessments,
        key=lambda each: (_ORDER.index(severity(each)), -round(risk(each), 2), -saved(each), each.key),
    )


def risk(assessment: Assessment) -> float:
    """Returns the share of the time in which the HPA was above its goal or could not read its metrics."""
    facts = assessment.facts
    seconds = max(facts.above_goal or 0.0, facts.unread)
    return seconds / facts.seconds if facts.seconds else 0.0


def at_risk(assessments: Iterable[Assessment]) -> list[Assessment]:
    """Returns the HPAs with a fault that is an error, the one with the greatest risk first."""
    found = [each for each in assessments if severity(each) is Severity.ERROR]
    return sorted(found, key=lambda each: (-risk(each), each.key))


def savings(assessments: Iterable[Assessment]) -> list[Assessment]:
    """Returns the HPAs whose advice saves replicas, the largest saving first."""
    return sorted((each for each in assessments if saved(each) > 0), key=lambda each: (-saved(each), each.key))


def summed(assessments: Sequence[Assessment]) -> FleetSummary:
    """Returns the sums."""
    severities = [severity(each) for each in assessments]
    amounts = [saved(each) for each in assessments]
    return FleetSummary(
        hpas=len(assessments),
        severities={each: severities.count(each) for each in Severity if each in severities},
        judged=sum(each.trust.suffices and each.facts.seconds >= DAY for each in assessments),
        short=all(each.facts.seconds < DAY for each in assessments),
        advised=sum(each.advice is not None for each in assessments),
        replica_seconds=sum(each.facts.replica_seconds for each in assessments),
        saved=sum(amount for amount in amounts if amount > 0),
        added=-sum(amount for amount in amounts if amount < 0),
    )


def counts_of(found: FleetSummary) -> str:
    """Returns "20 HPAs, 14 with faults, 7 with advice"."""
    return f"{counted_hpas(found.hpas)}, {found.faulty or 'none'} with faults, {found.advised or 'none'} with advice"


def counted_hpas(count: int) -> str:
    """Returns "1 HPA" or "2,000 HPAs"."""
    return f"{count:,} HPA{'' if count == 1 else 's'}"


def unknown_savings(found: FleetSummary) -> str:
    """Returns why nothing is known of savings, where no HPA could be judged."""
    return "advice needs a day of data" if found.short else "the model is trusted for no HPA"


def sums_of(found: FleetSummary, price: float | None) -> Iterator[str]:
    """Yields clauses: the replica-hours, with what they cost if the price is known, and how the advice changes them."""
    yield words.hours(found.replica_seconds, price)
    if found.saved:
        share = words.share(found.saved, found.replica_seconds)
        yield f"advice saves {words.hours(found.saved, price, 'worth')} ({share})"
    if found.hpas and not found.judged:
        yield f"savings are not known: {unknown_savings(found)}"
    if found.added:
        yield f"advice against overload adds {words.hours(found.added, price)}"


class FleetAdvice(NamedTuple):
    """The advice on all HPAs. `source` is where the past is from; `price` is that of one replica per hour."""

    begin: datetime
    end: datetime
    source: str
    hpas: Mapping[Key, HorizontalPodAutoscaler]
    assessments: Sequence[Assessment]
    unread: Sequence[NotAssessed] = ()
    notes: Sequence[str] = ()
    price: float | None = None

    @property
    def notable(self) -> list[Assessment]:
        """The HPAs with a fault or an advice, as `ranked`."""
        return ranked(each for each in self.assessments if each.findings or each.advice is not None)

    @property
    def good(self) -> list[Assessment]:
        """The HPAs without a fault and without advice, by name."""
        return ranked(each for each in self.assessments if not each.findings and each.advice is None)

    @property
    def samples(self) -> int:
        """The values that were read."""
        return sum(each.samples for each in self.assessments)
