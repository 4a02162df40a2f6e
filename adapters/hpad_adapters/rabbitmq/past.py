"""The PromQL by which a Prometheus that scrapes the plugin rabbitmq_prometheus knows the past of a queue.

The plugin names series of single queues at /metrics/per-object (also /metrics with return_per_object_metrics) and at
/metrics/detailed, where the families queue_coarse_metrics, queue_delivery_metrics and queue_exchange_metrics are needed
(RabbitMQ 3: channel_queue_metrics and channel_queue_exchange_metrics). Seen in 3.10.8 and 4.0.5. Each node counts the
queues that it leads, so the nodes are added up.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from hpad.adapter import AdapterError, PastPromQL
from hpad_adapters.rabbitmq.plugin import PREFIX
from hpad_adapters.rabbitmq.values import QueueQuery

_PREFIXES: Final = ("rabbitmq_", PREFIX)
_GAUGES: Final = {
    "messages": ("queue_messages_ready", "queue_messages_unacked"),
    "ready": ("queue_messages_ready",),
    "unacked": ("queue_messages_unacked",),
    "consumers": ("queue_consumers",),
}
"""The series of a mode, which are added up. `queue_messages` also counts what no consumer can get."""
_BACKLOGS: Final = ("messages", "ready")
Counter = tuple[tuple[str, str], ...]
"""Names of series of which the first that exists counts, each with its label of the vhost: RabbitMQ 4 counts by queue,
earlier versions by channel."""
_PUBLISHED: Final[Counter] = (
    ("queue_exchange_messages_published_total", "vhost"),
    ("queue_messages_published_total", "queue_vhost"),
)
_ACKED: Final[Counter] = (("queue_messages_acked_total", "vhost"), ("channel_messages_acked_total", "vhost"))
_COUNTERS: Final = {"publish_rate": _PUBLISHED, "ack_rate": _ACKED}
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def past(query: QueueQuery, window: timedelta) -> PastPromQL:
    """Returns the PromQL of the queues. Raises AdapterError for what the plugin does not count by queue."""
    if query.pattern is not None:
        text = "the queues of a pattern are not known by their names"
        raise AdapterError(f"{text}: write their PromQL into the series file", "spec")
    if query.mode in _GAUGES:
        values = _first([_added(query, prefix) for prefix in _PREFIXES])
        flows = query.mode in _BACKLOGS and (query.aggregate == "sum" or len(query.queues) * len(query.vhosts) == 1)
        rates = [_rate(query, counter, window) if flows else "" for counter in (_PUBLISHED, _ACKED)]
        return PastPromQL(values, *rates)
    if query.mode in _COUNTERS and query.aggregate == "sum":
        return PastPromQL(_rate(query, _COUNTERS[query.mode], window))
    raise AdapterError(f"RabbitMQ exports no series of {query.mode}: write its PromQL into the series file", "spec")


def _added(query: QueueQuery, prefix: str) -> str:
    """Returns the sum of the gauges of a mode, over the queues or reduced otherwise."""
    if query.aggregate == "sum":
        return " + ".join(f"sum({prefix}{name}{{{_matchers(query)}}})" for name in _GAUGES[query.mode])
    each = (f"sum by (vhost, queue) ({prefix}{name}{{{_matchers(query)}}})" for name in _GAUGES[query.mode])
    return f"{query.aggregate}({' + '.join(each)})"


def _rate(query: QueueQuery, counter: Counter, window: timedelta) -> str:
    length = f"{window // timedelta(seconds=1)}s"
    return _first(
        [
            f"sum(rate({prefix}{name}{{{_matchers(query, vhost)}}}[{length}]))"
            for name, vhost in counter
            for prefix in _PREFIXES
        ]
    )


def _first(expressions: Sequence[str]) -> str:
    """Returns an expression with the value of the first one that has one."""
    return " or ".join(expressions)


def _matchers(query: QueueQuery, vhost: str = "vhost") -> str:
    return f"{_one_of(vhost, query.vhosts)},{_one_of('queue', query.queues)}"


def _one_of(label: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f'{label}="{values[0].translate(_ESCAPES)}"'
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)
    return f'{label}=~"{pattern.translate(_ESCAPES)}"'
