"""The page of `hpad advise --report`: the fleet, then each HPA; one HTML file without anything from elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from hpad.simulation.advice.assessment import Assessment
from hpad.simulation.charts import document, escaped


class PageHeader(NamedTuple):
    """What the page says of the whole fleet.

    `source`: where the past is from, such as the URL of Prometheus without secrets. `price`: of one replica per hour.
    `skipped`: HPAs without an assessment, with the reason. `notes`: what else a reader has to know.
    """

    begin: datetime
    end: datetime
    source: str
    price: float | None = None
    skipped: Mapping[str, str] = {}
    notes: Sequence[str] = ()


def page(assessments: Sequence[Assessment], header: PageHeader) -> Iterator[str]:
    """Yields the parts of the page, to be written one after the other."""
    title = "Advice on HPAs"
    yield from document(title, _body(assessments, header))


def _body(assessments: Sequence[Assessment], header: PageHeader) -> Iterator[str]:
    yield f"<p>{escaped(header.source)}</p>"
    for each in assessments:
        yield f"<section><h2>{escaped(str(each.key))}</h2><p>{escaped(each.verdict)}</p></section>"
