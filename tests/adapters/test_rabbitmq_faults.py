"""A broker that misbehaves: each fault has its own error, and none is read as zero."""

import asyncio
import contextlib
import json
import re

import pytest
from aiohttp import web
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample, Query
from hpad.lab.servers import ports
from hpad_adapters import rabbitmq
from hpad_adapters.rabbitmq import management

PASSWORD = "s3cret"
COUNTS = {"messages": 5, "messages_ready": 3, "messages_unacknowledged": 2}
NONE = dict.fromkeys(COUNTS, 0)


def adapter(url, context, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": url, "username": "monitor", "password": PASSWORD, **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), context)


def depths(*queues: str) -> list[Query]:
    return [testing.external("queue_messages", f"queue={queue}") for queue in queues]


FEW, MANY = depths("a"), depths("a", "b", "c", "d")


def page(*items: dict[str, object], pages: int = 1) -> str:
    return json.dumps({"items": items, "page": 1, "page_count": pages})


@pytest.mark.parametrize("queries", [FEW, MANY], ids=["single", "list"])
@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        ({"status": 500}, "answered 500 Internal Server Error"),
        ({"status": 503, "body": "<h1>down</h1>", "content_type": "text/html"}, "answered 503 Service Unavailable"),
        (
            {"status": 500, "body": '{"error":"internal","reason":"mnesia"}'},
            "answered 500 Internal Server Error: mnesia",
        ),
        ({"status": 400, "body": '{"error":"bad","reason":"odd"}'}, "answered 400 Bad Request: odd"),
        ({"status": 400}, r'answered 400 Bad Request: the url must end before "/api".+"%2F" in paths as it is'),
        ({"status": 406}, 'answered 406 Not Acceptable: the url must end before "/api"'),
        ({"status": 429, "body": "[]"}, "answered 429 Too Many Requests"),
        (
            {"status": 403, "body": '{"error":"x","reason":"no"}'},
            r'refused user "monitor" \(403: no\): it needs',
        ),
        (
            {"status": 401},
            r'refused user "monitor" \(401\): it needs the tag "monitoring" and a permission',
        ),
        (  # RabbitMQ 4.3, to a user without a permission on the vhost
            {"status": 404, "body": '{"error":"not_found","reason":"Not Found"}'},
            r'refused user "monitor" \(404: Not Found\): it needs the tag "monitoring" and a permission on vhost "/"',
        ),
        (
            {"status": 404, "body": "404 page not found", "content_type": "text/plain"},
            "answered 404 Not Found: 404 page not found",
        ),
        ({"status": 502, "body": "<html><title>no upstream</title>"}, "answered 502 Bad Gateway: no upstream"),
        (
            {"status": 301, "Location": "http://localhost:1/"},
            r"a redirect \(301\) to http://localhost:1/,",
        ),
        ({"status": 204}, "answered 204 No Content"),
        ({"body": ""}, "gave an empty answer"),
        ({"body": "  \n"}, "gave an empty answer"),
        ({"body": "<html>login</html>", "content_type": "text/html"}, "answered text/html, not JSON: is this"),
        ({"body": "{"}, "answered something other than a "),
        ({"body": "\xff\xfe"}, "answered something other than a "),
        ({"body": "[]"}, "answered something other than a "),
        ({"body": "null"}, "answered something other than a "),
        ({"body": '{"items": 5}'}, "answered something other than a "),
    ],
)
async def test_a_bad_answer_is_an_error_of_the_source(stub, rabbit, queries, answer, error_text):
    stub.answers(**answer)
    answers = await adapter(stub.url, rabbit).answer(queries)
    assert len(answers) == len(queries)
    for error in answers:
        assert isinstance(error, AdapterError)
        assert error.blame == "source"
        assert f"rabbitmq at {stub.url} " in error.message
        assert re.search(error_text, error.message)
        assert PASSWORD not in error.message


async def test_a_refusal_for_all_vhosts_names_no_vhost(stub, rabbit):
    stub.answers(status=401)
    everywhere = adapter(stub.url, rabbit, metrics={"it": rabbitmq.Metric(queue_regex=".*", vhost="*")})
    [error] = await everywhere.answer([testing.external("it")])
    assert 'it needs the tag "monitoring" and a permission on each vhost, for which "^$" ' in error.message


