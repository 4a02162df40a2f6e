"""A broker of Kafka that hangs or is slow, and the groups that do not need it; in virtual time."""

import asyncio
from typing import Any, NamedTuple

import msgspec
import pytest
import structlog
from support import kafka_broker, virtual_time
from support.kafka_broker import Broker, serving
from support.virtual_time import now

from hpad import testing
from hpad.adapter import Answer, ExternalSample, Query
from hpad.sources.limits import CallLimits
from hpad.sources.source import QueriedSource
from hpad_adapters.kafka import Kafka

PERIOD = 15.0
PERIODS = 4
HPAS = 10
GRACE = 0.02
"""Real seconds for the sockets before virtual time goes on."""
NO_ANSWER = "did not answer within 3s"
HERE = [testing.external("kafka_lag", f"group=g{number},topic=orders") for number in range(HPAS)]
THERE = testing.external("kafka_lag", "group=there,topic=there")


class Member(Broker):
    """One of two brokers. The second one leads topic "there", and coordinates group "there"."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers: tuple[Broker, ...] = ()

    def default(self, request: Any) -> tuple[Any, ...]:
        """Returns the fields of the response: each group has the same offsets in each topic."""
        if isinstance(request, kafka_broker.METADATA):
            brokers = [(number, "127.0.0.1", broker.port, None) for number, broker in enumerate(self.brokers)]
            leaders = [(topic, int(topic == "there")) for topic in request.topics]
            topics = [(0, topic, False, [(0, n, leader, [], []) for n in (0, 1)]) for topic, leader in leaders]
            return (0, brokers, "c", 1, topics)
        if isinstance(request, kafka_broker.COORDINATOR):
            return (0, 0, None, 1, "127.0.0.1", self.brokers[request.coordinator_key == "there"].port)
        if isinstance(request, kafka_broker.COMMITTED):
            named = [topic for topic, _ in request.topics or (("there", ()),)]
            return (0, [(topic, [(0, 4, "", 0), (1, 20, "", 0)]) for topic in named], 0)
        return super().default(request)


class Turn(NamedTuple):
    """The answer to one reconcile of an HPA, after so many seconds; None without an answer."""

    answer: Answer | None
    seconds: float


class World:
    """HPAs that read a source, spread over the period. The second broker hangs for `recovers` seconds."""

    def __init__(self) -> None:
        self.first, self.second = Member(), Member()
        self.first.brokers = self.second.brokers = (self.first, self.second)
        self.recovers = PERIODS * PERIOD

    def turns(self, *queries: Query) -> list[list[Turn]]:
        """Returns the turns of each query's HPA."""
        return virtual_time.run(self._run(queries), io_grace=GRACE)

    async def _run(self, queries: tuple[Query, ...]) -> list[list[Turn]]:
        limits = CallLimits(timeout=CallLimits().budget)
        quiet: dict[str, Any] = {"log": structlog.get_logger(), "observer": lambda *_: None}
        asyncio.get_running_loop().call_later(self.recovers, self.second.answers.clear)
        async with (
            serving(self.first) as first,
            serving(self.second) as second,
            testing.context("kafka", clock=virtual_time.VirtualClock()) as context,
        ):
            context = msgspec.structs.replace(context, timeout=limits.timeout)
            adapter = Kafka(msgspec.convert({"bootstrap_servers": [first, second]}, Kafka.Settings), context)
            source = QueriedSource("kafka", adapter, clock=context.clock, limits=limits, **quiet)
            places = [number * PERIOD / len(queries) for number in range(len(queries))]
            found = await asyncio.gather(*(self._hpa(source, *each) for each in zip(queries, places, strict=True)))
            await source.aclose()
        return found

    async def _hpa(self, source: QueriedSource, query: Query, place: float) -> list[Turn]:
        await asyncio.sleep(place)
        turns = []
        for _ in range(PERIODS):
            began = now()
            future = source.ask(query)
            await asyncio.wait({future}, timeout=9.0)
            turns.append(Turn(future.result() if future.done() else None, now() - began))
            await asyncio.sleep(began + PERIOD - now())
        return turns


def answers(turns: list[list[Turn]]) -> list[Answer | None]:
    return [turn.answer for each in turns for turn in each]


@pytest.mark.parametrize("there", [THERE, testing.external("kafka_lag", "group=there")], ids=["a topic", "all topics"])
def test_a_slow_broker_fails_its_own_groups_alone(there: Query) -> None:
    """Each of its answers is in time, but all that the metric needs take longer than a call."""
    world = World()
    world.second.seconds = 2.8
    *others, slow = world.turns(*HERE, there)
    assert all(isinstance(each, ExternalSample) for each in answers(others))
    text = f"Kafka broker 127.0.0.1:{world.second.port} is too slow: the time of the call was over before its answer"
    assert {str(each) for each in answers([slow])} == {text}


def test_a_slow_broker_that_answers_within_the_call_fails_nothing() -> None:
    world = World()
    world.second.seconds = 1.5
    assert all(isinstance(each, ExternalSample) for each in answers(world.turns(*HERE, THERE)))


@pytest.mark.parametrize("request_class", ["VERSIONS", "COMMITTED", "OFFSETS"])
def test_the_groups_of_a_broker_that_hangs_keep_no_others_waiting(request_class: str) -> None:
    """It hangs when hpad connects, as the coordinator of a group, or as the leader of a topic."""
    world = World()
    world.second.answers[getattr(kafka_broker, request_class)] = b""
    hung, *others = world.turns(THERE, *HERE)
    assert {str(each) for each in answers([hung])} == {f"Kafka broker 127.0.0.1:{world.second.port} {NO_ANSWER}"}
    assert all(isinstance(each, ExternalSample) for each in answers(others))
    assert {turn.seconds for each in others for turn in each[1:]} == {0.0}


def test_a_group_whose_broker_answers_again_has_its_lag() -> None:
    world = World()
    world.second.answers[kafka_broker.OFFSETS] = b""
    world.recovers = 2.5 * PERIOD
    *_, turns = world.turns(*HERE, THERE)
    assert [isinstance(turn.answer, ExternalSample) for turn in turns] == [False, False, True, True]


def test_a_bootstrap_server_that_hangs_once_it_is_connected_is_passed_over() -> None:
    world = World()
    world.first.answers[kafka_broker.METADATA] = b""
    (turns,) = world.turns(THERE)
    first, *later = answers([turns])
    assert str(first) == f"Kafka broker 127.0.0.1:{world.first.port} {NO_ANSWER}"
    assert all(isinstance(each, ExternalSample) for each in later)
