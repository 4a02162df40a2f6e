"""A real Celery application over a real Redis: one server, the master of a sentinel, and a node of a cluster.

Redis removes empty lists, so the bindings that Celery leaves there tell an empty queue from one that does not exist.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from support.celery_forks import Forks
from support.celery_shop import PASSWORD, SETTLED, Application, message, values
from support.redis_lab import Server, needs_redis, started

from hpad import testing
from hpad.adapter import AdapterError, Member
from hpad.lab.servers import ports
from hpad_adapters.celery import Celery, Settings
from hpad_adapters.celery.redis_keys import MOST_ENTRIES
from hpad_adapters.celery.settings import RedisBroker

pytest.importorskip("celery", reason="needs celery from PyPI")
pytestmark = [needs_redis, pytest.mark.redis, pytest.mark.usefixtures("patient_redis")]

TASKS, WAITING, FETCHED = "celery_tasks", "celery_tasks_waiting", "celery_tasks_unacknowledged"
TO_CLEAR = "celery_workers_to_clear"
Shops = Callable[..., Application]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    [port] = ports.free(1)
    made = Server(tmp_path_factory.mktemp("redis"), port, {"requirepass": PASSWORD})
    with started(made):
        yield made


@pytest.fixture
def shops(server: Server, tmp_path: Path, forks: Forks) -> Shops:
    """Makes applications on the server, whose database is empty."""
    server.cli("flushall")
    at = f"127.0.0.1:{server.port}/1"

    def shop(options: dict[str, Any] | None = None, **celery: Any) -> Application:
        broker = {"url": f"redis://{at}", "password": PASSWORD, **(options or {})}
        return Application(f"redis://:{PASSWORD}@{at}", {"redis": broker}, tmp_path, forks, **celery)

    return shop


async def test_a_queue_that_no_application_has_declared_is_an_error(shops: Shops, server: Server) -> None:
    """A worker or a producer declares a queue, which it stays when it is empty and its worker is gone."""
    shop = shops()
    mail, reports, misspelt = (TASKS, "queue=mail"), (TASKS, "queue=reports"), (TASKS, "queue=mial")
    [before] = await shop.ask(mail)
    assert "queue 'mail' does not exist: it holds no tasks" in message(before)
    assert isinstance(before, AdapterError)
    assert before.blame == "spec"
    await shop.send("report:2:0")
    async with shop.worker("mail,reports"):
        await shop.until(lambda found: found == [2, 0], reports, mail)
        shop.gate.touch()
        await shop.until(lambda found: found == [0, 0], reports, mail)
    found = await shop.ask(reports, mail, (WAITING, "queue=mail"), (FETCHED, "queue=mail"))
    assert [values(answer) for answer in found] == [0, 0, 0, 0]
    wrong = await shop.ask(misspelt, (WAITING, "queue=mial"), (FETCHED, "queue=mial"), (TASKS, "queue in (mail,mial)"))
    assert all("queue 'mial' does not exist" in message(each) for each in wrong)
    [zero] = await shop.ask(misspelt, redis=shop.options["redis"] | {"on_missing_queue": "zero"})
    assert values(zero) == 0
    server.cli("-n", "1", "rpush", "mial", "task")
    assert [values(answer) for answer in await shop.ask(misspelt)] == [1]


async def test_a_queue_of_another_exchange_is_found_if_it_is_named(shops: Shops) -> None:
    """Of task_queues: one with the default exchange, and one with a topic, whose tasks do not name their queue."""
    queues = [("mail", "", "direct", ""), ("reports", "statistics", "topic", "report.#")]
    shop = shops({"exchanges": ["statistics"]}, queues=queues, configuration={"task_default_exchange": "celery"})
    mail, reports = (FETCHED, "queue=mail"), (FETCHED, "queue=reports")
    async with shop.worker("mail,reports"):
        await shop.send("mail.send:1:0", "report:1:0")
        await shop.until(lambda found: found == [1, 1], mail, reports)
        shop.gate.touch()
        await shop.until(lambda found: found == [0, 0], mail, reports)
    unnamed = [await shop.ask(each, redis=shop.options["redis"] | {"exchanges": []}) for each in (mail, reports)]
    assert values(unnamed[0][0]) == 0
    assert "no binding of the exchanges 'reports', 'celery' names it" in message(unnamed[1][0])


async def test_options_of_the_transport_name_other_keys(shops: Shops, server: Server) -> None:
    same = {"priority_steps": [0, 5], "sep": "|", "global_keyprefix": "shop:"}
    shop = shops(same, configuration={"broker_transport_options": same})
    await shop.send("mail.send:2:0", "mail.send:1:7")
    server.cli("-n", "1", "hset", "shop:held", "tag", entry("", "mail"))
    mail = (TASKS, "queue=mail")
    assert [values(each) for each in await shop.ask(mail)] == [3]
    held = shop.options["redis"] | {"unacked_key": "held"}
    assert [values(each) for each in await shop.ask((TASKS, None), redis=held, queues=["mail"], routes={})] == [4]
    server.cli("-n", "1", "del", "shop:mail", "shop:mail|5")
    assert [values(each) for each in await shop.ask(mail)] == [0]
    [other] = await shop.ask(mail, redis=shop.options["redis"] | {"global_keyprefix": ""})
    assert "queue 'mail' does not exist" in message(other)


async def test_tasks_of_every_priority_count_whichever_steps_the_application_has(shops: Shops) -> None:
    steps = {"priority_steps": list(range(10))}
    shop = shops(steps, configuration={"broker_transport_options": steps})
    await shop.send(*(f"mail.send:1:{priority}" for priority in range(10)))
    every = {name: each for name, each in shop.options["redis"].items() if name != "priority_steps"}
    assert [values(each) for each in await shop.ask((WAITING, "queue=mail"), redis=every)] == [10]


@pytest.mark.parametrize("on_missing", ["error", "zero"])
@pytest.mark.parametrize("priorities", [(), (9,), (0, 9)])
async def test_another_sep_than_that_of_the_application_is_an_error(
    shops: Shops, server: Server, priorities: tuple[int, ...], on_missing: str
) -> None:
    """The lists of the priorities would be taken for empty ones."""
    transport = {"sep": ":"}
    shop = shops(transport, configuration={"broker_transport_options": transport})
    await shop.send("mail.send:1:0")
    server.cli("-n", "1", "del", "mail")
    for priority in priorities:
        await shop.send(f"mail.send:1:{priority}")
    other = {name: each for name, each in shop.options["redis"].items() if name != "sep"}
    [found] = await shop.ask((WAITING, "queue=mail"), redis=other | {"on_missing_queue": on_missing})
    assert "queue 'mail' is declared with another `sep`: give that of broker_transport_options" in message(found)


async def test_a_sep_that_the_application_once_had_is_none(shops: Shops, server: Server) -> None:
    shop = shops()
    await shop.send("mail.send:2:0")
    server.cli("-n", "1", "sadd", "_kombu.binding.mail", "mail::mail")
    assert [values(each) for each in await shop.ask((WAITING, "queue=mail"))] == [2]


async def test_celery_behind_a_sentinel(server: Server, tmp_path: Path, forks: Forks) -> None:
    server.cli("flushall")
    [port] = ports.free(1)
    monitored = {"sentinel monitor": f"main 127.0.0.1 {server.port} 1", "sentinel auth-pass": f"main {PASSWORD}"}
    sentinel = Server(tmp_path / "sentinel", port, monitored, sentinel=True)
    broker = {"sentinel": {"master": "main", "nodes": [f"127.0.0.1:{port}"], "database": 2}, "password": PASSWORD}
    broker |= {"trusted_hosts": ["127.0.0.1"]}
    transport = {"broker_transport_options": {"master_name": "main"}}
    with started(sentinel):
        url = f"sentinel://:{PASSWORD}@127.0.0.1:{port}/2"
        shop = Application(url, {"redis": broker}, tmp_path, forks, configuration=transport)
        await shop.send("mail.send:2:0", "mail.send:1:9")
        found, missing = await shop.ask((TASKS, "queue=mail"), (TASKS, "queue=reports"))
        [nobody] = await shop.ask((TASKS, "queue=mail"), members=(Member("pod-1"),), workers={"timeout": "20s"})
    assert "no worker listens to the broker" in message(nobody)
    assert values(found) == 3
    assert "queue 'reports' does not exist" in message(missing)


async def test_celery_in_one_slot_of_a_cluster(tmp_path: Path, forks: Forks) -> None:
    """Celery knows no clusters: it works with a node whose slot has all keys, by the braces in their prefix."""
    port, bus = ports.free(2)
    node = Server(tmp_path / "node", port, {"cluster-enabled": "yes", "cluster-port": bus})
    prefix = {"global_keyprefix": "{celery}:"}
    with started(node):
        node.cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        node.until("cluster_state:ok", "CLUSTER", "INFO")
        broker = {"cluster": {"nodes": [f"127.0.0.1:{port}"]}, **prefix}
        shop = Application(
            f"redis://127.0.0.1:{port}/0",
            {"redis": broker},
            tmp_path,
            forks,
            configuration={"broker_transport_options": prefix},
        )
        await shop.send("mail.send:3:0")
        assert "does not tell when it was sent" in message(*await shop.ask(("celery_head_age", "queue=mail")))
        mail, fetched = (TASKS, "queue=mail"), (FETCHED, "queue=mail")
        async with shop.worker("mail"):
            await shop.until(lambda found: found == [3, 2], mail, fetched)
            shop.gate.touch()
            await shop.until(lambda found: found == [0, 0], mail, fetched)


def test_a_cluster_needs_keys_of_one_slot() -> None:
    for prefix in ("", "celery:", "{}:"):
        with pytest.raises(msgspec.ValidationError, match="cluster: Celery uses keys of one hash slot only"):
            msgspec.convert({"cluster": {"nodes": ["a"]}, "global_keyprefix": prefix}, RedisBroker)


async def test_the_user_needs_the_documented_rights(shops: Shops, server: Server) -> None:
    shop = shops({"username": "reader"})
    await shop.send("mail.send:1:0")
    rights = ("+select", "+type", "+llen", "+hlen", "+hscan")
    server.cli("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", *rights)
    asked = ((TASKS, "queue=celery"), (TASKS, "queue=mail"))
    [denied, _] = await shop.ask(*asked)
    assert "SMEMBERS of the key '_kombu.binding.celery': NOPERM" in message(denied)
    server.cli("ACL", "SETUSER", "reader", "+smembers")
    missing, counted = await shop.ask(*asked)
    assert "queue 'celery' does not exist" in message(missing)
    assert values(counted) == 1
    server.cli("ACL", "SETUSER", "reader", "+eval", "+lindex")
    assert "does not tell when it was sent" in message(*await shop.ask(("celery_head_age", "queue=mail")))


@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
async def test_a_goal_in_seconds_is_measured_by_the_lists_and_the_workers(shops: Shops, late: bool) -> None:
    """A worker with two threads has ten tasks, of which it works on two; at the end none is left."""
    shop = shops(configuration={"task_acks_late": late})
    goal = (TO_CLEAR, "queue=mail,goal=60s,service_time=30s")
    [unasked] = await shop.ask(goal)
    assert "over Redis needs the setting `workers` of the source: the lengths of lists do not tell" in message(unasked)
    shop.options["workers"] = {"timeout": "20s"}
    await shop.send("mail.send:10:0")
    assert [values(each) for each in await shop.ask(goal)] == [5]
    async with shop.worker("mail"):
        active = ("celery_tasks_active", "queue=mail")
        await shop.until(lambda found: found[1] == 2 and 4 <= found[0] <= 8, goal, active)
        shop.gate.touch()
        await shop.until(lambda found: found == [0, 0], goal, (TASKS, "queue=mail"))


async def test_a_goal_needs_all_queues_of_a_worker_and_a_valid_selector(shops: Shops) -> None:
    shop = shops()
    shop.options["workers"] = {"timeout": "20s"}
    await shop.send("mail.send:1:0", "report:1:0")
    both = (TO_CLEAR, "queue in (mail,reports),goal=60s,service_time=1s")
    async with shop.worker("mail,reports"):
        await shop.until(lambda found: found == [2], ("celery_tasks_active", "queue in (mail,reports)"))
        alone, without, together = await shop.ask((TO_CLEAR, "queue=mail,goal=60s"), (TO_CLEAR, "queue=mail"), both)
        assert "works for 'reports' as well, and does not tell how many tasks of each queue" in message(alone)
        assert "ask for all its queues, queue in (mail,reports)" in message(alone)
        assert f"selector of External metric {TO_CLEAR}: goal: is missing" in message(without)
        assert values(together) == 2


async def test_tasks_of_a_worker_that_was_killed_need_a_worker(shops: Shops, server: Server) -> None:
    """Redis hands them out again, after the visibility timeout, if a worker asks for them."""
    shop = shops()
    shop.options["workers"] = {"timeout": "20s"}
    for queue in ("mail", "celery", "reports"):
        bind(server, queue, (queue, queue))
    goal = (TO_CLEAR, "queue=mail,goal=60s")
    [idle] = await shop.ask(goal)
    assert idle.values == (0,)
    hold(server, [entry("", "mail")])
    [left] = await shop.ask(goal)
    assert left.values == (1,)


async def test_the_age_of_the_oldest_waiting_task(shops: Shops, server: Server) -> None:
    """Of the property that a publisher writes; Celery writes none by itself. Each priority has a list."""
    shop, age = shops(), ("celery_head_age", "queue=mail")
    await shop.send("mail.send:1:0")
    [untold] = await shop.ask(age)
    assert "the oldest task of the list 'mail' does not tell when it was sent: the application" in message(untold)
    server.cli("-n", "1", "del", "mail")
    shop.tell_time()
    [empty] = await shop.ask(age)
    assert empty.values == (0,)
    await shop.send("mail.send:1:9")
    [told] = await shop.ask(age)
    assert 100 <= values(told) < 100 + SETTLED
    with client(server) as connected:
        connected.lpush("mail", json.dumps({"body": "x" * (1 << 20)}))
    [large] = await shop.ask(age)
    assert re.search(
        r"the oldest task of the list 'mail' has 10\d+ bytes, and at most 1048576 are read", message(large)
    )


async def test_fetched_tasks_of_other_queues_count_for_none_of_these(shops: Shops) -> None:
    """The hash of fetched tasks is that of all queues and applications of the database."""
    shop = shops()
    await shop.send("mail.send:2:0", "report:1:0")
    async with shop.worker("mail"):
        await shop.until(lambda found: found == [2], (FETCHED, "queue=mail"))
        others: dict[str, Any] = {"queues": ["reports"], "routes": {}}
        found = await shop.ask((TASKS, "queue=reports"), (WAITING, "queue=reports"), (TASKS, None), **others)
    assert [values(each) for each in found] == [1, 1, 1]


def entry(exchange: str | None, key: str | None, *more: object) -> str:
    return json.dumps([{"body": "x" * 1200, "properties": {"delivery_tag": "t"}}, exchange, key, *more])


def client(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port, db=1, password=PASSWORD)


def hold(server: Server, entries: Sequence[str]) -> None:
    """Writes entries into the hash of fetched tasks, beside or over those that are there."""
    with client(server) as connected:
        for start in range(0, len(entries), 1000):
            part = {f"tag-{number}": each for number, each in enumerate(entries[start : start + 1000], start)}
            connected.hset("unacked", mapping=part)


def bind(server: Server, exchange: str, *bindings: tuple[str, str]) -> None:
    """Notes bindings (routing key, queue), with the pattern that Celery writes between them and hpad does not read."""
    with client(server) as connected:
        connected.sadd(
            f"_kombu.binding.{exchange}", *("\x06\x16".join((key, "^pattern$", queue)) for key, queue in bindings)
        )


FOREIGN = [
    entry("socketio", ""),
    entry("socketio", None),
    entry("", "queue of another application"),
    entry("other", "mail.daily"),
    "not JSON",
    "{}",
    "[]",
    '["x", 1, 2]',
    '["x"]',
    "",
    "5",
]


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_an_entry_of_another_application_does_not_spoil_the_answer(
    shops: Shops, server: Server, foreign: str
) -> None:
    bind(server, "mail", ("mail", "mail"))
    bind(server, "reports", ("reports", "reports"))
    bind(server, "other", ("mail.*", "queue of another application"))
    bind(server, "celery", ("celery", "celery"))
    own = [entry("", "mail"), entry("", "mail", {"new": 1}), entry("mail", "mail"), entry(None, "reports")]
    hold(server, [*own, foreign])
    asked = ((FETCHED, "queue=mail"), (FETCHED, "queue=reports"), (FETCHED, None), (WAITING, "queue=mail"))
    assert [values(each) for each in await shops().read(*asked)] == [3, 1, 4, 0]


async def test_a_task_of_an_exchange_counts_for_the_queues_of_its_bindings(shops: Shops, server: Server) -> None:
    """Of a topic by wildcards, also of an exchange that the settings do not name; of several queues, for all alone."""
    for queue in ("celery", "mail", "reports"):
        bind(server, queue, (queue, queue))
    bind(server, "media", ("mail.#", "mail"), ("*.daily.*", "reports"), ("sums", "celery"))
    keys = ("mail.1", "mail.2.b", "x.daily.y", "sums", "nowhere", "reports.daily")
    hold(server, [entry("media", key) for key in keys])
    shop = shops()
    asked = ((FETCHED, "queue=mail"), (FETCHED, "queue=reports"), (FETCHED, "queue=celery"), (FETCHED, None))
    assert [values(each) for each in await shop.ask(*asked)] == [2, 1, 1, 4]
    hold(server, [entry("media", "mail.daily.1")])
    mail, reports, celery, every = await shop.ask(*asked)
    assert "may be of each of the queues 'mail', 'reports': ask for them together" in message(mail)
    assert "may be of each of the queues 'mail', 'reports': ask for them together" in message(reports)
    assert [values(celery), values(every)] == [1, 4]


async def test_a_large_hash_of_fetched_tasks_is_not_read(shops: Shops, server: Server) -> None:
    """Redis would be blocked while it writes 110,000 entries; their number is known all the same."""
    for queue in ("celery", "mail", "reports"):
        bind(server, queue, (queue, queue))
    asked = ((TASKS, "queue=mail"), (WAITING, "queue=mail"), (TASKS, None))
    shop = shops()
    hold(server, [entry("", "mail")] * MOST_ENTRIES)
    assert [values(each) for each in await shop.read(*asked)] == [MOST_ENTRIES, 0, MOST_ENTRIES]
    hold(server, [entry("", "mail")] * 3_000)
    server.cli("config", "resetstat")
    many, waiting, every = await shop.read(*asked)
    assert "workers have fetched 3000 tasks, too many to read whose they are (at most 2000 or 4 MiB)" in message(many)
    assert isinstance(many, AdapterError)
    assert many.blame == "spec"
    assert [values(waiting), values(every)] == [0, 3_000]
    assert sent(server) < 20 << 20
    hold(server, [entry("", "another application")] * 3_000)
    [mixed] = await shop.read((TASKS, None))
    assert "too many to read whose they are" in message(mixed)


async def test_large_tasks_are_read_up_to_a_limit(shops: Shops, server: Server) -> None:
    for queue in ("celery", "mail", "reports"):
        bind(server, queue, (queue, queue))
    hold(server, [json.dumps([{"body": "x" * 20_000}, "", "mail"])] * 400)
    many, every = await shops().read((TASKS, "queue=mail"), (TASKS, None))
    assert "workers have fetched 400 tasks, too many to read whose they are" in message(many)
    assert values(every) == 400
    hold(server, [json.dumps([{"body": "x" * 1_000_000}, "", "mail"])] * 40)
    [huge] = await shops().read((TASKS, "queue=mail"))
    assert "workers have fetched 400 tasks, too many to read whose they are" in message(huge)


def sent(server: Server) -> int:
    """The bytes that the server has sent since the last reset."""
    found = re.search(r"total_net_output_bytes:(\d+)", server.cli("info", "stats"))
    assert found
    return int(found[1])


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        (b"+list\r\n$-1\r\n*0\r\n*0\r\n", "the size of the key 'mail' is 'None', not a number"),
        (b"+list\r\n$0\r\n\r\n*0\r\n*0\r\n", "the size of the key 'mail' is '', not a number"),
        (b"$-1\r\n:0\r\n*0\r\n*0\r\n", "the key 'mail' is a None, not a list"),
        (b"+none\r\n:0\r\n*0\r\n*0\r\n", "queue 'mail' does not exist"),
        (b"+none\r\n:0\r\n*-1\r\n*0\r\n", "SMEMBERS of the key '_kombu.binding.mail' is not a list of texts"),
        (b"+none\r\n:0\r\n*1\r\n:5\r\n*0\r\n", "SMEMBERS of the key '_kombu.binding.mail' is not a list of texts"),
    ],
)
async def test_empty_replies_are_no_zero(replies: bytes, error: str) -> None:
    """The replies to TYPE and LLEN of the list, and to SMEMBERS of two exchanges."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.readuntil(b"_kombu.binding.celery")
            writer.write(replies)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as odd:
        url = f"redis://127.0.0.1:{odd.sockets[0].getsockname()[1]}"
        broker = {"url": url, "priority_steps": [0]}
        async with testing.context("celery") as context:
            adapter = Celery(msgspec.convert({"redis": broker}, Settings), context)
            [answer] = await adapter.answer([testing.external(WAITING, "queue=mail")])
    assert error in message(answer)


