"""A broker that misbehaves: each way has a text of its own, and none is ever read as zero."""

import asyncio
import json
import re

import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample, Query
from hpad.lab.servers import ports
from hpad_adapters import rabbitmq

PASSWORD = "s3cret"
COUNTS = {"messages": 5, "messages_ready": 3, "messages_unacknowledged": 2}


def adapter(url, context, **changed: object) -> rabbitmq.RabbitMQ:
    given = {"url": url, "username": "monitor", "password": PASSWORD, "request_timeout": "60s"} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**given), context)


def depths(*queues: str) -> list[Query]:
    return [testing.external("queue_messages", f"queue={queue}") for queue in queues]


FEW, MANY = depths("a"), depths("a", "b", "c", "d")


def page(*items: dict[str, object], pages: int = 1) -> str:
    return json.dumps({"items": items, "page": 1, "page_count": pages})


@pytest.mark.parametrize("queries", [FEW, MANY], ids=["single", "list"])
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"status": 500}, "answered 500 Internal Server Error"),
        ({"status": 503, "body": "<h1>down</h1>", "content_type": "text/html"}, "answered 503 Service Unavailable"),
        (
            {"status": 500, "body": '{"error":"internal","reason":"mnesia"}'},
            "answered 500 Internal Server Error: mnesia",
        ),
        ({"status": 400, "body": '{"error":"bad","reason":"s3cret"}'}, r"answered 400 Bad Request: \*\*\*"),
        ({"status": 429, "body": "[]"}, "answered 429 Too Many Requests"),
        (
            {"status": 403, "body": '{"error":"x","reason":"no"}'},
            r'refused user "monitor" \(403: no\): it needs',
        ),
        (
            {"status": 401},
            r'refused user "monitor" \(401\): it needs the tag "monitoring" and a permission',
        ),
        ({"status": 404, "body": "404 page not found", "content_type": "text/plain"}, "answered 404 Not Found"),
        ({"status": 301, "Location": "http://localhost:1/"}, r"redirects to another host \(localhost\)"),
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
async def test_a_bad_answer_is_an_error_of_the_source(stub, rabbit, queries, answer, complaint):
    stub.answers(**answer)
    answers = await adapter(stub.url, rabbit).answer(queries)
    assert len(answers) == len(queries)
    for error in answers:
        assert isinstance(error, AdapterError)
        assert error.blame == "source"
        assert f"rabbitmq at {stub.url} " in error.message
        assert re.search(complaint, error.message)
        assert PASSWORD not in error.message


@pytest.mark.parametrize("count", ["-1", '"5"', "1.5", "null", "true"])
async def test_a_count_that_is_none_is_never_zero(stub, rabbit, count):
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


async def test_nothing_listens(rabbit):
    url = f"http://127.0.0.1:{ports.free(1)[0]}"
    assert await adapter(url, rabbit).answer(FEW) == [AdapterError(f"rabbitmq at {url} refused the connection")]


async def test_a_name_that_does_not_resolve(rabbit):
    [error] = await adapter("http://no-such-broker.invalid:15672", rabbit).answer(FEW)
    assert error == AdapterError(
        "rabbitmq at http://no-such-broker.invalid:15672 cannot be found: its host name does not resolve"
    )


async def test_a_broker_that_never_answers(stub, rabbit):
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    stub.handler = hang
    [error] = await adapter(stub.url, rabbit, request_timeout="300ms").answer(FEW)
    assert error == AdapterError(f"rabbitmq at {stub.url} did not answer within 0.3s")


async def test_a_broker_that_hangs_up(stub, rabbit):
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    stub.handler = hang_up
    [error] = await adapter(stub.url, rabbit).answer(FEW)
    assert error == AdapterError(f"rabbitmq at {stub.url} closed the connection without an answer")


