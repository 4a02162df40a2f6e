"""Which series there are, for rules whose names of metrics cannot be read backwards to one series."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import AdapterError, Context, meant
from hpad_adapters.prometheus.connection import Connection
from hpad_adapters.prometheus.rules import Found, Rule

_LOOK_AGAIN_SECONDS = 30.0


class _Seen(msgspec.Struct, frozen=True):
    names: frozenset[str]
    at: float


class Discovery:
    """The names of the series that rules query, remembered for `ttl` (which is also how far back it looks).

    A metric that is not among them is looked for again after half a minute, so that a new one need not wait that long.
    """

    def __init__(self, connection: Connection, context: Context, ttl: timedelta) -> None:
        self._connection = connection
        self._clock = context.clock
        self._ttl = ttl.total_seconds()
        self._seen: dict[str, _Seen] = {}

    async def choose(self, found: Sequence[Found], metric: str) -> tuple[Rule, str] | None:
        """The first rule that has a series for the metric; raises AdapterError if the server does not answer.

        A single rule whose series is known needs no look at all.
        """
        if len(found) == 1 and found[0].series is not None:
            return found[0].rule, found[0].series
        for fresh in (self._ttl, _LOOK_AGAIN_SECONDS):
            for candidate in found:
                names = await self._names(candidate.rule.naming.series_query, min(fresh, self._ttl))
                series = candidate.rule.naming.among(names, metric)
                if series is not None:
                    return candidate.rule, series
        return None

    async def _names(self, selector: str, fresh: float) -> frozenset[str]:
        now = self._clock.monotonic()
        seen = self._seen.get(selector)
        if seen is None or now - seen.at > fresh:
            until = self._clock.now().timestamp()
            names = frozenset(await self._connection.series_names(selector, until - self._ttl, until))
            seen = self._seen[selector] = _Seen(names, now)
        return seen.names


def unknown(metric: str, kind: str, known: Sequence[str]) -> AdapterError:
    """Nothing is configured for the metric, or no rule finds a series for it."""
    listed = ", ".join(known) or "none"
    return AdapterError(
        f'nothing answers {kind} metric "{metric}": no rule finds a series that it would name so, '
        f"and queries of its type are written for: {listed}{meant(metric, known)}",
        "spec",
    )
