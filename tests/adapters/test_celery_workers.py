"""What Celery workers say: their answers, the pods that they run in, and the counts that they correct.

Real workers answer in test_celery.py.
"""

import json
import socket
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample, Member
from hpad_adapters.celery import Celery, Settings
from hpad_adapters.celery.by_word import TaskCounts, pod_work
from hpad_adapters.celery.reports import COMMANDS, Gathered
from hpad_adapters.celery.wanted import wanted
from hpad_adapters.celery.workers import SILENT_SECONDS, HeldTask, Said, WorkerReport, WorkersMemory

pytest.importorskip("kombu", reason="needs the extra celery")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RABBITMQ = {"url": "http://r:15672", "username": "u", "password": "pw"}


def info(task: str, **changed: Any) -> dict[str, Any]:
    delivery = {"exchange": "", "routing_key": "mail", "priority": 0, "redelivered": False}
    return {"id": task, "name": "mail.send", "args": "()", "time_start": None, "delivery_info": delivery, **changed}


def gathered(*answers: tuple[str, object]) -> Gathered:
    """The answers (command, what a worker says) of worker@pod-1, which answers the other commands with nothing."""
    found = Gathered()
    silent = [(command, {} if command == "stats" else []) for command in COMMANDS if command not in dict(answers)]
    for command, said in (*answers, *silent):
        found.add(command, json.dumps({"worker@pod-1": said}).encode(), plain=True)
    return found


def test_a_task_that_moves_on_between_two_answers_counts_once() -> None:
    found = gathered(
        ("scheduled", [{"eta": "", "priority": 6, "request": info("a")}, {"request": info("b")}]),
        ("reserved", [info("a"), info("c")]),
        ("active", [info("a", time_start=5.0, acknowledged=True)]),
        ("stats", {"total": {"mail.send": 4, "report": 3}, "pool": {"max-concurrency": 2}, "uptime": 60}),
    )
    [report] = found.reports(100.0)
    task = HeldTask("", "mail", "mail.send")
    assert report.active == (HeldTask("", "mail", "mail.send", acknowledged=True),)
    assert (report.reserved, report.later) == ((task,), (task,))
    assert (report.finished, report.concurrency, report.started) == (7, 2, 40.0)


@pytest.mark.parametrize(
    ("command", "said", "fault"),
    [
        ("active", {"error": "KeyError()"}, """'worker@pod-1' answers to active with '{"error": "KeyError()"}'"""),
        ("reserved", [{"name": "no id"}], "'worker@pod-1' answers to reserved with"),
        ("stats", {"total": {"mail": "many"}}, "'worker@pod-1' answers to stats with"),
        ("scheduled", None, "'worker@pod-1' answers to scheduled with 'null'"),
    ],
)
def test_a_malformed_answer_names_its_worker_and_spoils_no_other(command: str, said: object, fault: str) -> None:
    found = gathered((command, said))
    for each in COMMANDS:
        found.add(each, json.dumps({"other@pod-2": {} if each == "stats" else []}).encode(), plain=True)
    assert [report.name for report in found.reports(0.0)] == ["other@pod-2"]
    assert fault in found.faults["worker@pod-1"]


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"worker@pod-1": ' + b"[" * 9_999], ids=["list", "cut", "deep"])
def test_what_is_no_answer_is_a_fault(body: bytes) -> None:
    found = Gathered()
    found.add("active", body, plain=True)
    assert found.faults == {"": "an answer of a worker is no JSON object"}


def test_pickle_is_not_read() -> None:
    found = Gathered()
    found.add("active", b"\x80\x04cos\nsystem\n", plain=False)
    assert found.faults == {"": "a worker does not answer in JSON: set task_serializer to json"}


TASK = HeldTask("", "mail", "mail.send")


def report(name: str, active: int = 0, reserved: int = 0, later: int = 0) -> WorkerReport:
    return WorkerReport(name, (TASK,) * active, (TASK,) * reserved, (TASK,) * later)


