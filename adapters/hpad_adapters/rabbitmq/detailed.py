"""Queues by `/metrics/detailed` of rabbitmq_prometheus (RabbitMQ 3.9): one request tells of all queues of a vhost.

The families queue_coarse_metrics and queue_consumer_count are among the cheapest of it. The numbers are as old as the
broker's own collection, five seconds at most. There is no 404 here: an unknown vhost is one without queues. RabbitMQ
3.10 writes names as they are, quotes and all; later ones escape them as the text format of Prometheus has it.
"""

import re

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq.broker import TEXT, Broker, NotFound
from hpad_adapters.rabbitmq.modes import ANY_VHOST
from hpad_adapters.rabbitmq.queue import Queue, Sought
from hpad_adapters.rabbitmq.settings import Settings

PATH = "/metrics/detailed"
_FAMILIES = (("family", "queue_coarse_metrics"), ("family", "queue_consumer_count"))
_FIELDS = {
    "rabbitmq_detailed_queue_messages": "messages",
    "rabbitmq_detailed_queue_messages_ready": "messages_ready",
    "rabbitmq_detailed_queue_messages_unacked": "messages_unacknowledged",
    "rabbitmq_detailed_queue_consumers": "consumers",
}
_LONGEST_LINE = 2048
_LINE = re.compile(r'[a-z_]+\{vhost="(?P<vhost>.*?)",queue="(?P<queue>.*)"\} (?P<value>\d[\d.]*(?:e\+?\d+)?)')
_ESCAPED = re.compile(r'(?:[^"\\]|\\["\\n])*')
_ESCAPE = re.compile(r"\\(.)")


class Detailed:
    """Reads queues of one broker."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._max_queues = settings.max_queues

    async def read(self, vhost: str, sought: Sought) -> list[Queue]:
        """The queues that exist; those of "*" are of any vhost. Raises AdapterError."""
        vhosts = () if vhost == ANY_VHOST else (("vhost", vhost),)
        try:
            body = await self._broker.get(PATH, (*vhosts, *_FAMILIES), vhost=vhost, content_type=TEXT)
        except NotFound:
            raise AdapterError(f"{self._broker} has no {PATH}: it needs RabbitMQ 3.9 and rabbitmq_prometheus") from None
        try:
            found = _queues(body.decode(), vhost, sought)
        except ValueError:
            raise AdapterError(f"{self._broker} answered something else than metrics of queues") from None
        if len(found) > self._max_queues:
            raise AdapterError(f"{self._broker} tells of more than {self._max_queues} queues (max_queues)")
        return found

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
