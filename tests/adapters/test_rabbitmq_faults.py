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
    given = {"url": url, "username": "monitor", "password": PASSWORD, "request_timeout": "300ms"} | changed
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
        ({"status": 301, "Location": "http://127.0.0.1:1/"}, "answered 301, a redirect, which is not followed"),
        ({"status": 204}, "answered 204 No Content"),
        ({"body": ""}, "gave an empty answer"),
        ({"body": "  \n"}, "gave an empty answer"),
        ({"body": "<html>login</html>", "content_type": "text/html"}, "answered text/html, not JSON: is this"),
        ({"body": "{"}, "answered something else than a "),
        ({"body": "\xff\xfe"}, "answered something else than a "),
        ({"body": "[]"}, "answered something else than a "),
        ({"body": "null"}, "answered something else than a "),
        ({"body": '{"items": 5}'}, "answered something else than a "),
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
    [error] = await adapter("http://no-such-broker.invalid:15672", rabbit, request_timeout="5s").answer(FEW)
    assert error == AdapterError(
        "rabbitmq at http://no-such-broker.invalid:15672 cannot be found: its host name does not resolve"
    )


async def test_a_broker_that_never_answers(stub, rabbit):
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    stub.handler = hang
    [error] = await adapter(stub.url, rabbit).answer(FEW)
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
    [error] = await adapter(stub.url, rabbit, request_timeout="20s").answer(FEW)
    assert error == AdapterError(f"rabbitmq at {stub.url} sent more than 32 MiB, too much for an answer")


async def test_https_towards_a_plain_port(stub, rabbit):
    [error] = await adapter(stub.url.replace("http:", "https:"), rabbit, request_timeout="5s").answer(FEW)
    assert "does not speak TLS as expected: is the address an http:// one?" in error.message


async def test_a_certificate_file_that_is_not_there(rabbit):
    [error] = await adapter("https://127.0.0.1:1", rabbit, ca="/nowhere/ca.pem").answer(FEW)
    assert error == AdapterError("ca, cert or key cannot be used (/nowhere/ca.pem): No such file or directory")


async def test_of_several_nodes_all_are_named_when_none_answers(stub, rabbit):
    stub.answers(status=503)
    nowhere = f"http://127.0.0.1:{ports.free(1)[0]}"
    [error] = await adapter([nowhere, stub.url], rabbit).answer(FEW)
    assert error == AdapterError(
        f"rabbitmq at {nowhere} refused the connection; rabbitmq at {stub.url} answered 503 Service Unavailable"
    )


async def test_credentials_are_not_sent_to_another_address(stub, rabbit):
    stub.answers(status=302, Location=f"{stub.url}/elsewhere")
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
    stub.answers(page({"name": "a", **COUNTS}, pages=41))
    answers = await adapter(stub.url, rabbit).answer(MANY)
    message = f'vhost "/" of rabbitmq at {stub.url} has more than 20000 queues: that is too many'
    assert answers == [AdapterError(message)] * 4


async def test_a_broker_that_knows_no_totals_is_asked_for_its_statistics(stub, rabbit):
    async def old(request: web.Request) -> web.Response:
        counts = {} if "disable_stats" in request.query else COUNTS
        items = [{"name": name, **counts} for name in "abcd"]
        return web.json_response({**items[0], "items": items, "page_count": 1})

    stub.handler = old
    source = adapter(stub.url, rabbit)
    for queries in (MANY, FEW):
        for requests in (2, 1):
            stub.requests.clear()
            answers = await source.answer(queries)
            assert all(isinstance(answer, ExternalSample) and answer.values == (5_000,) for answer in answers)
            assert len(stub.requests) == requests
