"""Tasks of a real Celery application over a real RabbitMQ and a real Redis."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from support import redis_lab
from support.celery_forks import Forks
from support.celery_shop import PASSWORD, Application, message, values
from support.virtual_time import ManualClock

from hpad import settings, testing
from hpad.adapter import AdapterError, Context, ExternalSample, Member
from hpad.clock import SystemClock
from hpad.lab.servers import ports
from hpad.sources import plugins
from hpad_adapters.celery import Celery, Settings
from hpad_adapters.celery.settings import RabbitMQBroker

pytest.importorskip("celery", reason="needs celery from PyPI")

BROKERS = [
    pytest.param("shared_broker", id="rabbitmq", marks=pytest.mark.rabbitmq),
    pytest.param("redis_server", id="redis", marks=[pytest.mark.redis, redis_lab.needs_redis]),
]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_lab.Server]:
    [port] = ports.free(1)
    server = redis_lab.Server(tmp_path_factory.mktemp("redis"), port, {"requirepass": PASSWORD})
    with redis_lab.started(server):
        yield server


_vhosts = itertools.count()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Any:
    """The server whose fixture the parameter names."""
    server = request.getfixturevalue(request.param)
    if isinstance(server, redis_lab.Server):
        server.cli("-n", "1", "flushdb")
    return server


@pytest.fixture
async def shop(place: Any, tmp_path: Path, forks: Forks) -> Application:
    """The application on a server, with a database or a vhost of its own."""
    if isinstance(place, redis_lab.Server):
        url = f"redis://127.0.0.1:{place.port}/1"
        options = {"redis": {"url": url, "password": PASSWORD}}
        return Application(url.replace("//", f"//:{PASSWORD}@"), options, tmp_path, forks)
    admin, vhost = place.server.admin, f"celery-{next(_vhosts)}"
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    await place.define(vhosts=[{"name": vhost}], permissions=[{"user": admin.name, "vhost": vhost, **everything}])
    options = {"url": place.url, "username": admin.name, "password": admin.password, "vhost": vhost}
    options |= {"request_timeout": "60s", "connect_timeout": "60s"}
    url = f"amqp://{admin.name}:{admin.password}@127.0.0.1:{place.server.amqp_port}/{vhost}"
    return Application(url, {"rabbitmq": options}, tmp_path, forks)


def on(*brokers: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", [each for each in BROKERS if each.id in brokers], indirect=True)


@on("rabbitmq", "redis")
async def test_tasks_are_counted_from_the_queue_to_their_end(shop: Application) -> None:
    """Seven mails of two priorities and three reports; a worker takes two of the mails, and then all of them."""
    await shop.send("mail.send:5:0", "report:3:0", "mail.send:2:9")
    everything = ("celery_tasks", "queue in (mail,reports)")
    mails, by_task = ("celery_tasks_waiting", "queue=mail"), ("celery_tasks_waiting", "task=mail.send")
    fetched = ("celery_tasks_unacknowledged", "queue=mail")
    asked = (mails, by_task, ("celery_tasks_waiting", "task=report"), everything, fetched)
    await shop.until(lambda found: found == [7, 7, 3, 10, 0], *asked)
    async with shop.worker("mail"):
        every = mails, fetched, ("celery_tasks", "queue=mail"), everything
        await shop.until(lambda found: found == [5, 2, 7, 10], *every)
        shop.gate.touch()
        await shop.until(lambda found: found == [0, 0, 3], mails, fetched, everything)


@on("rabbitmq", "redis")
async def test_workers_say_which_tasks_they_hold(shop: Application) -> None:
    """With early acknowledgement, a prefetch of 8, and a task that is not due: of 6 due tasks, two are in work."""
    shop.configure(task_acks_late=False, worker_prefetch_multiplier=4)
    at = shop.broker_url.rpartition("@")[2].partition("/")[0]
    shop.options["workers"] = {"timeout": "20s"} | ({} if "redis" in shop.options else {"url": f"amqp://{at}"})
    total, waiting = ("celery_tasks", "queue=mail"), ("celery_tasks_waiting", "queue=mail")
    active, fetched = ("celery_tasks_active", "queue=mail"), ("celery_tasks_unacknowledged", "queue=mail")
    await shop.send("mail.send:6:0")
    await shop.until(lambda found: found == [6, 6, 0], total, waiting, active)
    async with shop.worker("mail,reports", "worker@pod-1.example.com"):
        await shop.send("mail.send:1:0:3600")
        await shop.until(lambda found: found == [6, 4, 2, 5], total, waiting, active, fetched)
        work = await shop.ask(total, members=(Member("pod-1"), Member("pod-2")))
        assert [{pod: value.value for pod, value in each.values.items()} for each in work] == [{"pod-1": 6_000}]
        shop.gate.touch()
        await shop.until(lambda found: found == [0, 0, 0], total, waiting, active)
        [idle] = await shop.ask(total, members=(Member("pod-1"), Member("pod-2")))
        assert {pod: value.value for pod, value in idle.values.items()} == {"pod-1": 0}
    await shop.until(lambda found: found[2] == 0, total, waiting, active)
    [nobody] = await shop.ask(total, members=(Member("pod-1"),))
    assert "do not say what they hold: no worker listens to the broker" in message(nobody)


class Later(SystemClock):
    """Three minutes ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=3)


