"""Which of the target's pods a metric is about: `hpad.io/pods`.

The value is a label selector for all metrics, or it has parts with semicolons between, each `METRIC: SELECTOR` for some
metrics or one SELECTOR for all others. METRIC is an address of `hpad.engine.addresses`, except `#INDEX`. The pods that
are left out stay pods of the target: their requests, readiness and values do not count for the metric.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hpad.api import selector as selectors
from hpad.api.selector import Selector, SelectorError
from hpad.api.text import shown
from hpad.engine import addresses
from hpad.engine.addresses import Address, MetricIdentity
from hpad.engine.spec import CompiledMetric

LONGEST: Final = selectors.LONGEST
"""Characters of the annotation."""


class ChosenPods(NamedTuple):
    """The selectors by address; None: that of all other metrics."""

    selectors: tuple[tuple[Address | None, Selector], ...]

    def of(self, metric: CompiledMetric) -> Selector | None:
        """Returns the selector of the pods that a metric is about; None where it is about all of them."""
        found: Mapping[Address | None, Selector] = dict(self.selectors)
        [forms] = addresses.forms(addresses.identities([metric]))
        return next((found[form] for form in (*forms[1:], None) if form in found), None)


def parse(text: str) -> ChosenPods:
    """Parses the annotation. Raises ValueError."""
    found: dict[Address | None, Selector] = {}
    for part in text.split(";"):
        address, selector = _part(part.strip())
        if address in found:
            raise ValueError(f"{shown(part.strip())} is for the same metrics as another part")
        found[address] = selector
    return ChosenPods(tuple(found.items()))


def _part(part: str) -> tuple[Address | None, Selector]:
    before, colon, text = part.rpartition(": ")
    address = addresses.parse(before.strip()) if colon else None
    if address is not None and address.position is not None:
        raise ValueError(f"{shown(before)} is an index: name the metric")
    try:
        selector = selectors.parse(text)
    except SelectorError as error:
        raise ValueError(f"{shown(text)} is not a label selector: {error}") from None
    if not selector.requirements:
        raise ValueError("a label selector such as role=stable is missing")
    return address, selector


def require_known(chosen: ChosenPods, metrics: Sequence[MetricIdentity]) -> None:
    """Raises ValueError for an address that stands for no metric."""
    known = {form for forms in addresses.forms(metrics) for form in forms}
    for address, _ in chosen.selectors:
        if address is not None and address not in known:
            there = addresses.existing(addresses.canonical(tuple(metrics)))
            raise ValueError(f"there is no metric {shown(str(address))} here; {there}")