@pytest.mark.parametrize("count", ["-1", '"5"', "1.5", "null", "true"])
async def test_an_invalid_count_is_an_error(stub, rabbit, count):
    counts = f'"messages": {count}, "messages_ready": {count}, "messages_unacknowledged": {count}'
    item = f'{{"name": "a", {counts}}}'
    stub.answers(f'{{"name": "a", {counts}, "items": [{item}], "page_count": 1}}')
    for queries in (FEW, MANY):
        answers = await adapter(stub.url, rabbit).answer(queries)
        assert isinstance(answers[0], AdapterError)


async def test_a_count_that_is_missing_is_named(stub, rabbit):
    stub.answers('{"name": "a", "messages_ready": 3, "items": [{"name": "a", "messages_ready": 3}], "page_count": 1}')
    [error] = await adapter(stub.url, rabbit).answer(FEW)
    assert error == AdapterError(f'the answer about queue "a" in vhost "/" of rabbitmq at {stub.url} has no messages')


async def test_an_answer_without_end_is_cut(stub, rabbit):
    stub.answers(b" " * (33 * 2**20))
    [error] = await adapter(stub.url, rabbit).answer(FEW)
    assert error == AdapterError(f"rabbitmq at {stub.url} answers more than max_bytes ({32 << 20})")


async def test_the_error_names_every_node_that_failed(stub, rabbit):
    stub.answers(status=503)
    nowhere = f"http://127.0.0.1:{ports.free(1)[0]}"
    [error] = await adapter([nowhere, stub.url], rabbit).answer(FEW)
    assert error == AdapterError(
        f"rabbitmq at {nowhere} refused the connection; rabbitmq at {stub.url} answered 503 Service Unavailable"
    )


@pytest.mark.parametrize("source", ["management", "amqp"])
async def test_a_node_that_hangs_until_the_call_ends_is_tried_last(rabbit, source: str) -> None:
    """With three nodes of which two hang, no call would come to the third one.

    One that had only the time that a failed node left is tried first in the next call.
    """
    pytest.importorskip("aiormq", reason="needs the extra amqp")
    heard: asyncio.Queue[int] = asyncio.Queue()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read(1)
            heard.put_nowait(writer.get_extra_info("sockname")[1])
            await reader.read()

    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        nodes = [await stack.enter_async_context(await asyncio.start_server(hang, "127.0.0.1", 0)) for _ in range(3)]
        order = [node.sockets[0].getsockname()[1] for node in nodes]
        scheme = "amqp" if source == "amqp" else "http"
        down = ports.free(1)[0]
        made = adapter([f"{scheme}://127.0.0.1:{port}" for port in (down, *order)], rabbit, source=source)
        for port in [order[0], *order]:
            call = asyncio.ensure_future(made.answer([testing.external("queue_messages_ready", "queue=a")]))
            assert await heard.get() == port
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await made.aclose()


async def test_credentials_are_not_sent_to_another_address(stub, rabbit):
    stub.answers(status=302, Location="http://localhost:1/elsewhere")
    await adapter(stub.url, rabbit).answer(FEW)
    assert [request.path for request in stub.requests] == ["/api/queues///a"]


async def test_few_queues_are_read_singly_and_many_as_a_list(stub, rabbit):
    stub.answers(page(*({"name": name, **COUNTS} for name in "abcd")))
    source = adapter(f"{stub.url}/behind/a/proxy/", rabbit)
    answers = await source.answer(MANY * 100)
    assert all(isinstance(answer, ExternalSample) and answer.values == (5_000,) for answer in answers)
    assert [request.raw_path.partition("?")[0] for request in stub.requests] == ["/behind/a/proxy/api/queues/%2F"]
    query = stub.requests[0].query
    assert (query["disable_stats"], query["enable_queue_totals"], query["page_size"]) == ("true", "true", "500")
    stub.requests.clear()
    stub.answers(json.dumps({"name": "a", **COUNTS}))
    await source.answer(depths("a", "a"))
    assert [request.raw_path.partition("?")[0] for request in stub.requests] == ["/behind/a/proxy/api/queues/%2F/a"]


