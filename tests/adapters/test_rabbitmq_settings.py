"""Settings and selectors of the rabbitmq adapter, and their errors."""

import re

import pytest

from hpad import settings, testing
from hpad.adapter import AdapterError
from hpad.sources import plugins
from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.rabbitmq import Metric, RabbitMQ, Settings
from hpad_adapters.rabbitmq.metric import OwnQueues
from hpad_adapters.rabbitmq.queries import queue_query
from hpad_adapters.rabbitmq.values import QueueQuery

URL = "http://rabbitmq:15672"
TOKENS = {"token_url": "https://login/token", "client_id": "hpad", "client_secret": "hunter2"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "url: is missing"),
        (
            {"url": "http://guest:hunter2@rabbitmq"},
            "url: contains credentials: write them as settings",
        ),
        ({"url": "amqp://rabbitmq:5672"}, "url: an AMQP address; write that of the management API"),
        ({"url": "rabbitmq:15672"}, "url: 'rabbitmq:15672' is not of the form"),
        ({"url": "http://"}, "is not of the form"),
        ({"url": "http://rabbitmq:port"}, "url: is not a URL"),
        ({"url": "http://rabbitmq/?x=1"}, "url: ends in a query"),
        ({"url": []}, "url: the list is empty"),
        ({"url": [URL, ""]}, "url: '' is not of the form"),
        ({"url": [URL, "http://u:hunter2@b"]}, "url: contains credentials"),
        ({"url": URL, "username": "u"}, 'password: is missing for user "u"'),
        ({"url": URL, "password": "hunter2"}, "username: is missing, but a password is given"),
        (
            {"url": URL, "username": "u", "password": "hunter2", "password_env": "X"},
            "password_env: give one of password, password_file and password_env",
        ),
        ({"url": URL, "username": "a:b", "password": "hunter2"}, "a user name with a colon"),
        ({"url": URL, "key": "k.pem"}, "key: there is a key, but no cert"),
        ({"url": URL, "request_timeout": "5"}, "'5' is not a duration"),
        ({"url": URL, "request_timeout": "0s"}, "is not a duration above zero"),
        ({"url": URL, "headers": {"X": "a\r\nEvil: hunter2"}}, "a line break or control character cannot be part"),
        ({"url": URL, "vhots": "/"}, "vhots: unknown field; did you mean 'vhosts'?"),
        ({"url": URL, "source": "amqp"}, 'is not of the form "amqp://rabbitmq:5672"'),
        ({"url": "amqp://rabbitmq/prod", "source": "amqp"}, "url: ends in a path: write the vhost as vhost"),
        ({"url": "amqp://r", "source": "amqp", "metrics": {"m": {"mode": "ack_rate"}}}, "source amqp has no ack_rate"),
        (
            {"url": URL, "metrics": {"m": {"queue": "q", "mode": "messages", "goal": "60s"}}},
            "goal: belongs to time_to_clear and workers_to_clear, not to messages",
        ),
        (
            {"url": URL, "metrics": {"m": {"stream": "s", "group": "g", "mode": "lag", "service_time": "1s"}}},
            "service_time: belongs to workers_to_clear, not to lag",
        ),
        ({"url": URL, "source": "auto"}, "metrics_url: is missing; write the address of the plugin on each node"),
        ({"url": URL, "metrics_url": URL}, "metrics_url: belongs to source: auto, and this is source: management"),
        ({"url": URL, "source": "auto", "metrics_url": "mq"}, "metrics_url: 'mq' is not of the form"),
        ({"url": f"{URL}/metrics", "source": "prometheus"}, "url: ends in /metrics; leave that out"),
        ({"url": URL, "source": "prometheus", "metrics": {"m": {"mode": "head_age"}}}, "prometheus has no head_age"),
        ({"url": URL, "proxy": "http://u:hunter2@proxy"}, "proxy: contains credentials"),
        ({"url": URL, "rate_window": "1s"}, "rate_window: '1s' is not between 5s and 10m"),
        ({"url": URL, "smoothing": 1.5}, "smoothing: 1.5 is not a number <= 1"),
        ({"url": URL, "page_size": 501}, "page_size: 501 is not a whole number <= 500"),
        ({"url": URL, "connect_timeout": "0s"}, "connect_timeout: '0s' is not a duration above zero"),
        ({"url": URL, "headers": {"X": {"file": "a", "env": "B"}}}, "give one of file and env"),
        ({"url": URL, "metrics": {"m": {"queue": "a", "queues": ["b"]}}}, "queues: write only one of queue and queues"),
        ({"url": URL, "patterns": {"m": "("}}, "patterns: m: '(' is not a regular expression"),
        ({"url": URL, "metrics": {"m": {"queue_regex": "("}}}, "is not a regular expression"),
        ({"url": URL, "metrics": {"m": {"queue_regex": "a[[:digit:]]"}}}, "Python has no [:digit:]"),
        ({"url": URL, "metrics": {"m": {"exclude_regex": "a"}}}, "leaves out queues of a queue_regex"),
        ({"url": URL, "metrics": {"m": {"queue": "a", "vhost": "*"}}}, "stands for all vhosts and needs a queue_regex"),
        (
            {"url": URL, "metrics": {"m": {"mode": "drain_time", "aggregate": "sum"}}},
            "a sum of drain_time has no meaning",
        ),
        ({"url": URL, "metrics": {"m": {"mode": "length"}}}, "metrics.m.mode: 'length' is not one of ack_rate"),
        ({"url": URL, "metrics": {"m": {"goal": "60"}}}, "goal: '60' is not a duration"),
        ({"url": URL, "metrics": {"m": {"goal": "0s"}}}, "goal: '0s' is not a duration above zero"),
        ({"url": URL, "metrics": {"m": {"goal": "60s", "startup": "60s"}}}, "startup: '60s' is not between 0s and the"),
        ({"url": URL, "metrics": {"m": {"goal": "60s", "service_time": "2"}}}, "service_time: '2' is not a duration"),
        ({"url": URL, "metrics": {"m": {"prefetch": 0}}}, "prefetch: 0 is not a whole number >= 1"),
        ({"url": URL, "bearer_token_file": "t", "oauth2": TOKENS}, "not two of them"),
        ({"url": URL, "oauth2": {**TOKENS, "client_secret_env": "X"}}, "give one of client_secret"),
        ({"url": URL, "oauth2": {**TOKENS, "token_url": "http://u:hunter2@login"}}, "token_url: contains credentials"),
        ({"url": URL, "insecure": "yes"}, "insecure: 'yes' is not true or false"),
    ],
)
def test_errors_name_the_setting_and_repeat_no_password(options, error):
    source = settings.SourceSettings(name="shop", adapter="rabbitmq", settings=options)
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source, Settings)
    assert caught.value.message.startswith('source "shop" (adapter "rabbitmq"): ')
    assert error in caught.value.message
    assert "hunter2" not in caught.value.message


