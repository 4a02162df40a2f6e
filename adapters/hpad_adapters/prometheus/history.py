"""What a metric was in the past: range queries, for commands only.

The queries go through prometheus-api-client, which blocks: it is imported in the thread that asks, and nowhere else.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from hpad.adapter import AdapterError, Answer
from hpad_adapters.prometheus import samples, wire
from hpad_adapters.prometheus.batches import Batch
from hpad_adapters.prometheus.connection import Access, Connection
from hpad_adapters.prometheus.settings import Window

_Range = tuple[datetime, datetime, int]
"""The first and the last moment, and the whole seconds from one to the next."""


async def answers(connection: Connection, batch: Batch, times: Sequence[datetime]) -> list[Answer]:
    """What the question of the batch would have been answered at each time; raises AdapterError.

    `times` ascend at equal distances of whole seconds.
    """
    whole = [moment.replace(microsecond=0) for moment in times]
    step = max(1, round((whole[-1] - whole[0]).total_seconds() / max(1, len(whole) - 1)))
    series = await _series(connection, batch, (whole[0], whole[-1], step))
    (ask,) = batch.asks
    window = ask.recipe.window
    found: list[Answer] = []
    for moment in whole:
        ((_, rows),) = batch.answers(_at(series, moment, window))
        try:
            found.append(samples.sample(ask, rows, moment))
        except AdapterError as error:
            found.append(error)
    return found


async def _series(connection: Connection, batch: Batch, span: _Range) -> list[wire.Series]:
    access = await connection.access()
    begin, end, _ = span
    window = batch.asks[0].recipe.window
    if window is None:
        found = await asyncio.to_thread(_asked, connection, access, batch.expression(), span)
    else:
        # No range query takes a range of samples: all of them are fetched at once.
        fetch = f"{int((end - begin).total_seconds() + window.reach.total_seconds()) + 1}s"
        text = batch.expression(msgspec.structs.replace(window, fetch=fetch))
        found = await asyncio.to_thread(_asked, connection, access, text, (end, end, 0))
    with connection.decoding():
        return msgspec.convert(found, list[wire.Series])


def _asked(connection: Connection, access: Access, expression: str, span: _Range) -> object:
    from hpad_adapters.prometheus import library  # here, in a thread: it loads requests

    return library.asked(connection, access, expression, span)


def _at(series: Sequence[wire.Series], moment: datetime, window: Window | None) -> list[wire.Series]:
    """The series as an instant query at that moment would have had them."""
    now = moment.timestamp()
    since = now if window is None else now - window.reach.total_seconds()
    found = []
    for each in series:
        points = [point for point in each.values if since <= point[0] <= now]
        if points:
            found.append(wire.Series(metric=each.metric, values=points))
    return found