async def test_keys_of_another_type_and_foreign_entries_are_errors(shops: Shops, server: Server) -> None:
    server.cli("-n", "1", "set", "celery", "text")
    server.cli("-n", "1", "rpush", "mail", "task")
    server.cli("-n", "1", "hset", "unacked", "tag", "not of Celery", "deep", "[" * 9_999)
    server.cli("-n", "1", "set", "_kombu.binding.reports", "text")
    wrong, foreign, unbound = await shops().ask(
        (TASKS, "queue=celery"), (FETCHED, "queue=mail"), (TASKS, "queue=reports")
    )
    assert "the key 'celery' is a string, not a list" in message(wrong)
    assert "holds other entries than Celery's" in message(foreign)
    assert "SMEMBERS of the key '_kombu.binding.reports': WRONGTYPE" in message(unbound)


async def test_asking_workers_hands_out_no_task_again_and_leaves_nothing(shops: Shops, server: Server) -> None:
    """kombu as it comes restores tasks that workers hold for more than an hour, whatever the application has set."""
    shop = shops()
    await shop.send("mail.send:1:0")
    hold(server, [entry("", "mail")])
    server.cli("-n", "1", "zadd", "unacked_index", "1", "tag-0")
    before = server.cli("-n", "1", "keys", "*")
    with client(server) as connected, connected.pubsub() as mailbox:
        mailbox.psubscribe("/1.celery.pidbox")
        query = msgspec.structs.replace(testing.external(TASKS, "queue=mail"), members=(Member("pod-1"),))
        async with testing.context("celery") as context:
            source = shop.options | {"workers": {"timeout": "0.5s"}}
            adapter = Celery(msgspec.convert(source, Settings), context)
            with pytest.raises(AdapterError, match=r"no Celery worker answered within 0\.5s"):
                await adapter.answer([query])
            await adapter.aclose()
    assert server.cli("-n", "1", "zscore", "unacked_index", "tag-0") == "1"
    assert sorted(server.cli("-n", "1", "keys", "*").split()) == sorted(before.split())