def test_workers_belong_to_the_pod_of_their_host_name() -> None:
    """By name or first label, and by the 63 characters that are left of a long name; workers of a pod add up."""
    long = "w" * 60 + "-abcde"
    said = Said(
        NOW,
        (
            report("a@mail-1", 1, 2),
            report("b@mail-1", 3),
            report("a@mail-2.workers.shop.svc", 0, 0, 9),
            report(f"a@{long[:63]}", 7),
            report("a@elsewhere", 5),
        ),
        silent=("b@mail-4",),
    )
    members = [Member(name) for name in ("mail-1", "mail-2", "mail-3", "mail-4", long)]
    sample = pod_work(said, members)
    assert {pod: each.value // 1000 for pod, each in sample.values.items()} == {"mail-1": 6, "mail-2": 0, long: 7}


def test_a_pod_of_which_one_worker_is_silent_is_unknown() -> None:
    said = Said(NOW, (report("a@mail-1"), report("a@mail-2")), silent=("b@mail-1",))
    assert list(pod_work(said, [Member("mail-1"), Member("mail-2")]).values) == ["mail-2"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Said(NOW), "no worker listens to the broker"),
        (
            Said(NOW, (report("x@y"),), silent=tuple(f"w@mail-{each}" for each in range(5))),
            "workers w@mail-0, w@mail-1, w@mail-2 and 2 more do not answer",
        ),
        (Said(NOW, (report("celery@node-7"),)), 'none is named after a pod, as with "-n worker@$(POD_NAME)"'),
    ],
)
def test_pods_of_which_no_worker_answers_are_an_error(said: Said, why: str) -> None:
    with pytest.raises(AdapterError, match="do not say what they hold") as caught:
        pod_work(said, [Member(f"mail-{each}") for each in range(5)])
    assert why in caught.value.message


def count(said: Said, name: str, counted: int, selector: str | None = "queue=mail") -> tuple[int, str]:
    source = msgspec.convert(
        {"rabbitmq": RABBITMQ, "queues": ["mail"], "routes": {"mail.*": "mail"}, "workers": {"url": "amqp://r"}},
        Settings,
    )
    query = wanted(testing.external(name, selector), source)
    found = TaskCounts(source).corrected(query, said, ExternalSample((counted * 1000,), NOW, "of the broker"))
    return sum(found.values) // 1000, found.note


def test_a_worker_that_does_not_answer_is_silent_until_it_is_gone() -> None:
    memory, a, b = WorkersMemory(), report("a@pod-1"), report("b@pod-2")
    assert memory.silent((a, b), 0.0) == ()
    assert memory.silent((a,), SILENT_SECONDS + 1) == (b,)
    assert memory.silent((a,), SILENT_SECONDS + 2, gone=["b@pod-2"]) == ()
    assert memory.names == {"a@pod-1"}


def test_workers_that_are_all_gone_at_once_have_lost_their_connection_for_a_moment() -> None:
    memory, a, b = WorkersMemory(), report("a@pod-1"), report("b@pod-2")
    memory.silent((a, b), 0.0)
    assert memory.silent((), 5.0, gone=["a@pod-1", "b@pod-2"], none=True) == (a, b)
    assert memory.silent((), SILENT_SECONDS, none=True) == ()


def test_counts_are_those_of_the_broker_and_what_it_cannot_see() -> None:
    """Of a worker that is silent now, what it held last, but not what was not due then."""
    begun = msgspec.structs.replace(TASK, acknowledged=True)
    elsewhere = msgspec.structs.replace(begun, routing_key="reports")
    by_topic = msgspec.structs.replace(begun, exchange="media", routing_key="mail.daily")
    said = Said(
        NOW,
        (WorkerReport("a@mail-1", (TASK, begun, elsewhere, by_topic), (TASK,), (TASK, TASK)),),
        silent=("a@mail-2",),
        earlier=(WorkerReport("a@mail-2", (begun,), (TASK, TASK), (TASK,)),),
    )
    note = "of the broker; worker a@mail-2 does not answer"
    assert count(said, "celery_tasks", 10) == (10 - 2 + 3, note)
    assert count(said, "celery_tasks", 10, None) == (10 - 2 + 3, note)
    assert count(said, "celery_tasks_waiting", 4) == (4 + 3, note)
    assert count(said, "celery_tasks_active", 99) == (4, note)


THREADS = "celery.concurrency.thread:TaskPool"


