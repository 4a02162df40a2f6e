"""Closed records are reopened together before the first turns, and closed again if there was none."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest
from store.test_persistent import API, INTERVALS, WEB, Backend
from support import virtual_time
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.clock import Moment, boot
from hpad.engine.history import Memory, Validity
from hpad.store import persistent, record
from hpad.telemetry import Telemetry

CLOSED = Memory(uid="1", at=virtual_time.START, validity=Validity("another machine", 0.0, 15.0, 15.0, closed=True))
OPEN = Validity("another machine", 0.0)
KEYS = (WEB, API)


class Process:
    """A store with a leader election, on records that another process has closed."""

    def __init__(self, backend: Backend, *, leads: bool = True) -> None:
        self.leads = leads
        self.clock = virtual_time.VirtualClock()
        self.store = persistent.PersistentStore(backend, self.clock, Telemetry(), INTERVALS, lambda: self.leads)
        self.running = asyncio.create_task(self.store.run())

    def reopen(self, key: Key) -> asyncio.Task[bool]:
        return asyncio.create_task(self.store.reopen(key, Moment.now(self.clock)))

    async def crash(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def stop(self) -> None:
        await self.crash()
        await self.store.stop()


class Slow(Backend):
    """Each save takes a second. `number` saves have begun."""

    number = 0

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        self.number += 1
        await asyncio.sleep(1)
        return await super().save(changes)


def handed_over(backend: Backend) -> Backend:
    backend.records = {key: record.encode(key, CLOSED) for key in KEYS}
    return backend


def saved(backend: Backend, key: Key = WEB) -> Validity | None:
    return record.decode(key, backend.records[key]).validity


@in_virtual_time
async def test_closed_records_are_reopened_at_once_by_one_save() -> None:
    backend = handed_over(Slow())
    process = Process(backend)
    memory = await process.store.get_loaded(WEB)
    assert memory.complete
    assert memory.validity == CLOSED.validity
    assert all(await asyncio.gather(*map(process.reopen, KEYS)))
    assert virtual_time.now() == pytest.approx(1.0)
    assert backend.saves == [(pytest.approx(1.0), {"web", "api"})]
    assert saved(backend) == saved(backend, API) == OPEN
    memory = process.store.get(WEB)
    assert memory.complete, "for the turns of this process"
    assert memory.validity == OPEN
    await process.crash()


@in_virtual_time
async def test_a_standby_reopens_nothing_until_it_leads() -> None:
    backend = handed_over(Backend())
    process = Process(backend, leads=False)
    await asyncio.sleep(5)
    assert backend.saves == []
    process.leads = True
    process.store.refresh()
    assert await process.reopen(WEB)
    assert virtual_time.now() == pytest.approx(5.0)
    assert saved(backend, API) == OPEN
    await process.crash()


@in_virtual_time
async def test_records_without_a_turn_are_closed_again() -> None:
    backend = handed_over(Backend())
    process = Process(backend)
    assert await process.reopen(WEB)
    await asyncio.sleep(3)
    await process.stop()
    assert saved(backend, WEB) == OPEN, "a turn may have been made"
    assert saved(backend, API) == CLOSED.validity


@in_virtual_time
async def test_a_record_is_not_open_if_another_process_may_have_written_it_during_the_write() -> None:
    process = Process(handed_over(Slow()))
    await process.store.get_loaded(WEB)
    turn = process.reopen(WEB)
    await asyncio.sleep(0.5)
    process.store.refresh()
    assert not await turn
    await process.crash()


@pytest.mark.parametrize("lost", [False, True])
@in_virtual_time
async def test_a_record_that_cannot_be_reopened_lets_no_turn_begin(lost: bool) -> None:
    """The store fails, or this process has lost the Lease during the write. The next attempt writes again."""
    backend = handed_over(Slow())
    process = Process(backend)
    await process.store.get_loaded(WEB)
    turn = process.reopen(WEB)
    await asyncio.sleep(0.5)
    process.leads, backend.trouble = not lost, None if lost else "disk full"
    assert not await turn
    assert process.store.get(WEB).validity == CLOSED.validity
    process.leads, backend.trouble = True, None
    if not lost:
        assert saved(backend) == CLOSED.validity
        assert await process.reopen(WEB)
        assert saved(backend) == OPEN
    await process.crash()


@pytest.mark.parametrize("cancelled", [False, True])
@in_virtual_time
async def test_a_note_before_an_early_turn_is_withdrawn_if_there_is_no_turn(cancelled: bool) -> None:
    """Its write takes longer than the patience of the store, or the turn is cancelled meanwhile."""

    class Stuck(Backend):
        async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
            await asyncio.sleep(5)
            return await super().save(changes)

    backend = Stuck()
    process = Process(backend)
    await process.store.get_loaded(WEB)
    valid = Validity(boot(), 0.0, 60.0, 15.0)
    process.store.put(WEB, Memory(uid="1", at=virtual_time.START, validity=valid))
    await process.store.flush_now(WEB)
    await asyncio.sleep(10)
    turn = process.reopen(WEB)
    await asyncio.sleep(1.5)
    if cancelled:
        turn.cancel()
    await asyncio.wait([turn])
    assert virtual_time.now() - 12 <= persistent._PATIENCE
    assert turn.cancelled() or not turn.result()
    await asyncio.sleep(5)
    assert saved(backend) == Validity(boot(), 0.0), "its write went on"
    await asyncio.sleep(20)
    assert saved(backend) == valid
    await process.crash()


@in_virtual_time
async def test_records_that_have_expired_or_were_not_closed_are_left_alone() -> None:
    backend = Backend()
    expired = Memory(uid="1", at=virtual_time.START - timedelta(seconds=40), validity=CLOSED.validity)
    running = Memory(uid="1", at=virtual_time.START, validity=Validity(boot(), 0.0, 15.0, 15.0))
    backend.records = {WEB: record.encode(WEB, expired), API: record.encode(API, running)}
    process = Process(backend)
    await asyncio.sleep(5)
    assert backend.saves == []
    await process.crash()