def test_the_text_of_settings_holds_no_password():
    assert "hunter2" not in repr(Settings(url=URL, username="u", password="hunter2"))


@pytest.mark.parametrize(
    ("name", "selector", "expected"),
    [
        ("queue_messages", "queue=orders", QueueQuery(vhosts=("/",), queues=("orders",), mode="messages")),
        ("queue_messages", "queue==orders", QueueQuery(vhosts=("/",), queues=("orders",), mode="messages")),
        ("queue_messages", "queue in (orders)", QueueQuery(vhosts=("/",), queues=("orders",), mode="messages")),
        ("queue_messages_ready", "queue=orders", QueueQuery(vhosts=("/",), queues=("orders",), mode="ready")),
        (
            "queue_messages_unacknowledged",
            "queue=orders,vhost=eu",
            QueueQuery(vhosts=("eu",), queues=("orders",), mode="unacked"),
        ),
        ("queue_messages", "queue=orders,mode=ready", QueueQuery(vhosts=("/",), queues=("orders",), mode="ready")),
        ("backlog", "queue=orders,mode=unacked", QueueQuery(vhosts=("/",), queues=("orders",), mode="unacked")),
        ("backlog", "queue=orders", QueueQuery(vhosts=("/",), queues=("orders",), mode="messages")),
        ("backlog", "queue=odd,vhost=slash", QueueQuery(vhosts=("a/b",), queues=("ö ü",), mode="messages")),
    ],
)
def test_the_selector_names_queue_vhost_and_mode(name, selector, expected):
    configured = Settings(url=URL, vhosts={"slash": "a/b"}, queues={"odd": "ö ü"})
    assert queue_query(testing.external(name, selector), configured) == expected


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        (
            None,
            "names no queue: write it in the metric's selector, such as matchLabels: {queue: worker_tasks}",
        ),
        ("", "names no queue"),
        ("vhost=a", "names no queue"),
        (
            "queue=a,tier=b",
            '"tier" is not a parameter of metrics of queues; the parameters are queue, vhost, mode',
        ),
        ("queue=a,vhost in (a,b)", "write one value, such as vhost=production"),
        ("queue=a,aggregate=median", 'there is no aggregate "median"; there are sum, max, avg, min'),
        ("queue=a,mode=drain_time,aggregate=sum", "a sum of drain_time has no meaning"),
        ("queue_regex=a", 'there is no pattern "a"; hpad\'s configuration offers none'),
        ("queue=a,vhost=all", "only hpad's configuration can name all vhosts"),
        ("queue!=a", "write one value, such as queue=orders"),
        ("queue", "write one value, such as queue=orders"),
        ("queue=a,queue=b", '"queue" occurs twice'),
        ("queue=a,mode=workers_to_clear", "goal: is missing; write the time in which the backlog is to be gone"),
        ("queue=a,goal=60s", '"goal" belongs to time_to_clear and workers_to_clear, not to messages'),
        (
            "queue=a,mode=time_to_clear,goal=60s,prefetch=many",
            "prefetch: 'many' is not a whole number from 1 to 100000",
        ),
        ("queue=a,mode=time_to_clear,goal=60s,aggregate=sum", "a sum of time_to_clear has no meaning"),
        ("queue=a,mode=fast", 'there is no mode "fast"; there are messages, ready, unacked'),
    ],
)
def test_an_invalid_selector_blames_the_spec(selector, error):
    with pytest.raises(AdapterError) as caught:
        queue_query(testing.external("queue_messages", selector), Settings(url=URL, vhosts={"all": "*"}))
    assert caught.value.blame == "spec"
    assert error in caught.value.message
    assert '"queue_messages"' in caught.value.message