async def test_an_answer_that_breaks_off(stub, rabbit):
    async def truncated(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"name": "a", ')
        assert request.transport is not None
        request.transport.close()
        return response

    stub.handler = truncated
    [error] = await adapter(stub.url, rabbit).answer(FEW)
    assert error == AdapterError(f"rabbitmq at {stub.url} broke off in the middle of its answer")


async def test_an_answer_without_end_is_cut(stub, rabbit):
    stub.answers(b" " * (33 * 2**20))
    [error] = await adapter(stub.url, rabbit).answer(FEW)
    assert error == AdapterError(f"rabbitmq at {stub.url} answers more than max_bytes ({32 << 20})")


async def test_https_towards_a_plain_port(stub, rabbit):
    [error] = await adapter(stub.url.replace("http:", "https:"), rabbit).answer(FEW)
    assert "does not speak TLS as expected: is the address an http:// one?" in error.message


async def test_a_certificate_file_that_is_not_there(rabbit):
    [error] = await adapter("https://127.0.0.1:1", rabbit, ca="/nowhere/ca.pem").answer(FEW)
    assert error == AdapterError("ca, cert or key: /nowhere/ca.pem cannot be used: No such file or directory")


async def test_of_several_nodes_all_are_named_when_none_answers(stub, rabbit):
    stub.answers(status=503)
    nowhere = f"http://127.0.0.1:{ports.free(1)[0]}"
    [error] = await adapter([nowhere, stub.url], rabbit).answer(FEW)
    assert error == AdapterError(
        f"rabbitmq at {nowhere} refused the connection; rabbitmq at {stub.url} answered 503 Service Unavailable"
    )


async def test_credentials_are_not_sent_to_another_address(stub, rabbit):
    stub.answers(status=302, Location="http://localhost:1/elsewhere")
    await adapter(stub.url, rabbit).answer(FEW)
    assert [request.path for request in stub.requests] == ["/api/queues///a"]


async def test_a_batch_of_few_asks_for_each_queue_and_a_batch_of_many_for_the_list(stub, rabbit):
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


async def test_pages_are_followed_until_all_are_found(stub, rabbit):
    async def paged(request: web.Request) -> web.Response:
        number = int(request.query["page"])
        return web.json_response({"items": [{"name": f"q{number}", **COUNTS}], "page_count": 6})

    stub.handler = paged
    source = adapter(stub.url, rabbit)
    assert all(isinstance(answer, ExternalSample) for answer in await source.answer(depths("q1", "q2", "q4", "q3")))
    assert len(stub.requests) == 4
    answers = await source.answer(depths("q1", "q2", "q6", "gone"))
    assert [isinstance(answer, ExternalSample) for answer in answers] == [True, True, True, False]
    assert "does not exist" in answers[3].message


async def test_too_many_queues_are_an_error_and_never_a_part_of_them(stub, rabbit):
    message = (
        f'vhost "/" of rabbitmq at {stub.url} has more than 10000 queues to read (max_queues): '
        "a part of them would be a wrong number"
    )
    for told in ({"page_count": 21}, {"page_count": 1, "filtered_count": 10_001}):
        stub.answers(json.dumps({"items": [{"name": "a", **COUNTS}], "page": 1, **told}))
        assert await adapter(stub.url, rabbit).answer(MANY) == [AdapterError(message)] * 4


async def test_a_broker_that_knows_no_totals_is_asked_for_its_statistics(stub, rabbit):
    async def old(request: web.Request) -> web.Response:
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


async def test_a_list_that_changes_while_it_is_read_is_read_again(stub, rabbit):
    asked = []

    async def shrinking(request: web.Request) -> web.Response:
        """In the first round a queue goes after the first page, so that another moves onto it, unseen."""
        asked.append(int(request.query["page"]))
        names = ("a", "b", "c", "d") if len(asked) == 1 else ("b", "c", "d")
        start = (asked[-1] - 1) * 2
        items = [{"name": name, **COUNTS} for name in names[start : start + 2]]
        return web.json_response({"items": items, "page_count": 2, "filtered_count": len(names)})

    stub.handler = shrinking
    source = adapter(stub.url, rabbit, page_size=2, metrics={"all": rabbitmq.Metric(queue_regex=".*")})
    [answer] = await source.answer([testing.external("all")])
    assert isinstance(answer, ExternalSample)
    assert asked == [1, 2, 1, 2, 1, 2]  # at last, whether those are all there are
    assert len(answer.values) == 3


async def test_a_list_that_never_stands_still_is_an_error(stub, rabbit):
    async def restless(request: web.Request) -> web.Response:
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
    ("statistics", "complaint"),
    [
        ({}, "has no deliver_get_details"),
        ({"message_stats": {}}, "has no deliver_get_details"),
        ({"message_stats": {"publish_details": {"rate": 1.0}}}, "has no deliver_get_details"),
        ({"message_stats": {"publish_details": {"avg_rate": 1.0}}}, "has stalled"),
        ({"message_stats": {"deliver_get_details": {"avg_rate": 0.0}}}, "has stalled"),
    ],
)
@pytest.mark.parametrize("on_stalled", ["hold", "up"])
async def test_statistics_that_are_missing_never_pass_for_a_rate(stub, rabbit, statistics, complaint, on_stalled):
    """Nothing was delivered: only where the broker keeps rates at all does their absence say so."""
    stub.answers(json.dumps({"name": "a", "messages": 5, "messages_ready": 5, **statistics}))
    source = adapter(stub.url, rabbit, on_stalled=on_stalled)
    [answer] = await source.answer([testing.external("it", "queue=a,mode=deliver_rate")])
    if complaint == "has stalled" and on_stalled == "up":
        assert isinstance(answer, ExternalSample)
        assert answer.values == (5_000,)
    else:
        assert complaint in answer.message


async def test_smoothing_weighs_the_newest_samples_most(stub, rabbit):
    """0, 0 and then 10 a second: by hand, 0 + 0.3 * (0 - 0) = 0, 0 + 0.3 * (10 - 0) = 3."""
    points = [{"sample": sample, "timestamp": at * 1000} for sample, at in ((50, 15), (0, 10), (0, 5), (0, 0))]
    stub.answers(json.dumps({"name": "a", "messages": 0, "message_stats": {"publish_details": {"samples": points}}}))
    [answer] = await adapter(stub.url, rabbit, smoothing=0.3).answer(
        [testing.external("it", "queue=a,mode=publish_rate")]
    )
    assert isinstance(answer, ExternalSample)
    assert answer.values == (3_000,)
    assert stub.requests[0].query["msg_rates_age"] == "60"