async def test_without_single_reads_a_queue_of_a_vhost_with_many_cannot_be_read(stub, rabbit, monkeypatch):
    """One HPA would list all queues of the vhost, which may be more than max_queues."""

    async def many(request: web.BaseRequest) -> web.Response:
        queue = {"name": "a", **COUNTS}
        single = request.raw_path.partition("?")[0].endswith("/a")
        return web.json_response(queue if single else {"items": [queue], "page": 1, "page_count": 21})

    stub.handler = many
    [answer] = await adapter(stub.url, rabbit).answer(FEW)
    assert isinstance(answer, ExternalSample)
    monkeypatch.setattr(management, "FEW", 0)
    [answer] = await adapter(stub.url, rabbit).answer(FEW)
    assert isinstance(answer, AdapterError)
    assert "more than 10000 queues" in answer.message


async def test_pages_are_followed_until_all_are_found(stub, rabbit):
    async def paged(request: web.BaseRequest) -> web.Response:
        number = int(request.query["page"])
        return web.json_response({"items": [{"name": f"q{number}", **COUNTS}], "page_count": 6})

    stub.handler = paged
    source = adapter(stub.url, rabbit)
    assert all(isinstance(answer, ExternalSample) for answer in await source.answer(depths("q1", "q2", "q4", "q3")))
    assert len(stub.requests) == 4
    answers = await source.answer(depths("q1", "q2", "q6", "gone"))
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, True, False]
    assert "does not exist" in answers[3].message


async def test_too_many_queues_are_an_error(stub, rabbit):
    message = (
        f'vhost "/" of rabbitmq at {stub.url} has more than 10000 queues to read (max_queues): '
        "a part of them would be a wrong number"
    )
    for size in ({"page_count": 21}, {"page_count": 1, "filtered_count": 10_001}):
        stub.answers(json.dumps({"items": [{"name": "a", **COUNTS}], "page": 1, **size}))
        assert await adapter(stub.url, rabbit).answer(MANY) == [AdapterError(message)] * 4


async def test_statistics_replace_totals_that_the_broker_lacks(stub, rabbit):
    async def old(request: web.BaseRequest) -> web.Response:
        counts = {} if "disable_stats" in request.query else COUNTS
        items = [{"name": name, **counts} for name in "abcd"]
        return web.json_response({**items[0], "items": items, "page_count": 1})

    stub.handler = old
    source = adapter(stub.url, rabbit)
    for queries, requests in ((MANY, 2), (MANY, 1), (FEW, 1)):
        stub.requests.clear()
        answers = await source.answer(queries)
        assert all(isinstance(answer, ExternalSample) and answer.values == (5_000,) for answer in answers)
        assert len(stub.requests) == requests


@pytest.mark.parametrize("metric", [{"queue": "orders"}, {"queue_regex": "ord.*"}])
async def test_queues_of_another_vhost_are_no_answer(stub, rabbit, metric):
    """A proxy that decodes %2F and merges slashes makes the list of vhost "/" one of all vhosts."""

    async def merged(request: web.BaseRequest) -> web.Response:
        if request.path.endswith("orders"):
            return web.json_response({"error": "Object Not Found", "reason": "Not Found"}, status=404)
        items = [{"name": "orders", "vhost": vhost, **COUNTS} for vhost in ("/", "shop")]
        return web.json_response({"items": items, "page_count": 1, "filtered_count": 2})

    stub.handler = merged
    [answer] = await adapter(stub.url, rabbit, metrics={"it": rabbitmq.Metric(**metric)}).answer(
        [testing.external("it")]
    )
    assert isinstance(answer, AdapterError)
    assert f'rabbitmq at {stub.url} answers with queues of vhost "shop" in place of "/"' in answer.message


