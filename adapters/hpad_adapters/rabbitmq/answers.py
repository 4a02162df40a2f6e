"""What is asked of the management API, and its answers: queues and pages of queues.

An odd value is a fault of its queue alone, not of the page.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from hpad.adapter import AdapterError
from hpad.adapter_http import UNDECODABLE, decoded
from hpad_adapters.rabbitmq.broker import NotFoundError, RabbitmqBroker
from hpad_adapters.rabbitmq.queues import LONGEST_NAME, RabbitmqQueue, possible
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup

# The columns of the management API that are read, and what a broker keeps at all.
#
# Only what is read is requested, because the samples of a rate are long. Source: HTTP API reference of the
# rabbitmq_management plugin.

COUNTED = (
    "name,vhost,type,state,leader,messages,messages_ready,messages_unacknowledged,"
    "arguments.x-single-active-consumer,arguments.x-max-priority"
)
_RATES = ("publish", "deliver_get", "ack")
_SAMPLES = (
    "message_stats.publish_details.samples",
    "message_stats.ack_details.samples",
    "messages_unacknowledged_details.samples",
)
_SPACING_SECONDS = 5


class Overview(msgspec.Struct):
    """`rates_mode` is "none" where the broker keeps no rates; `disable_stats` where it keeps no statistics at all."""

    rates_mode: str
    disable_stats: bool | None = None

    @property
    def keeps_rates(self) -> bool:
        """Whether the broker keeps rates."""
        return self.rates_mode != "none" and not self.disable_stats

    @property
    def keeps_statistics(self) -> bool:
        """Whether the broker says that it keeps statistics."""
        return self.disable_stats is False


_OVERVIEW = msgspec.json.Decoder(Overview)


async def overview(broker: RabbitmqBroker, vhost: str) -> Overview:
    """Returns what the broker says of itself; errors name `vhost`. Raises AdapterError."""
    body = await broker.get("/api/overview", {"columns": "rates_mode,disable_stats"}, vhost=vhost)
    return decoded(_OVERVIEW, body, str(broker), "an overview")


class ClusterNode(msgspec.Struct, frozen=True):
    """A node of the broker; one that keeps no statistics has no `rates_mode`."""

    name: str
    running: bool = False
    rates_mode: str = ""


_NODES = msgspec.json.Decoder(list[ClusterNode])


async def running_nodes(broker: RabbitmqBroker, vhost: str) -> list[ClusterNode]:
    """Returns the nodes that run; errors name `vhost`. Raises AdapterError."""
    try:
        body = await broker.get("/api/nodes", {"columns": "name,running,rates_mode"}, vhost=vhost)
    except NotFoundError:
        raise AdapterError(f"{broker} does not list its nodes") from None
    return [node for node in decoded(_NODES, body, str(broker), "a list of nodes") if node.running]


def statistics_columns(settings: Settings) -> Mapping[str, str]:
    """Returns the parameters for rates, consumers, growth and age."""
    part = "samples" if settings.smoothing else "avg_rate"
    rates = [f"message_stats.{event}_details.{part}" for event in _RATES]
    columns = ("consumers", "consumer_capacity", "head_message_timestamp", "messages_details.avg_rate", *rates)
    return _over(settings, columns)


def sample_columns(settings: Settings) -> Mapping[str, str]:
    """Returns the parameters for the samples from which the time of a message is measured."""
    return _over(settings, ("consumers", *_SAMPLES))


def _over(settings: Settings, columns: tuple[str, ...]) -> Mapping[str, str]:
    age = str(int(settings.rate_span.total_seconds()))
    return {
        "columns": ",".join((COUNTED, *columns)),
        **{f"{kind}_age": age for kind in ("msg_rates", "lengths")},
        **{f"{kind}_incr": str(_SPACING_SECONDS) for kind in ("msg_rates", "lengths")},
    }


# The filter by name of RabbitMQ's lists, which makes the broker leave out most other queues.

_LONGEST_FILTER = 1024
"""Bytes of a regular expression that RabbitMQ accepts from 4.2.6 on (rabbit_mgmt_util.erl: MAX_FILTER_LENGTH)."""
_AROUND = "^(?:{})$"
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")


def name_filter(lookup: Lookup) -> Mapping[str, str]:
    """Returns the parameters that make the broker leave out most other queues; names must fit into one filter.

    The broker ignores case, matches a part of a name in bytes, and has another dialect of expressions. So it gets only
    names, or the literal prefixes of patterns, and its list is filtered again here.
    """
    if not lookup.patterns:
        return _by_name(_AROUND.format("|".join(sorted(map(re.escape, filter(possible, lookup.names))))))
    prefixes = sorted({_prefix(each.pattern) for each in lookup.patterns})
    expression = f"^(?:{'|'.join(prefixes)})"
    return _by_name(expression) if all(prefixes) and len(expression) <= _LONGEST_FILTER else {}


def chunks(names: Iterable[str]) -> list[frozenset[str]]:
    """Returns the names in sets that each fit into one filter; at least one set."""
    found, chunk, free = list[frozenset[str]](), set[str](), _LONGEST_FILTER - len(_AROUND)
    for name in sorted(filter(possible, names)):
        length = len(re.escape(name).encode()) + 1
        if length > free:
            found.append(frozenset(chunk))
            chunk, free = set(), _LONGEST_FILTER - len(_AROUND)
        chunk.add(name)
        free -= length
    return [*found, frozenset(chunk)]


def _by_name(expression: str) -> Mapping[str, str]:
    return {"name": expression, "use_regex": "true"}


def _prefix(expression: str) -> str:
    """Returns a text with which each match of the expression begins; "" where it is not obvious."""
    if "|" in expression or "(?" in expression:
        return ""
    found = _LITERAL.match(expression)
    prefix = found.group() if found else ""
    # A quantifier that allows zero makes the last character optional.
    prefix = prefix[:-1] if expression[len(prefix) : len(prefix) + 1] in ("*", "?", "{") else prefix
    return prefix[:LONGEST_NAME]


_LONGEST_SHOWN = 40
_ABSENT = (b'""', b"null")
"""What RabbitMQ writes for what it does not know."""


class QueuePage(msgspec.Struct, frozen=True):
    """A page of a list; brokers before 3.7 report no `filtered_count`."""

    items: list[RabbitmqQueue]
    page_count: int
    filtered_count: int | None = None


class _RawPage(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    page_count: int
    filtered_count: int | None = None


_QUEUE = msgspec.json.Decoder(RabbitmqQueue)
_PAGE = msgspec.json.Decoder(_RawPage)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OWN_FIELDS = ("fault", "lacking")
_FIELDS: dict[str, msgspec.json.Decoder[Any]] = {
    each.name: msgspec.json.Decoder(each.type)
    for each in msgspec.structs.fields(RabbitmqQueue)
    if each.name not in _OWN_FIELDS
}


def page_of(body: bytes, name: str, most: int) -> QueuePage:
    """Returns a page of at most so many queues; raises AdapterError, which names the broker, for anything else."""
    page = decoded(_PAGE, body, name, "a list of queues")
    if len(page.items) > most:
        raise AdapterError(f"{name} answered {len(page.items)} queues on a page of {most}")
    return QueuePage([queue_of(bytes(item), name) for item in page.items], page.page_count, page.filtered_count)


def queue_of(body: bytes, name: str) -> RabbitmqQueue:
    """Returns a queue; one with values that cannot be used lacks them, and says so as its fault.

    Raises AdapterError, which names the broker, for anything that is no queue.
    """
    try:
        return _QUEUE.decode(body)
    except UNDECODABLE:
        fields = decoded(_OBJECT, body, name, "a queue")
    usable, odd = dict[str, Any](), list[str]()
    for field, decoder in _FIELDS.items():
        raw = bytes(fields.get(field, b"null"))
        try:
            usable |= {field: decoder.decode(raw)} if raw not in _ABSENT else {}
        except UNDECODABLE:
            odd.append(f"{field} is {_cut(raw)}")
    if not usable.get("name"):
        raise AdapterError(f"{name} answered something other than a queue")
    return RabbitmqQueue(**usable, fault=", ".join(odd))


def _cut(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


# Remembers the leader of each quorum queue: until a new one has counted, it reports the queue as empty.
#
# Where a broker keeps no statistics, nothing else tells such a zero from an empty queue. Where it does, the lengths
# that it has collected belong to a node, so that all messages seem to leave the old one, or to be new on the other one.

COUNTED_SECONDS = 10.0
"""The time after which a leader has counted, which it does every five seconds (quorum_tick_interval)."""
_MOST = 1 << 15
"""Queues that are remembered; beyond, all are forgotten, and known again after the next reading."""
_ALWAYS = float("-inf")


class Leaders:
    """The leaders by vhost and queue. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[tuple[str, str], tuple[str, float]] = {}

    def note(self, queues: Iterable[RabbitmqQueue]) -> None:
        """Remembers the leaders that these queues have now."""
        for queue in queues:
            leader, _ = self._since.get((queue.vhost, queue.name), ("", _ALWAYS))
            if not queue.leader or queue.leader == leader:
                continue
            if len(self._since) >= _MOST:
                self._since.clear()
            self._since[queue.vhost, queue.name] = (queue.leader, self._monotonic() if leader else _ALWAYS)

    def has_counted(self, queue: RabbitmqQueue) -> bool:
        """Returns whether the leader is not known to be new."""
        return not self.moved_within(queue, COUNTED_SECONDS)

    def moved_within(self, queue: RabbitmqQueue, seconds: float) -> bool:
        """Returns whether another node is known to have become the leader in this time."""
        _, since = self._since.get((queue.vhost, queue.name), ("", _ALWAYS))
        return self._monotonic() - since < seconds
