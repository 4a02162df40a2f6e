"""Words that several texts about a decision share: times, spans, lists of names, counts."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from hpad.api import duration

WITHOUT_ZERO: Final = "minReplicas 0 counts as 1 while the feature gate HPAScaleToZero is off"
_NAMES: Final = 3
_A_DAY: Final = timedelta(days=1)


def clock(at: datetime, now: datetime) -> str:
    """Returns a time in UTC: of day, or with the date where it is a day or more from `now`."""
    return f"{at:%H:%M:%SZ}" if abs(at - now) < _A_DAY else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def span(seconds: float) -> str:
    """Returns a duration without zero parts: 5m, 1h30m, 90ms."""
    text = duration.write(timedelta(seconds=seconds))
    for zero in ("m0s", "h0m"):
        text = text[:-2] if text.endswith(zero) else text
    return text


def names(found: Sequence[str]) -> str:
    """Returns "a", "a and b", "a, b and c", or "a, b, c and 7 more"."""
    if len(found) > _NAMES + 1:
        found = (*found[:_NAMES], f"{len(found) - _NAMES} more")
    *first, final = found
    return f"{', '.join(first)} and {final}" if first else final


def replicas(count: int) -> str:
    """Returns "1 replica" or "2 replicas"."""
    return f"{count} replica{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """Returns a share as a person writes it: "31 %", "2.5 %", "0.2 %", "0 %".

    Three digits at most; what is not all or nothing is never rounded to 100 % or 0 %.
    """
    value = abs(share) * 100
    sign = "-" if share < 0 else ""
    if 0 < value < 0.01:
        return f"under {sign}0.01 %"
    decimals = 0 if value >= 10 else 1 if value >= 1 else 2 if value < 0.095 else 1
    text = f"{value:.{decimals}f}"
    if text == "100" and value < 100:
        text = f"{min(value, 99.9):.1f}"
    return f"{sign}{text.rstrip('0').rstrip('.') if '.' in text else text} %"