@pytest.mark.parametrize(
    ("pool", "transport", "heartbeat", "seconds", "named"),
    [
        (THREADS, "amqp", 120.0, 130, True),
        (THREADS, "amqp", 120.0, 110, False),
        (THREADS, "amqp", 0, 130, False),
        (THREADS, "redis", 120.0, 130, False),
        ("celery.concurrency.prefork:TaskPool", "amqp", 120.0, 130, False),
    ],
    ids=["long", "short", "without heartbeats", "redis", "prefork"],
)
def test_long_tasks_that_may_run_twice_after_a_scale_down_are_named(
    pool: str, transport: str, heartbeat: float, seconds: int, *, named: bool
) -> None:
    """The answers of Celery 5.7, without what is not read."""
    broker = {"hostname": "rabbitmq", "transport": transport, "connect_timeout": 4, "heartbeat": heartbeat}
    stats = {"pool": {"implementation": pool, "max-concurrency": 2}, "uptime": 900, "broker": broker}
    active = [info("a", time_start=1000.0), info("b", time_start=990.0 + seconds), info("c")]
    said = Said(NOW, gathered(("active", active), ("stats", stats)).reports(1000.0 + seconds))
    hint = "worker worker@pod-1 sends no heartbeats while it shuts down, so that a long task may run twice: "
    assert said.note == (hint + "set broker_heartbeat = 0 in Celery" if named else "")


def test_a_worker_that_has_lost_the_broker_is_read() -> None:
    assert gathered(("stats", {"broker": "N/A"})).faults == {}


def test_a_task_whose_queue_cannot_be_told_is_an_error() -> None:
    strange = HeldTask("media", "video.daily", "video.cut", acknowledged=True)
    with pytest.raises(AdapterError, match=r"the queue of a task 'video.cut' of the exchange 'media' is not known"):
        count(Said(NOW, (WorkerReport("a@b", (strange,)),)), "celery_tasks", 1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rabbitmq": RABBITMQ, "workers": {}}, 'url: is missing: the address of AMQP, such as "amqp://rabbitmq:5672"'),
        ({"rabbitmq": RABBITMQ, "workers": {"url": "http://r:15672"}}, "url: 'http://r:15672' is not of the form"),
        ({"rabbitmq": RABBITMQ, "workers": {"url": "amqp://r/shop"}}, "url: ends in a path: write the vhost as vhost"),
        ({"rabbitmq": RABBITMQ, "workers": {"url": "amqp://r?heartbeat=9"}}, "url: ends in a query or fragment"),
        ({"rabbitmq": RABBITMQ, "workers": {"url": "amqp://r", "ca": "/ca"}}, "ca: has an effect with amqps:// only"),
        ({"rabbitmq": RABBITMQ, "workers": {"url": "amqp://u:pw@r"}}, "url: contains credentials"),
        (
            {"rabbitmq": {"url": "http://r"}, "workers": {"url": "amqp://r"}},
            "username: is missing: the workers are asked",
        ),
        (
            {"rabbitmq": RABBITMQ, "workers": {"url": "amqp://r", "password": "pw"}},
            "username: is missing, but a password",
        ),
        ({"rabbitmq": RABBITMQ, "workers": {"url": "amqp://r", "username": "u"}}, 'password: is missing for user "u"'),
        ({"redis": {"url": "redis://r"}, "workers": {"url": "redis://r"}}, "url: "),
        ({"redis": {"url": "redis://r"}, "workers": {"username": "u"}}, "username: over Redis that of `redis` is used"),
        ({"redis": {"url": "redis://r"}, "workers": {"timeout": "0s"}}, "timeout: '0s' is not a duration above zero"),
        (
            {"redis": {"cluster": {"nodes": ["a"]}, "global_keyprefix": "{c}:"}, "workers": {}},
            "remote control does not work on a Redis Cluster",
        ),
    ],
)
def test_invalid_settings_of_workers_are_named(options: dict[str, Any], error: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(options, Settings)
    assert error in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("kind", ["amqp", "redis"])
async def test_a_broker_that_hangs_holds_one_thread_and_no_query(kind: str) -> None:
    """It takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        at = f"127.0.0.1:{hanging.getsockname()[1]}"
        workers = {"timeout": "0.2s"}
        options: dict[str, Any] = {"redis": {"url": f"redis://{at}", "password": "pw"}, "workers": workers}
        if kind == "amqp":
            options = {"rabbitmq": RABBITMQ, "workers": workers | {"url": f"amqp://{at}"}}
        query = msgspec.structs.replace(testing.external("celery_tasks", "queue=mail"), members=(Member("a"),))
        async with testing.context("celery") as context:
            adapter = Celery(msgspec.convert(options, Settings), context)
            for _ in range(3):
                with pytest.raises(AdapterError, match=rf"{at} .*(did not answer|in time|hangs)"):
                    await adapter.answer([query])
                assert [each.name for each in threading.enumerate()].count("hpad-celery") <= 1
            await adapter.aclose()