async def test_a_list_that_changes_while_it_is_read_is_read_again(stub, rabbit):
    pages = []

    async def shrinking(request: web.BaseRequest) -> web.Response:
        """A queue is deleted after the first page, so that another moves onto that page and is missed."""
        pages.append(int(request.query["page"]))
        names = ("a", "b", "c", "d") if len(pages) == 1 else ("b", "c", "d")
        start = (pages[-1] - 1) * 2
        items = [{"name": name, **COUNTS} for name in names[start : start + 2]]
        return web.json_response({"items": items, "page_count": 2, "filtered_count": len(names)})

    stub.handler = shrinking
    source = adapter(stub.url, rabbit, page_size=2, metrics={"all": rabbitmq.Metric(queue_regex=".*")})
    [answer] = await source.answer([testing.external("all")])
    assert isinstance(answer, ExternalSample)
    assert pages == [1, 2, 1, 2, 1, 2]  # the last request checks that no page is missing
    assert len(answer.values) == 3


async def test_a_list_that_changes_each_time_is_an_error(stub, rabbit):
    async def restless(request: web.BaseRequest) -> web.Response:
        page = int(request.query["page"])
        items = [{"name": f"q{page}", **COUNTS}]
        return web.json_response({"items": items, "page_count": 2, "filtered_count": 3})

    stub.handler = restless
    source = adapter(stub.url, rabbit, page_size=2, metrics={"all": rabbitmq.Metric(queue_regex=".*")})
    [answer] = await source.answer([testing.external("all")])
    assert answer == AdapterError(
        f'the queues of vhost "/" of rabbitmq at {stub.url} changed 3 times while their pages were read'
    )
    assert len(stub.requests) == 6


@pytest.mark.parametrize(
    ("statistics", "error_text"),
    [
        ({}, "has no deliver_get_details"),
        ({"message_stats": {}}, "has no deliver_get_details"),
        ({"message_stats": {"publish_details": {"rate": 1.0}}}, "has no deliver_get_details"),
        ({"message_stats": {"publish_details": {"avg_rate": 1.0}}}, "has stalled"),
        ({"message_stats": {"deliver_get_details": {"avg_rate": 0.0}}}, "has stalled"),
    ],
)
@pytest.mark.parametrize("on_stalled", ["hold", "up"])
async def test_missing_statistics_are_not_a_rate(stub, rabbit, statistics, error_text, on_stalled):
    """An absent rate of delivery means that nothing was delivered only if the broker keeps other rates."""
    stub.answers(json.dumps({"name": "a", **COUNTS, **statistics}))
    source = adapter(stub.url, rabbit, on_stalled=on_stalled)
    [answer] = await source.answer([testing.external("it", "queue=a,mode=deliver_rate")])
    if error_text == "has stalled" and on_stalled == "up":
        assert isinstance(answer, ExternalSample)
        assert answer.values == (5_000,)
    else:
        assert error_text in answer.message


@pytest.mark.parametrize(("mode", "event"), [("publish_rate", "publish"), ("ack_rate", "ack")])
async def test_a_rate_is_a_number_although_nothing_is_delivered(stub, rabbit, mode, event):
    """As while no worker runs: what is published has to wake one."""
    rates = {f"{event}_details": {"avg_rate": 2.5}, "deliver_get_details": {"avg_rate": 0.0}}
    stub.answers(json.dumps({"name": "a", **COUNTS, "message_stats": rates}))
    [answer] = await adapter(stub.url, rabbit).answer([testing.external("it", f"queue=a,mode={mode}")])
    assert isinstance(answer, ExternalSample)
    assert answer.values == (2_500,)


async def test_smoothing_gives_the_newest_rate_its_weight(stub, rabbit):
    """0, 0 and then 10 a second: by hand, 0 + 0.3 * (0 - 0) = 0, 0 + 0.3 * (10 - 0) = 3."""
    points = [{"sample": sample, "timestamp": at * 1000} for sample, at in ((50, 15), (0, 10), (0, 5), (0, 0))]
    stub.answers(json.dumps({"name": "a", **NONE, "message_stats": {"publish_details": {"samples": points}}}))
    [answer] = await adapter(stub.url, rabbit, smoothing=0.3).answer(
        [testing.external("it", "queue=a,mode=publish_rate")]
    )
    assert isinstance(answer, ExternalSample)
    assert answer.values == (3_000,)
    assert stub.requests[0].query["msg_rates_age"] == "60"
