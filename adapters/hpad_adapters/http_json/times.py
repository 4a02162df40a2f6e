"""Times in a URL or a body: `<<now>>`, `<<now-5m>>`, `<<now-5m:ms>>`, filled in for each request."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from hpad.adapter import parse_duration, shown

_PLACE: Final = re.compile(r"<<([^<>]*)>>")
_TIME: Final = re.compile(r"now(?:([+-])([0-9a-z.]+))?(?::(ms|iso))?")
_FARTHEST: Final = timedelta(days=3660)


def filled(text: str, now: datetime) -> str:
    """Returns the text with its times: seconds since 1970, with :ms milliseconds, with :iso as in RFC 3339 (UTC)."""
    return _PLACE.sub(lambda found: _written(found[1], now), text)


def errors(field: str, text: str) -> Iterator[str]:
    """Yields "field: text" for each place that is no time."""
    for found in _PLACE.finditer(text):
        try:
            _parsed(found[1])
        except ValueError:
            yield f'{field}: {shown(found[0])} is not a time, as in "<<now-5m>>"'


def _parsed(inner: str) -> tuple[timedelta, str]:
    """Returns the distance from now, and the form; raises ValueError."""
    match = _TIME.fullmatch(inner)
    if match is None:
        raise ValueError(inner)
    sign, duration, form = match.groups()
    distance = parse_duration(duration) if duration else timedelta()
    if distance > _FARTHEST:
        raise ValueError(inner)
    return (-distance if sign == "-" else distance), form or "s"


def _written(inner: str, now: datetime) -> str:
    distance, form = _parsed(inner)
    time = now + distance
    if form == "iso":
        return time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(int(time.timestamp() * (1000 if form == "ms" else 1)))
