"""Listeners get each new decision; one that does not read is ended and delays nothing."""

import asyncio

from support.controller import Bench, hpa
from support.engine import Workload, external, series
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.decisions.entry import Entry, first
from hpad.decisions.log import DecisionLog
from hpad.decisions.subscription import MOST_WAITING, Listeners

WEB = Key("default", "web")


def entry() -> Entry:
    web = Workload(external("queue", averageValue="10"), replicas=1)
    web.reconcile(series(10))
    assert web.done is not None
    return first(web.done)


@in_virtual_time
async def test_a_listener_gets_each_new_decision_without_its_trace() -> None:
    log = DecisionLog()
    bench = Bench(hpa("web"), decisions=log)
    subscription = log.subscribe()

    async def listen() -> list[tuple[Key, Entry]]:
        return [each async for each in subscription]

    listening = asyncio.create_task(listen())
    bench.controller.start()
    await asyncio.sleep(50)
    bench.metrics.values["web"] = 30
    await asyncio.sleep(30)
    await bench.controller.stop(5)
    subscription.close()
    heard = await listening
    found = await log.entries(WEB)
    assert [(key, each.began, each.desired) for key, each in heard] == [
        (WEB, each.began, each.desired) for each in reversed(found)
    ]
    assert len(heard) == 3
    assert all(each.trace is None for _, each in heard)


@in_virtual_time
async def test_a_listener_that_does_not_read_is_ended_and_others_go_on() -> None:
    listeners, told = Listeners(), entry()
    stalled, reading = listeners.subscribe(), listeners.subscribe()
    for _ in range(MOST_WAITING):
        listeners.tell(WEB, told)
        assert await anext(reading) == (WEB, told)
    assert not stalled.lagged
    listeners.tell(WEB, told)
    assert stalled.lagged
    assert [each async for each in stalled] == []
    assert len(listeners) == 1
    assert await anext(reading) == (WEB, told)


@in_virtual_time
async def test_a_closed_subscription_ends_its_waiting_listener() -> None:
    listeners = Listeners()

    async def listen() -> list[tuple[Key, Entry]]:
        with listeners.subscribe() as heard:
            return [each async for each in heard]

    listening = asyncio.create_task(listen())
    await asyncio.sleep(1)
    assert len(listeners) == 1
    listeners.close()
    assert await listening == []
    assert len(listeners) == 0
