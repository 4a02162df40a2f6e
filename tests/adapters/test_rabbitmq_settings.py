"""What an operator and an HPA's author may write, and what they are told when it is wrong."""

import pytest

from hpad import settings, testing
from hpad.adapter import AdapterError
from hpad.gather import registry
from hpad_adapters.rabbitmq import Settings
from hpad_adapters.rabbitmq.wanted import Wanted, wanted

URL = "http://rabbitmq:15672"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "url: Object missing required field"),
        (
            {"url": "http://guest:hunter2@rabbitmq"},
            "url: carries a user name or password; write them as username",
        ),
        ({"url": "amqp://rabbitmq:5672"}, "url: is for AMQP; the management API is needed"),
        ({"url": "rabbitmq:15672"}, "url: must begin with http:// or https:// and name a host"),
        ({"url": "http://"}, "url: must begin with"),
        ({"url": "http://rabbitmq:port"}, "url: not a URL"),
        ({"url": "http://rabbitmq/?x=1"}, "url: ends in a query"),
        ({"url": []}, "url: the list is empty"),
        ({"url": [URL, "http://u:hunter2@b"]}, "url: carries a user name"),
        ({"url": URL, "username": "u"}, 'password: is missing for user "u"'),
        ({"url": URL, "password": "hunter2"}, "username: is missing, but password is given"),
        (
            {"url": URL, "username": "u", "password": "hunter2", "password_env": "X"},
            "password and password_env are given",
        ),
        ({"url": URL, "username": "a:b", "password": "hunter2"}, "a user name with a colon"),
        ({"url": URL, "key": "k.pem"}, "key: there is a key, but no cert"),
        ({"url": URL, "request_timeout": "5"}, "'5' is not a duration"),
        ({"url": URL, "request_timeout": "0s"}, "is not a duration above zero"),
        ({"url": URL, "headers": {"X": "a\r\nEvil: hunter2"}}, "a line break cannot be part of a header"),
        ({"url": URL, "vhots": "/"}, "unknown field `vhots`"),
        ({"url": URL, "insecure": "yes"}, "insecure: Expected `bool`, got `str` (value: 'yes')"),
    ],
)
def test_wrong_settings_are_named_and_no_password_is_repeated(given, complaint):
    source = settings.SourceSettings(name="shop", adapter="rabbitmq", settings=given)
    with pytest.raises(AdapterError) as caught:
        registry.decode(source, Settings)
    assert caught.value.message.startswith('source "shop" (adapter "rabbitmq"): ')
    assert complaint in caught.value.message
    assert "hunter2" not in caught.value.message


def test_settings_never_show_the_password():
    assert "hunter2" not in repr(Settings(url=URL, username="u", password="hunter2"))


@pytest.mark.parametrize(
    ("name", "selector", "expected"),
    [
        ("queue_messages", "queue=orders", Wanted("/", "orders", "messages")),
        ("queue_messages", "queue==orders", Wanted("/", "orders", "messages")),
        ("queue_messages", "queue in (orders)", Wanted("/", "orders", "messages")),
        ("queue_messages_ready", "queue=orders", Wanted("/", "orders", "messages_ready")),
        ("queue_messages_unacknowledged", "queue=orders,vhost=eu", Wanted("eu", "orders", "messages_unacknowledged")),
        ("queue_messages", "queue=orders,mode=ready", Wanted("/", "orders", "messages_ready")),
        ("backlog", "queue=orders,mode=unacked", Wanted("/", "orders", "messages_unacknowledged")),
        ("backlog", "queue=orders", Wanted("/", "orders", "messages")),
        ("backlog", "queue=odd,vhost=slash", Wanted("a/b", "ö ü", "messages")),
    ],
)
def test_the_selector_names_queue_vhost_and_mode(name, selector, expected):
    configured = Settings(url=URL, vhosts={"slash": "a/b"}, queues={"odd": "ö ü"})
    assert wanted(testing.external(name, selector), configured) == expected


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        (
            None,
            "which queue: write it in the metric's selector, such as matchLabels: {queue: worker_tasks}",
        ),
        ("", "does not say which queue"),
        ("vhost=a", "does not say which queue"),
        ("queue=a,tier=b", '"tier" is no parameter of rabbitmq; there are queue, vhost, mode'),
        ("queue in (a,b)", "write one value, such as queue=worker_tasks"),
        ("queue!=a", "write one value, such as queue=worker_tasks"),
        ("queue", "write one value, such as queue=worker_tasks"),
        ("queue=a,queue=b", '"queue" is given twice'),
        ("queue=a,mode=fast", 'there is no mode "fast"; there are messages, ready, unacked'),
    ],
)
def test_a_query_that_cannot_be_meant_is_the_specs_fault(selector, complaint):
    with pytest.raises(AdapterError) as caught:
        wanted(testing.external("queue_messages", selector), Settings(url=URL))
    assert caught.value.blame == "spec"
    assert complaint in caught.value.message
    assert '"queue_messages"' in caught.value.message