@on("rabbitmq")
async def test_a_worker_that_may_run_a_long_task_twice_is_named(shop: Application) -> None:
    at = shop.broker_url.rpartition("@")[2].partition("/")[0]
    shop.options["workers"] = {"url": f"amqp://{at}", "timeout": "20s"}
    await shop.send("mail.send:1:0")
    async with shop.worker("mail"), testing.context("celery", clock=Later()) as context:
        await shop.until(lambda found: found == [1], ("celery_tasks_active", "queue=mail"))
        adapter = Celery(msgspec.convert(shop.options, Settings), context)
        [answer] = await adapter.answer([testing.external("celery_tasks", "queue=mail")])
        await adapter.aclose()
    assert isinstance(answer, ExternalSample)
    assert answer.note.startswith("worker worker@pod-1 sends no heartbeats while it shuts down")


@on("rabbitmq")
async def test_workers_are_asked_by_tls(shop: Application, place: Any) -> None:
    await shop.send("mail.send:2:0")
    asked = ("celery_tasks", "queue=mail")
    files = {"ca": place.ca, "cert": place.client, "key": place.client}
    by_tls = {"url": place.amqps_url, "timeout": "20s"}
    await shop.until(lambda found: found == [2], asked)
    [right] = await shop.ask(asked, workers=by_tls | files)
    assert values(right) == 2
    [untrusted] = await shop.ask(asked, workers=by_tls)
    assert f"rabbitmq at {place.amqps_url} has a certificate that is not trusted" in message(untrusted)
    [absent] = await shop.ask(asked, workers=by_tls | files | {"ca": "/nowhere.pem"})
    assert "ca, cert or key: /nowhere.pem cannot be used: No such file" in message(absent)


