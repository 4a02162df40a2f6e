"""Queue depths read from a real RabbitMQ."""

import pytest
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample, Query
from hpad_adapters import rabbitmq

pytestmark = pytest.mark.rabbitmq


def adapter(broker, rabbit: Context, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": broker.url, "username": "monitor", "password": "m0nitor:pw/ü", **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), rabbit)


def depth(queue: str, name: str = "queue_messages", **labels: str) -> Query:
    return testing.external(name, ",".join(f"{key}={value}" for key, value in {"queue": queue, **labels}.items()))


def value(answer: Answer) -> int:
    assert isinstance(answer, ExternalSample), answer
    [only] = answer.values
    return only


async def test_the_depth_of_a_queue_comes_in_milli_units(broker, rabbit):
    queue = await broker.declare()
    await broker.publish(queue, 80)
    before = rabbit.clock.now()
    [answer] = await adapter(broker, rabbit).answer([depth(queue)])
    assert value(answer) == 80_000
    assert before <= answer.timestamp <= rabbit.clock.now()


async def test_a_new_empty_queue_is_zero(broker, rabbit):
    queue = await broker.declare()
    [answer] = await adapter(broker, rabbit).answer([depth(queue)])
    assert value(answer) == 0


async def test_unacknowledged_messages_count_but_are_not_ready(broker, rabbit):
    queue = await broker.declare()
    await broker.publish(queue, 12)
    async with broker.holding(queue, 4):
        queries = [
            depth(queue),
            depth(queue, "queue_messages_ready"),
            depth(queue, "queue_messages_unacknowledged"),
            depth(queue, "backlog", mode="ready"),
            depth(queue, "backlog"),
        ]
        answers = await adapter(broker, rabbit).answer(queries)
    assert [value(answer) for answer in answers] == [12_000, 8_000, 4_000, 8_000, 12_000]


@pytest.mark.parametrize("name", ["orders", "ö/ä #1?&%41", "a.b+c(d)", "with space"])
@pytest.mark.parametrize("vhost", ["/", "a/b", "ü"])
async def test_odd_names_are_read_through_the_configuration(broker, rabbit, vhost, name):
    await broker.declare(vhost, name)
    before = await adapter(broker, rabbit, vhost=vhost, queues={"it": name}).answer([depth("it")])
    await broker.publish(name, 3, vhost)
    after = await adapter(broker, rabbit, vhosts={"there": vhost}, queues={"it": name}).answer(
        [depth("it", vhost="there")]
    )
    assert value(after[0]) - value(before[0]) == 3_000


async def test_five_hundred_queues_are_read_at_once(broker, rabbit):
    await broker.publish("q0007", 7, "many")
    source = adapter(broker, rabbit, vhost="many")
    answers = await source.answer([depth(f"q{number:04}") for number in range(500)])
    assert len(answers) == 500
    assert value(answers[7]) == 7_000
    assert sum(value(answer) for answer in answers) == 7_000


@pytest.mark.parametrize("beside", [0, 5])
async def test_a_missing_queue_is_an_error_and_never_zero(broker, rabbit, beside):
    others = [depth(f"q{number:04}") for number in range(beside)]
    [missing, *rest] = await adapter(broker, rabbit, vhost="many").answer([depth("nowhere"), *others])
    assert missing == AdapterError(
        f'queue "nowhere" does not exist in vhost "many" of rabbitmq at {broker.url}', "spec"
    )
    assert all(isinstance(answer, ExternalSample) for answer in rest)


async def test_similar_names_do_not_match(broker, rabbit):
    await broker.declare(name="ORDERS-now")
    await broker.declare(name="my-orders-now-2")
    [answer] = await adapter(broker, rabbit).answer([depth("orders-now")])
    assert isinstance(answer, AdapterError)
    assert "does not exist" in answer.message


async def test_a_missing_vhost_is_named(broker, rabbit):
    source = adapter(broker, rabbit, username="hpad", password="hpad-lab", vhost="gone")
    answers = await source.answer([depth(f"q{number}") for number in range(4)])
    assert answers == [AdapterError(f'vhost "gone" does not exist at rabbitmq at {broker.url}', "spec")] * 4


@pytest.mark.parametrize(
    ("vhost", "hint"),
    [("%2F", '; did you mean "/"?'), ("/eu", '; did you mean "eu"?'), ("a%2fb", '; did you mean "a/b"?'), ("eu", "")],
)
async def test_a_vhost_that_is_written_as_in_a_url_is_told_with_its_name(broker, rabbit, vhost, hint):
    source = adapter(broker, rabbit, username="hpad", password="hpad-lab", vhost=vhost)
    [answer] = await source.answer([depth("q")])
    assert answer == AdapterError(f'vhost "{vhost}" does not exist at rabbitmq at {broker.url}{hint}', "spec")


async def test_a_failed_vhost_does_not_fail_the_others(broker, rabbit):
    queue = await broker.declare()
    source = adapter(broker, rabbit, username="hpad", password="hpad-lab")
    bad, good = await source.answer([depth("x", vhost="gone"), depth(queue)])
    assert isinstance(bad, AdapterError)
    assert value(good) == 0


@pytest.mark.parametrize(
    ("username", "password", "error"),
    [
        ("monitor", "s3cret-guess", "): wrong user name or password"),
        ("nobody", "s3cret-guess", "): wrong user name or password"),
        ("plain", "plain-pw", 'refused user "plain" (401: Not management user): it needs the tag "monitoring"'),
        ("stranger", "stranger-pw", 'and a permission on vhost "/", for which "^$" "^$" "^$" suffices'),
        ("", "", "answered 401: it requires a user; configure username and password_file"),
    ],
)
@pytest.mark.parametrize("count", [1, 4])
async def test_a_refusal_names_the_user_and_what_is_needed(broker, rabbit, username, password, error, count):
    source = adapter(broker, rabbit, username=username, password=password)
    for answer in await source.answer([depth(f"q{number}") for number in range(count)]):
        assert isinstance(answer, AdapterError)
        assert answer.blame == "source"
        assert answer.message.startswith(f"rabbitmq at {broker.url} ")
        assert error in answer.message
        assert not password or password not in answer.message


async def test_the_password_is_read_from_a_file_at_each_request(broker, rabbit, tmp_path):
    file = tmp_path / "password"
    file.write_text("wrong\n")
    queue = await broker.declare()
    source = adapter(broker, rabbit, password="", password_file=str(file))
    [before] = await source.answer([depth(queue)])
    assert "wrong user name or password" in before.message
    file.write_text("m0nitor:pw/ü\n")
    [after] = await source.answer([depth(queue)])
    assert value(after) == 0


async def test_the_password_comes_from_the_environment(broker, rabbit, monkeypatch):
    queue = await broker.declare()
    source = adapter(broker, rabbit, password="", password_env="THE_PASSWORD")
    [unset] = await source.answer([depth(queue)])
    assert unset == AdapterError("password: the environment variable THE_PASSWORD is not set")
    monkeypatch.setenv("THE_PASSWORD", "m0nitor:pw/ü")
    [answer] = await source.answer([depth(queue)])
    assert value(answer) == 0


async def test_the_first_url_that_works_answers(broker, rabbit):
    queue = await broker.declare()
    source = adapter(broker, rabbit, url=["http://127.0.0.1:9", f"{broker.url}/"])
    [answer] = await source.answer([depth(queue)])
    assert value(answer) == 0


async def test_the_port_of_amqp_has_its_own_error(broker, rabbit):
    source = adapter(broker, rabbit, url=f"http://127.0.0.1:{broker.server.amqp_port}")
    [answer] = await source.answer([depth("q")])
    assert "did not answer in HTTP: is this the right port?" in answer.message


async def test_the_adapter_keeps_the_contract(broker, rabbit):
    queue = await broker.declare()
    queries = [
        depth(queue),
        depth("nowhere"),
        testing.external("queue_messages"),
        depth("x", mode="fast"),
    ]
    answers = await testing.check_adapter(adapter(broker, rabbit), queries)
    assert [type(answer) for answer in answers] == [ExternalSample, AdapterError, AdapterError, AdapterError]


async def test_a_queue_is_counted_as_of_now(broker, rabbit):
    queue = await broker.declare("mine")
    source = adapter(broker, rabbit, vhost="mine")
    for count in range(5):
        [answer] = await source.answer([depth(queue)])
        assert value(answer) == count * 1_000
        await broker.publish(queue, 1, "mine")


async def test_a_few_queues_of_a_large_vhost_are_read(broker, rabbit):
    source = adapter(broker, rabbit, vhost="many")
    for _ in range(2):
        answers = await source.answer([depth("q0400"), depth("q0401"), depth("q0402")])
        assert [value(answer) for answer in answers] == [0, 0, 0]
