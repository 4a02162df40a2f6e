"""Queues by `/metrics/detailed` of rabbitmq_prometheus (RabbitMQ 3.9): one request tells of all queues of a vhost.

The families queue_coarse_metrics and queue_consumer_count are among the cheapest of it. The numbers are as old as the
broker's own collection, five seconds at most. There is no 404 here: an unknown vhost is one without queues. RabbitMQ
3.10 writes names as they are, quotes and all; later ones escape them as the text format of Prometheus has it.

Each node tells of the queues alone that it leads. So all nodes are asked: what none of them has is missing only if all
have answered, and an address where now this, now that node answers can tell nothing. For some seconds after a change of
its leader nobody tells of a quorum queue; so one that was there a moment ago is not missing yet.
"""

import re
from collections.abc import Mapping

import msgspec

from hpad.adapter import AdapterError, Context
from hpad_adapters.rabbitmq.broker import TEXT, Broker, NoAnswer, NotFound
from hpad_adapters.rabbitmq.modes import ANY_VHOST
from hpad_adapters.rabbitmq.queue import NotAsAWhole, Queue, Sought
from hpad_adapters.rabbitmq.settings import Settings

PATH = "/metrics/detailed"
_FAMILIES = (("family", "queue_coarse_metrics"), ("family", "queue_consumer_count"))
_FIELDS = {
    "rabbitmq_detailed_queue_messages": "messages",
    "rabbitmq_detailed_queue_messages_ready": "messages_ready",
    "rabbitmq_detailed_queue_messages_unacked": "messages_unacknowledged",
    "rabbitmq_detailed_queue_consumers": "consumers",
}
_IDENTITY = re.compile(r'^rabbitmq_identity_info\{rabbitmq_node="(?P<node>[^"\n]*)"', re.MULTILINE)
_LONGEST_LINE = 2048
_MOMENT_SECONDS = 30.0
_LINE = re.compile(r'[a-z_]+\{vhost="(?P<vhost>.*?)",queue="(?P<queue>.*)"\} (?P<value>\d[\d.]*(?:e\+?\d+)?)')
_ESCAPED = re.compile(r'(?:[^"\\]|\\["\\n])*')
_ESCAPE = re.compile(r"\\(.)")
_Place = tuple[str, str]


class Detailed:
    """Reads queues of one broker."""

    def __init__(self, broker: Broker, settings: Settings, context: Context) -> None:
        self._broker = broker
        self._clock = context.clock
        self._seen: dict[_Place, float] = {}
        self._max_queues = settings.max_queues
        self._names: dict[str, str] = {}

    async def read(self, vhost: str, sought: Sought) -> list[Queue]:
        """The queues that exist; those of "*" are of any vhost, and nothing is known of those that a node that did not
        answer may have. Raises AdapterError."""
        vhosts = () if vhost == ANY_VHOST else (("vhost", vhost),)
        try:
            told = await self._broker.get_each(PATH, (*vhosts, *_FAMILIES), vhost=vhost, content_type=TEXT)
        except NotFound:
            raise AdapterError(f"{self._broker} has no {PATH}: it needs RabbitMQ 3.9 and rabbitmq_prometheus") from None
        silent = [answer for answer in told.values() if isinstance(answer, NoAnswer)]
        if silent and (sought.patterns or len(silent) == len(told)):
            raise NotAsAWhole("; ".join(error.message for error in silent))
        try:
            nodes = {url: answer.decode() for url, answer in told.items() if not isinstance(answer, NoAnswer)}
            found = self._merged(nodes, vhost, sought)
        except ValueError:
            raise AdapterError(f"{self._broker} answered something else than metrics of queues") from None
        if len(found) > self._max_queues:
            raise NotAsAWhole(f"{self._broker} tells of more than {self._max_queues} queues (max_queues)")
        doubtful = self._lately(vhost, sought) | ({(vhost, name) for name in sought.names} if silent else set())
        self._seen |= dict.fromkeys(found, self._clock.monotonic())
        return [*found.values(), *(Queue(name, where) for where, name in doubtful - found.keys())]

    def _lately(self, vhost: str, sought: Sought) -> set[_Place]:
        """The queues that were told of a moment ago."""
        oldest = self._clock.monotonic() - _MOMENT_SECONDS
        self._seen = {place: at for place, at in self._seen.items() if at >= oldest}
        return {(where, name) for where, name in self._seen if vhost in (where, ANY_VHOST) and sought.holds(name)}

    def _merged(self, nodes: Mapping[str, str], vhost: str, sought: Sought) -> dict[_Place, Queue]:
        """The queues of all nodes; raises ValueError for what are no metrics, AdapterError for a node in disguise."""
        found: dict[_Place, Queue] = {}
        by_name: dict[str, str] = {}
        for url, text in nodes.items():
            node = by_name.setdefault(self._identified(url, text), url)
            for queue in _queues(text, vhost, sought) if node == url else ():
                place = queue.vhost, queue.name
                found[place] = queue.without_counts() if place in found else queue  # it changes hands this very moment
        return found

    def _identified(self, url: str, text: str) -> str:
        """The name of the node that answered there; its address, where it does not say."""
        told = _IDENTITY.search(text)
        name = self._names.setdefault(url, told["node"] if told else url)
        if told and name != told["node"]:
            self._names[url] = told["node"]
            raise AdapterError(
                f"at {url} several nodes of a cluster answer by turns ({name}, {told['node']}), each of which tells of "
                "its own queues alone: write the address of each node under url"
            )
        return name

    async def aclose(self) -> None:
        """Nothing of its own is open."""


def _queues(text: str, vhost: str, sought: Sought) -> list[Queue]:
    """Raises ValueError for what is no exposition of such metrics."""
    numbers: dict[tuple[str, str], dict[str, int]] = {}
    lines = text.split("\n")
    if not any(line.startswith("# TYPE rabbitmq_") for line in lines):
        raise ValueError("no metrics of RabbitMQ")
    for line in lines:
        field = _FIELDS.get(line.partition("{")[0])
        if field is None:
            continue
        where, name, value = _sample(line)
        if not sought.holds(name) or vhost not in (where, ANY_VHOST):
            continue
        counts = numbers.setdefault((where, name), {})
        if field in counts:  # a name with a line break can look like another queue's line
            raise ValueError("told twice")
        counts[field] = value
    return [
        msgspec.convert({"name": name, "vhost": where, **counts}, Queue) for (where, name), counts in numbers.items()
    ]


def _sample(line: str) -> tuple[str, str, int]:
    """Vhost, queue and value; two names are 255 bytes each at most, and the pattern is only quick for short lines."""
    found = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
    if found is None:
        raise ValueError(line)
    value = float(found["value"])
    if not value.is_integer():
        raise ValueError(line)
    return _plain(found["vhost"]), _plain(found["queue"]), int(value)


def _plain(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if _ESCAPED.fullmatch(text) else text


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