@on("rabbitmq")
async def test_all_queues_of_an_application_are_those_with_tasks(shop: Application) -> None:
    """Workers make queues for remote control and for events, which hold no tasks."""
    await shop.send("mail.send:2:0", "report:1:0", "other:1:0")
    every = ("celery_tasks", None)
    async with shop.worker("celery"):
        while not any("pidbox" in each["name"] for each in await _listed(shop, "queues")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        [tasks] = await shop.ask(every, queues=["*"])
        assert isinstance(tasks, ExternalSample)
        assert sorted(tasks.values) == [1_000, 1_000, 2_000]
        [some] = await shop.ask(every, queues=["ma*", "report?"])
        assert isinstance(some, ExternalSample)
        assert sorted(some.values) == [1_000, 2_000]


@on("rabbitmq")
async def test_workers_of_another_queue_are_noticed(shop: Application) -> None:
    """Tasks wait, and a worker runs, but it takes those of another queue."""
    await shop.send("mail.send:3:0")
    clock = ManualClock()
    async with shop.worker("reports"), testing.context("celery") as context:
        while "reports" not in [each["queue"]["name"] for each in await _listed(shop, "consumers")]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        adapter = Celery(msgspec.convert(shop.options, Settings), msgspec.structs.replace(context, clock=clock))
        notes = []
        for _ in range(2):
            [tasks] = await adapter.answer([testing.external("celery_tasks", "queue=mail")])
            assert isinstance(tasks, ExternalSample)
            assert sum(tasks.values) == 3_000
            notes.append(tasks.note)
            clock.advance(15)
        await adapter.aclose()
    assert notes == ["", 'no consumer holds a message of the queue "mail"']


@on("rabbitmq")
async def test_tasks_that_are_not_due_count_nowhere(shop: Application) -> None:
    """On quorum queues the broker keeps them in delay queues (celery_delayed_11 of an hour), which no worker reads."""
    quorum = {"x-queue-type": "quorum"}
    shop.declare([("mail", "mail", "topic", "mail", quorum), ("reports", "reports", "topic", "reports", quorum)])
    async with shop.worker("mail,reports"):
        while not {"mail", "reports"} <= await _bound_to_the_last_delay(shop):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await shop.send("mail.send:30:0:3600", "report:1:0")
        named = ("celery_tasks", "queue=celery_delayed_11"), ("celery_tasks", "queue=reports")
        await shop.until(lambda found: found == [30, 1], *named)
    for patterns in (["*"], ["rep*", "celery_*", "mail"]):
        shop.options["queues"] = patterns
        await shop.until(lambda found: found == [1], ("celery_tasks", None))
    shop.options["queues"] = ["celery_*"]
    [none] = await shop.ask(("celery_tasks", None))
    assert "delay queues such as celery_delayed_0 and tasks.DQ count only where they are named" in message(none)


async def test_subscriptions_of_other_protocols_count_nowhere(stub: Any, context: Context) -> None:
    """RabbitMQ 4.0.5 lists an MQTT subscription with QoS 0 so, without counts."""
    counts = {"messages": 2, "messages_ready": 2, "messages_unacknowledged": 0}
    mail = {"name": "mail", "vhost": "/", "type": "classic", "state": "running", **counts}
    others = {"mqtt-subscription-c0qos0": "MQTT QoS 0", "stomp-subscription-x": "classic"}
    items = [mail, *({"name": name, "vhost": "/", "type": kind} for name, kind in others.items())]
    stub.answers(json.dumps({"items": items, "page_count": 1, "filtered_count": len(items)}))
    settings = {"rabbitmq": {"url": stub.url, "username": "hpad", "password": "pw"}, "queues": ["*"]}
    [tasks] = await Celery(msgspec.convert(settings, Settings), context).answer([testing.external("celery_tasks")])
    assert isinstance(tasks, ExternalSample)
    assert tasks.values == (2_000,)


async def _bound_to_the_last_delay(shop: Application) -> set[str]:
    """Returns the queues whose tasks come back from the delay queues: the worker binds them when these are ready."""
    bindings = await _listed(shop, "bindings")
    return {each["destination"] for each in bindings if each["source"] == "celery_delayed_delivery"}


async def _listed(shop: Application, kind: str) -> list[dict[str, Any]]:
    """Returns the queues or bindings of the application's vhost."""
    inner = shop.options["rabbitmq"]
    headers = {"Authorization": aiohttp.encode_basic_auth(inner["username"], inner["password"])}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{inner['url']}/api/{kind}/{inner['vhost']}") as response,
    ):
        listed: list[dict[str, Any]] = await response.json()
        return listed


@on("rabbitmq")
async def test_a_goal_in_seconds_needs_statistics_of_the_broker(shop: Application) -> None:
    await shop.send("report:1:0")
    asked = ("celery_workers_to_clear", "queue=reports,goal=60s,service_time=30s")
    await shop.until(lambda found: found[0] >= 0, asked)
    [wrong] = await shop.ask(("celery_workers_to_clear", "queue=reports"))
    assert "goal: is missing" in message(wrong)


@on("rabbitmq")
async def test_the_age_of_the_oldest_task_is_what_its_publisher_wrote(shop: Application) -> None:
    shop.tell_time()
    await shop.send("report:1:0")
    await shop.until(lambda found: found[0] >= 100, ("celery_head_age", "queue=reports"))


@on("rabbitmq", "redis")
@pytest.mark.parametrize("fault", ["down", "password"])
async def test_a_broker_that_does_not_answer_is_an_error(shop: Application, fault: str) -> None:
    kind = "redis" if "redis" in shop.options else "rabbitmq"
    scheme = "redis" if kind == "redis" else "http"
    changed = {"url": f"{scheme}://127.0.0.1:{ports.free(1)[0]}"} if fault == "down" else {"password": "wrong"}
    source = msgspec.convert(shop.options | {kind: shop.options[kind] | changed}, Settings)
    async with testing.context("celery") as context:
        adapter = Celery(source, context)
        try:
            [answer] = await adapter.answer([testing.external("celery_tasks", "queue=mail")])
        except AdapterError as error:
            answer = error
        await adapter.aclose()
    assert "refused the connection" in message(answer) or "refuse" in message(answer)


