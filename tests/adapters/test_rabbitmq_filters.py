"""Lists of named queues: filters that the broker accepts, and few requests."""

import re
from typing import Any

import pytest
from aiohttp import web
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample
from hpad_adapters import rabbitmq
from hpad_adapters.rabbitmq.answers import chunks, name_filter
from hpad_adapters.rabbitmq.values import Lookup

LONGEST = 1024
"""Bytes, by which RabbitMQ 4.2.6 refuses a filter (rabbit_mgmt_util.erl: MAX_FILTER_LENGTH)."""
COUNTS = {"type": "classic", "state": "running", "messages": 2, "messages_ready": 1, "messages_unacknowledged": 1}


class Listing:
    """Answers lists as RabbitMQ does; `longest`: the filter that it accepts."""

    def __init__(self, names: list[str], longest: int = LONGEST) -> None:
        self.names = names
        self.longest = longest
        self.filters: list[str | None] = []
        self.refused = 0

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        given = request.query.get("name")
        self.filters.append(given)
        if given is not None and len(given.encode()) > self.longest:
            self.refused += 1
            return web.json_response({"error": "bad_request", "reason": "name filter regex is too long"}, status=400)
        found = [
            name for name in self.names if given is None or re.search(given.encode(), name.encode(), re.IGNORECASE)
        ]
        number, size = int(request.query["page"]), int(request.query["page_size"])
        items = [{"name": name, "vhost": "/", **COUNTS} for name in found[(number - 1) * size : number * size]]
        pages = -(-len(found) // size)
        return web.json_response({"items": items, "page_count": pages, "filtered_count": len(found)})


def adapter(url: str, context: Any, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": url, "username": "hpad", "password": "hpad-lab", **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), context)


async def counted(source: rabbitmq.RabbitMQ, names: list[str]) -> int:
    """Returns how many of the queues have been counted."""
    answers = await source.answer([testing.external("queue_messages", f"queue={name}") for name in names])
    return sum(isinstance(answer, ExternalSample) and answer.values == (2_000,) for answer in answers)


def workers(count: int) -> list[str]:
    return [f"shop-region{number:03}-order-worker" for number in range(count)]


@pytest.mark.parametrize("count", [4, 37, 39, 60, 400])
async def test_no_filter_is_longer_than_the_broker_accepts(stub, rabbit, count):
    """In a vhost of five pages: up to five filtered lists are fewer requests, or as many."""
    stub.handler = listing = Listing([*workers(count), *(f"other-{number}" for number in range(2_100))])
    assert await counted(adapter(stub.url, rabbit), workers(count)) == count
    assert listing.refused == 0
    most = min(len(chunks(workers(count))), 5)
    assert len(listing.filters) <= most + 1


async def test_a_small_vhost_is_listed_at_once(stub, rabbit):
    stub.handler = listing = Listing(workers(300))
    assert await counted(adapter(stub.url, rabbit), workers(300)) == 300
    assert listing.filters == [None]


@pytest.mark.parametrize("longest", [0, 100, 500])
async def test_a_filter_that_is_refused_is_left_out(stub, rabbit, longest):
    """A version to come, or a proxy, may accept less."""
    stub.handler = listing = Listing(workers(60), longest)
    metrics = {"all": rabbitmq.Metric(queue_regex="shop-region0.*")}
    source = adapter(stub.url, rabbit, metrics=metrics, page_size=20)
    assert await counted(source, workers(30)) == 30
    [answer] = await source.answer([testing.external("all")])
    assert len(answer.values) == 60
    assert listing.filters.count(None) <= 2 + 2 * 3  # the pages of the names, and those of the pattern for two lists


@pytest.mark.parametrize("status", [400, 414])
async def test_a_filter_is_left_out_whatever_the_words_of_the_refusal(stub, rabbit, status):
    listing = Listing(workers(30))

    async def proxied(request: web.BaseRequest) -> web.Response:
        refused = web.Response(text="<html>too long</html>", status=status, content_type="text/html")
        return refused if "name" in request.query else await listing(request)

    stub.handler = proxied
    assert await counted(adapter(stub.url, rabbit, page_size=10), workers(15)) == 15


async def test_another_refusal_is_quoted(stub, rabbit):
    stub.answers('{"error": "bad_request", "reason": "invalid range parameters"}', status=400)
    [answer, *_] = await adapter(stub.url, rabbit).answer(
        [testing.external("queue_messages", f"queue={name}") for name in "abcd"]
    )
    assert isinstance(answer, AdapterError)
    assert answer.message == f"rabbitmq at {stub.url} answered 400 Bad Request: invalid range parameters"


@pytest.mark.parametrize("letter", ["a", "-", "ü", "€", "😀", "\\", "%"])
@pytest.mark.parametrize("length", [1, 26, 255])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_each_name_is_in_one_filter_that_fits(letter, length, count):
    names = {f"{number:02}{letter * (length // len(letter.encode()))}"[:length] for number in range(count)}
    names = {name for name in names if len(name.encode()) <= 255}
    parts = chunks(names)
    assert sorted(name for part in parts for name in part) == sorted(names)
    for part in parts:
        expression = name_filter(Lookup(names=part))["name"]
        assert len(expression.encode()) <= LONGEST
        assert {name for name in names if re.search(expression.encode(), name.encode())} == part


async def test_a_name_that_no_queue_can_have_spoils_no_list(stub, rabbit):
    stub.handler = listing = Listing(workers(4))
    source = adapter(stub.url, rabbit, queues={"long": "x" * 3_000})
    assert await counted(source, ["long", *workers(4)]) == 4
    assert listing.refused == 0


@pytest.mark.rabbitmq
async def test_a_name_that_no_queue_can_have_spoils_no_single_read(broker, rabbit):
    queue = await broker.declare()
    source = adapter(broker.url, rabbit, queues={"long": "x" * 9_000})
    missing, found = await source.answer(
        [testing.external("queue_messages", f"queue={name}") for name in ("long", queue)]
    )
    assert isinstance(missing, AdapterError)
    assert missing.blame == "spec"
    assert missing.message.startswith('queue "xxx')
    assert isinstance(found, ExternalSample)


async def test_the_prefix_of_a_long_pattern_fits(stub, rabbit):
    stub.handler = listing = Listing(workers(4))
    metrics = {"long": rabbitmq.Metric(queue_regex=f"{'x' * 3_000}.*", on_missing_queue="zero")}
    [answer] = await adapter(stub.url, rabbit, metrics=metrics).answer([testing.external("long")])
    assert answer.values == (0,)
    assert listing.refused == 0


@pytest.mark.parametrize(("teams", "prefix"), [(1, "^(?:team000-)"), (40, "^(?:team000-|team001-"), (200, None)])
async def test_patterns_share_a_list(stub, rabbit, teams, prefix):
    """A list costs the broker all queues of the vhost, whatever its filter leaves out."""
    names = [f"team{number:03}-{part}" for number in range(teams) for part in ("orders", "mails")]
    stub.handler = listing = Listing([*names, *workers(4)])
    metrics = {f"m{number}": rabbitmq.Metric(queue_regex=f"team{number:03}-.*") for number in range(teams)}
    answers = await adapter(stub.url, rabbit, metrics=metrics).answer(list(map(testing.external, metrics)))
    assert [sum(answer.values) for answer in answers] == [4_000] * teams
    [found] = set(listing.filters)
    assert len(listing.filters) == 2, "with totals, and the queues without any"
    assert (found or "").startswith(prefix or "")
    assert (found is None) == (prefix is None)


async def test_names_and_patterns_have_lists_of_their_own(stub, rabbit):
    stub.handler = listing = Listing([*workers(4), "team-a"])
    queries = [testing.external("queue_messages", f"queue={name}") for name in workers(4)]
    source = adapter(stub.url, rabbit, metrics={"team": rabbitmq.Metric(queue_regex="team-.*")})
    await source.answer([testing.external("team"), *queries])
    assert set(listing.filters) == {name_filter(Lookup(names=frozenset(workers(4))))["name"], "^(?:team-)"}
