"""What `hpad advise` found in all HPAs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.simulation.advice import summary
from hpad.simulation.advice.assessment import Assessment
from hpad.simulation.advice.fleet import NotAssessed


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
        """The HPAs with a fault or an advice, the most severe fault first, then what saves the most."""
        return summary.ranked(each for each in self.assessments if each.findings or each.advice is not None)

    @property
    def good(self) -> list[Assessment]:
        """The HPAs without a fault and without advice, by name."""
        return summary.ranked(each for each in self.assessments if not each.findings and each.advice is None)

    @property
    def samples(self) -> int:
        """The values that were read."""
        return sum(each.samples for each in self.assessments)