@on("rabbitmq")
async def test_a_queue_that_does_not_exist_is_an_error(shop: Application) -> None:
    [answer] = await shop.ask(("celery_tasks", "queue=nowhere"))
    assert 'queue "nowhere" does not exist' in message(answer)


@pytest.mark.parametrize(
    ("name", "selector", "error"),
    [
        ("celery_task", None, 'there is no metric "celery_task" (did you mean "celery_tasks"?)'),
        ("celery_tasks", "key=mail", '"key" is not a parameter; the parameters are queue, task'),
        ("celery_tasks", "goal=60s", '"goal" is not a parameter'),
        ("celery_tasks", "queue!=mail", "write a value, such as queue=mail"),
        ("celery_workers_to_clear", "goal in (1s,2s)", "write a value, such as goal=60s"),
        ("celery_tasks", "queue=mail,queue in (a)", '"queue" occurs twice'),
        ("celery_tasks", "queue=other", 'the queue "other" is not one that hpad\'s configuration offers'),
    ],
)
async def test_an_invalid_query_blames_the_spec(name: str, selector: str, error: str) -> None:
    source = Settings(rabbitmq=_rabbitmq(), only_queues=True)
    async with testing.context("celery") as context:
        adapter = Celery(source, context)
        [answer] = await adapter.answer([testing.external(name, selector)])
        assert isinstance(answer, AdapterError)
        assert answer.blame == "spec"
        assert error in answer.message
        assert adapter.group(testing.external(name, selector)) is None


@pytest.mark.parametrize("queues", [["mail"], ["mail-*"]])
@pytest.mark.parametrize(
    ("source", "url", "name", "error"),
    [
        ("prometheus", "http://rabbitmq:15692", "celery_head_age", "mode=head_age: the plugin rabbitmq_prometheus"),
        ("amqp", "amqp://rabbitmq", "celery_tasks", "mode=messages: AMQP reports ready messages and consumers only"),
    ],
)
async def test_only_what_the_source_of_the_broker_lacks_is_an_error(
    queues: list[str], source: str, url: str, name: str, error: str
) -> None:
    options = {"rabbitmq": {"url": url, "source": source}, "queues": queues}
    async with testing.context("celery") as context:
        adapter = Celery(msgspec.convert(options, Settings), context)
        [answer] = await adapter.answer([testing.external(name)])
        await adapter.aclose()
    assert error in message(answer)
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"


@pytest.mark.parametrize(
    ("task", "queue"), [("mail.send", "mail"), ("report", "reports"), ("mail.late", "night"), ("other", "celery")]
)
def test_routes_are_those_of_celery(task: str, queue: str) -> None:
    found = Settings(rabbitmq=_rabbitmq(), routes={"mail.*": "mail", "report": "reports", "mail.late": "night"})
    assert found.queue_of(task) == queue


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "rabbitmq: give the broker as one of rabbitmq and redis"),
        ({"redis": {"url": "redis://r"}, "queues": ["mail-*"]}, 'queues: "mail-*": Redis cannot list queues'),
        ({"redis": {"url": "redis://r"}, "queues": []}, "queues: name at least one queue"),
        ({"redis": {"url": "http://r"}}, "url: "),
        ({"redis": {"url": "redis://r"}, "routes": {"a": "b*"}}, 'routes: "b*" is not the name of a queue'),
        ({"rabbitmq": {"url": "http://r", "patterns": {"a": "b"}}}, "rabbitmq: patterns belongs to a source"),
        ({"rabbitmq": {"url": "amqp://r"}}, "url: an AMQP address; write that of the management API"),
    ],
)
def test_invalid_settings_are_named(options: dict[str, Any], error: str) -> None:
    source = settings.SourceSettings(name="shop", adapter="celery", settings=options)
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source, Settings)
    assert error in caught.value.message


def _rabbitmq() -> RabbitMQBroker:
    return RabbitMQBroker(url="http://rabbitmq:15672")
