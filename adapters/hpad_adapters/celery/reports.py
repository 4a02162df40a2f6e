"""Reads the answers of Celery workers to the remote control.

Each answer is a JSON object {name of the worker: what it says}. Source: celery/worker/control.py: scheduled, reserved,
active, stats and active_queues; celery/worker/request.py: Request.info.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from hpad.adapter import shown
from hpad.adapter_http import UNDECODABLE
from hpad_adapters.celery.workers import HeldTask, WorkerReport

COMMANDS = ("scheduled", "reserved", "active", "stats", "active_queues")
"""In the order in which a task passes through: one that moves on between two answers is in both, and not in neither."""


class _Delivery(msgspec.Struct, frozen=True):
    exchange: str | None = None
    routing_key: str | None = None


class _Info(msgspec.Struct, frozen=True):
    """A task as Request.info has it, without its arguments."""

    id: str
    name: str = ""
    acknowledged: bool = False
    time_start: float | None = None
    delivery_info: _Delivery | None = None

    @property
    def held(self) -> HeldTask:
        place = self.delivery_info or _Delivery()
        return HeldTask(place.exchange or "", place.routing_key or "", self.name, self.acknowledged)


class _Scheduled(msgspec.Struct, frozen=True):
    request: _Info


class _Pool(msgspec.Struct, frozen=True, rename={"limit": "max-concurrency"}):
    limit: Any = 0
    implementation: str = ""


class _Broker(msgspec.Struct, frozen=True):
    transport: str = ""
    heartbeat: float | None = None


class _Stats(msgspec.Struct, frozen=True):
    """`broker` is "N/A" while the worker connects."""

    total: dict[str, int] = {}
    pool: _Pool = _Pool()
    broker: _Broker | str = ""
    uptime: float | None = None


class _Queue(msgspec.Struct, frozen=True):
    name: str


_SOLO = "celery.concurrency.solo:TaskPool"
_THREADS = "celery.concurrency.thread:TaskPool"
_LONG = 120.0
"""Seconds without heartbeats after which RabbitMQ may close a connection (two of its 60 seconds)."""
_NAMED = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    "scheduled": msgspec.json.Decoder(list[_Scheduled]),
    "reserved": msgspec.json.Decoder(list[_Info]),
    "active": msgspec.json.Decoder(list[_Info]),
    "stats": msgspec.json.Decoder(_Stats),
    "active_queues": msgspec.json.Decoder(list[_Queue]),
}


class Gathered:
    """The answers to one asking, by the name of the worker and the command.

    Two workers of one name count as one that holds the tasks of both. `faults`: why a worker has no report although it
    answers; "" stands for workers whose answers do not tell a name.
    """

    def __init__(self) -> None:
        self._said: dict[str, dict[str, list[Any]]] = {}
        self.faults: dict[str, str] = {}

    @property
    def complete(self) -> set[str]:
        """The workers that have answered to all commands, also those with faults."""
        return {name for name, said in self._said.items() if len(said) == len(COMMANDS)} | set(self.faults) - {""}

    def add(self, command: str, body: bytes, *, plain: bool) -> None:
        """Adds an answer. `plain`: it is JSON by its own word, and no other format is read."""
        if not plain:
            self.faults.setdefault("", "a worker does not answer in JSON: set task_serializer to json")
            return
        try:
            named = _NAMED.decode(body)
        except UNDECODABLE:
            self.faults.setdefault("", "an answer of a worker is no JSON object")
            return
        for name, said in named.items():
            try:
                found = _DECODERS[command].decode(said)
                self._said.setdefault(name, {}).setdefault(command, []).append(found)
            except UNDECODABLE as error:
                text = bytes(said)[:80].decode("utf-8", "replace")
                self.faults.setdefault(name, f"{shown(name)} answers to {command} with {shown(text)}: {error}")

    def reports(self, now: float) -> tuple[WorkerReport, ...]:
        """Returns a report of each worker that has answered to all commands. `now` is in seconds since the epoch."""
        known = self.complete - set(self.faults)
        return tuple(_report(name, self._said[name], now) for name in sorted(known))


def _report(name: str, said: Mapping[str, list[Any]], now: float) -> WorkerReport:
    active = _by_id(said["active"])
    reserved = {key: task for key, task in _by_id(said["reserved"]).items() if key not in active}
    later = {each.request.id: each.request.held for answer in said["scheduled"] for each in answer}
    stats: list[_Stats] = said["stats"]
    ages = [each.uptime for each in stats if each.uptime is not None]
    return WorkerReport(
        name,
        active=tuple(active.values()),
        reserved=tuple(reserved.values()),
        later=tuple(task for key, task in later.items() if key not in active and key not in reserved),
        finished=sum(sum(each.total.values()) for each in stats),
        concurrency=sum(each.pool.limit for each in stats if isinstance(each.pool.limit, int)),
        started=now - max(ages) if ages else None,
        queues=tuple(sorted({queue.name for answer in said["active_queues"] for queue in answer})),
        solo=any(each.pool.implementation == _SOLO for each in stats),
        may_repeat=any(map(_ends_without_heartbeats, stats)) and _longest(said["active"], now) > _LONG,
    )


def _ends_without_heartbeats(stats: _Stats) -> bool:
    """Returns whether RabbitMQ expects heartbeats of the worker, which sends none between SIGTERM and its end."""
    broker = stats.broker
    expected = isinstance(broker, _Broker) and broker.transport.startswith("amqp") and broker.heartbeat
    return bool(expected) and stats.pool.implementation == _THREADS


def _longest(answers: list[list[_Info]], now: float) -> float:
    """Returns for how many seconds the worker has worked on a task at most."""
    return max((now - info.time_start for answer in answers for info in answer if info.time_start), default=0.0)


def _by_id(answers: list[list[_Info]]) -> dict[str, HeldTask]:
    return {info.id: info.held for answer in answers for info in answer}