METRICS = {
    "shop": Metric(queue_regex="shop-.*", exclude_regex=".*-dead", mode="drain_time", aggregate="avg"),
    "two": Metric(queues=["a", "b"], vhost=["eu", "us"], include_unacked=False, on_missing_queue="zero"),
    "open": Metric(mode="consumers"),
    "minute": Metric(mode="workers_to_clear", goal="60s", prefetch=4),
}


@pytest.mark.parametrize(
    ("name", "selector", "expected"),
    [
        ("two", None, QueueQuery(vhosts=("eu", "us"), queues=("a", "b"), mode="ready", include_unacked=False,
                             on_missing_queue="zero")),
        ("two", "aggregate=max", QueueQuery(vhosts=("eu", "us"), queues=("a", "b"), mode="ready", include_unacked=False,
                                        on_missing_queue="zero", aggregate="max")),
        ("open", "queue in (a,b),vhost=eu", QueueQuery(vhosts=("eu",), queues=("a", "b"), mode="consumers")),
        ("shop", "vhost=eu", QueueQuery(vhosts=("eu",), pattern=re.compile("shop-.*"), exclude=re.compile(".*-dead"),
                                    mode="drain_time", aggregate="avg")),
        ("minute", "queue=a,startup=15s", QueueQuery(queues=("a",), mode="workers_to_clear",
                                                     goal=ClearingGoal(60.0, startup=15.0, prefetch=4))),
        ("free", "queue=a,mode=drain_time", QueueQuery(queues=("a",), mode="drain_time", aggregate="max")),
        ("free", "queue_regex=shop", QueueQuery(pattern=re.compile("a-.."))),
    ],
)  # fmt: skip
def test_a_selector_sets_what_the_metric_leaves_open(name, selector, expected):
    assert (
        queue_query(testing.external(name, selector), Settings(url=URL, metrics=METRICS, patterns={"shop": "a-.."}))
        == expected
    )


@pytest.mark.parametrize(
    ("name", "selector", "error"),
    [
        ("two", "queue=c", '"queue" is set for this metric by hpad\'s configuration; leave it out'),
        ("two", "vhost=c", '"vhost" is set for this metric'),
        ("shop", "queue=c", '"queue" is set for this metric'),
        ("shop", "mode=ready", '"mode" is set for this metric'),
        ("shop", "queue_regex=c", '"queue_regex" is set for this metric'),
        ("minute", "queue=listed,goal=1h", '"goal" is set for this metric'),
        ("open", "queue=unlisted", 'the queue "unlisted" is not one that hpad'),
        ("open", "queue=listed,vhost=unlisted", 'the vhost "unlisted" is not one that hpad'),
        ("open", "queue_regex=a", 'there is no pattern "a"; hpad\'s configuration offers shop'),
        ("open", "queue_regex=shop,queue=listed", "write queue or queue_regex, not both"),
    ],
)
def test_a_selector_cannot_exceed_the_configuration(name, selector, error):
    confined = Settings(
        url=URL, metrics=METRICS, only_queues=True, only_vhosts=True, queues={"listed": "q"}, patterns={"shop": "a"}
    )
    with pytest.raises(AdapterError) as caught:
        queue_query(testing.external(name, selector), confined)
    assert caught.value.blame == "spec"
    assert error in caught.value.message


async def test_an_instance_offers_its_configured_metrics(rabbit):
    adapter = RabbitMQ(Settings(url=URL, metrics=METRICS), rabbit)
    assert set(plugins.offered("shop", adapter)) == {
        "queue_messages", "queue_messages_ready", "queue_messages_unacknowledged", "shop", "two", "open", "minute",
        "queue_workers_to_clear", "queue_time_to_clear", "queue_growth", "queue_head_age",
        "stream_lag", "stream_workers_to_clear",
    }  # fmt: skip


def test_an_autoscaler_names_queues_within_what_the_settings_offer():
    confined = Settings(url=URL, queues={"mail": "tasks:mail"}, only_queues=True, vhosts={"all": "*"})
    own = testing.own_query(OwnQueues(queues=["mail"], mode="ready"))
    plan = queue_query(own, confined)
    assert (plan.queues, plan.vhosts, plan.mode) == (("tasks:mail",), ("/",), "ready")
    for metric, error in (
        (OwnQueues(queue="jobs"), 'the queue "jobs" is not one that hpad\'s configuration offers'),
        (OwnQueues(queue="mail", vhost="all"), "only hpad's configuration can name all vhosts"),
    ):
        with pytest.raises(AdapterError, match=error):
            queue_query(testing.own_query(metric), confined)
