"""Filters, sorts and pages the list of HPAs.

A page begins after the sort key of the last HPA before it, not at a number. Therefore HPAs that come and go between two
pages move no other HPA to another page. With an order other than by name, an HPA whose sort key changes meanwhile may
be on two pages or on none.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from hpad.api.metadata import Key
from hpad.api.text import shown
from hpad.serve.api_types import STATES, HpaList
from hpad.serve.summary import Row, bounds, cause_group, fails, matches, states, summary


def _number(number: int) -> str:
    return f"{number:010d}"


def _time(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


_VALUES: Final[Mapping[str, Callable[[Row], str]]] = {
    "name": lambda row: "",
    "failing": lambda row: f"0{cause_group(row)}" if fails(row) else "1",
    "target": lambda row: f"{row.hpa.spec.scale_target_ref.kind}/{row.hpa.spec.scale_target_ref.name}",
    "state": lambda row: str(next((STATES.index(state) for state in states(row)), len(STATES))),
    "current": lambda row: _number(row.status.current_replicas),
    "desired": lambda row: _number(row.status.desired_replicas),
    "min": lambda row: _number(bounds(row)[0]),
    "max": lambda row: _number(bounds(row)[1]),
    "lastDecision": lambda row: _time(None if row.done is None else row.done.view.now),
    "lastScaleTime": lambda row: _time(row.status.last_scale_time),
}
"""Sort keys. They are texts, so that each `continue` can be compared with them."""
SORTS: Final = tuple(_VALUES)
POSITION: Final = r"-?(?:{})\.(?:[A-Za-z0-9_-]{{4}})*(?:[A-Za-z0-9_-]{{2,3}})?".format("|".join(SORTS))
"""The form of a `continue`."""


class Position(NamedTuple):
    """A place in a sorted list of HPAs: the order, and the sort key of the last HPA before it.

    The parts of the key contain no NUL, as the API server ensures.
    """

    sort: str
    value: str
    key: Key


def position_text(position: Position) -> str:
    """Returns the value of `continue` for the page after this position."""
    sort, value, key = position
    body = f"{key.namespace}\0{key.name}\0{key.kind}\0{value}".encode("utf-8", "surrogatepass")
    return f"{sort}.{base64.urlsafe_b64encode(body).decode().rstrip('=')}"


def position_of(text: str) -> Position:
    """Reads what `position_text` wrote. Any text of this form is a position, though perhaps one before all HPAs."""
    if not re.fullmatch(POSITION, text):
        raise ValueError(f"{shown(text)} is not the `continue` of a previous page")
    sort, _, body = text.partition(".")
    decoded = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    try:
        text = decoded.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = decoded.decode("latin-1")
    namespace, name, kind, value = (*text.split("\0", 3), "", "", "")[:4]
    return Position(sort, value, Key(namespace, name, kind))


def listed(rows: Sequence[Row], asked: Mapping[str, Any]) -> HpaList:
    """Returns the page of the rows that `hpad.serve.parameters.HPAS` ask for. O(n log n) in the number of rows."""
    found = [(row, states(row)) for row in rows if _is_wanted(row, asked)]
    counts = {state: sum(state in each for _, each in found) for state in STATES}
    wanted = frozenset(asked["state"])
    chosen = [row for row, each in found if not wanted or not wanted.isdisjoint(each)]
    after: Position | None = asked["continue"]
    sort = asked["sort"] if after is None else after.sort
    page, more = _page(chosen, sort, after, asked["limit"])
    token = position_text(_position(page[-1], sort)) if more else ""
    return HpaList(items=tuple(map(summary, page)), total=len(chosen), counts=counts, continue_=token)


def _is_wanted(row: Row, asked: Mapping[str, Any]) -> bool:
    if not asked["selector"].matches(row.hpa.metadata.labels or {}):
        return False
    return matches(row.key, row.hpa.spec.scale_target_ref.name, asked)


def _page(rows: Sequence[Row], sort: str, after: Position | None, limit: int) -> tuple[list[Row], bool]:
    """Returns the rows of the page, and whether there are more."""
    descending = sort.startswith("-")
    ordered = sorted(((_position(row, sort), row) for row in rows), key=lambda each: each[0], reverse=descending)
    if after is not None:
        ordered = [(at, row) for at, row in ordered if (at < after if descending else at > after)]
    return [row for _, row in ordered[:limit]], len(ordered) > limit


def _position(row: Row, sort: str) -> Position:
    return Position(sort, _VALUES[sort.removeprefix("-")](row), row.key)
