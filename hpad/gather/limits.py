"""How a source is asked: how long, how often, how many at a time. Right without configuration; all in seconds."""

import msgspec

from hpad import settings

TIMEOUT = 10.0
CONCURRENCY = 4
RATE = 20.0
RETRIES = 1
FAILURES = 5
PERIOD = 15.0
PATIENCE = 0.6
"""The part of a period that a reconcile waits for its metrics."""
_WITHIN = 0.9
"""The part of that patience in which a call ends, whatever happens: its answer has to reach who waits for it."""
_FRESH = 1 / 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`budget` is the time of a call with its retries, `timeout` that of one attempt, `rate` calls a second.

    An answer is given again while it is not older than `fresh` (0: never); a sample whose own timestamp is older than
    `max_age` is an error (None: any age will do). After `failures` calls that failed in a row, none in between having
    succeeded for a whole `rest`, the source is left alone but for one call a `rest`. `period` is that of HPAs.
    """

    timeout: float = TIMEOUT
    budget: float = PERIOD * PATIENCE * _WITHIN
    concurrency: int = CONCURRENCY
    rate: float = RATE
    retries: int = RETRIES
    fresh: float = PERIOD * _FRESH
    max_age: float | None = None
    failures: int = FAILURES
    rest: float = PERIOD
    period: float = PERIOD


def of(source: settings.SourceSettings, period: float) -> Limits:
    """The limits of a source whose HPAs are reconciled once a `period`; a call never outlasts their patience."""
    told, budget = source.limits, period * PATIENCE * _WITHIN
    timeout = TIMEOUT if source.timeout is None else source.timeout.total_seconds()
    return Limits(
        timeout=min(timeout, budget),
        budget=budget,
        concurrency=told.concurrency,
        rate=told.rate,
        retries=told.retries,
        fresh=period * _FRESH if told.fresh is None else told.fresh.total_seconds(),
        max_age=None if told.max_age is None else told.max_age.total_seconds(),
        failures=told.failures,
        rest=period if told.rest is None else told.rest.total_seconds(),
        period=period,
    )
