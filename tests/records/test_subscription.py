"""Listeners get each new decision; one that does not read is ended and delays nothing."""

import asyncio

from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.records.history import DecisionHistory
from hpad.records.subscription import MOST_WAITING, Listeners

WEB = Key("default", "web")


@in_virtual_time
async def test_a_listener_gets_the_hpa_of_each_new_decision() -> None:
    log = DecisionHistory()
    bench = Bench(hpa("web"), decisions=log)
    subscription = log.subscribe()

    async def listen() -> list[Key]:
        return [each async for each in subscription]

    listening = asyncio.create_task(listen())
    bench.controller.start()
    await asyncio.sleep(50)
    bench.metrics.values["web"] = 30
    await asyncio.sleep(30)
    await bench.controller.stop(5)
    subscription.close()
    heard = await listening
    assert heard == [WEB] * len(await log.entries(WEB))
    assert len(heard) == 3


@in_virtual_time
async def test_a_listener_that_does_not_read_is_ended_and_others_go_on() -> None:
    listeners = Listeners()
    stalled, reading = listeners.subscribe(), listeners.subscribe()
    for _ in range(MOST_WAITING):
        listeners.tell(WEB)
        assert await anext(reading) == WEB
    assert not stalled.lagged
    listeners.tell(WEB)
    assert stalled.lagged
    assert [each async for each in stalled] == []
    assert len(listeners) == 1
    assert await anext(reading) == WEB


@in_virtual_time
async def test_a_closed_subscription_ends_its_waiting_listener() -> None:
    listeners = Listeners()

    async def listen() -> list[Key]:
        with listeners.subscribe() as heard:
            return [each async for each in heard]

    listening = asyncio.create_task(listen())
    await asyncio.sleep(1)
    assert len(listeners) == 1
    listeners.close()
    assert await listening == []
    assert len(listeners) == 0
