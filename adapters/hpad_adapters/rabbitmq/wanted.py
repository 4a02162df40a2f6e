"""Which number of which queue a query means."""

import msgspec

from hpad.adapter import AdapterError, Operator, Query
from hpad_adapters.rabbitmq.settings import Settings

METRICS = {
    "queue_messages": "messages",
    "queue_messages_ready": "messages_ready",
    "queue_messages_unacknowledged": "messages_unacknowledged",
}
"""Metric name -> field of the management API."""

_MODES = {
    "messages": "messages",
    "ready": "messages_ready",
    "unacked": "messages_unacknowledged",
    "messages_ready": "messages_ready",
    "messages_unacknowledged": "messages_unacknowledged",
}
_PARAMETERS = ("queue", "vhost", "mode")
_EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)


class Wanted(msgspec.Struct, frozen=True):
    """A queue by its real names, and the field to read."""

    vhost: str
    queue: str
    field: str


def wanted(query: Query, settings: Settings) -> Wanted:
    """Read a query's selector: `queue` (needed), `vhost` and `mode`; raises AdapterError saying what to write.

    Without `mode` the metric's name decides, and a name of the operator's own (by a route) means all messages.
    """
    given = _parameters(query)
    if "queue" not in given:
        raise AdapterError(
            f'External metric "{query.name}" does not say which queue: write it in the metric\'s selector, '
            "such as matchLabels: {queue: worker_tasks}",
            "spec",
        )
    vhost = settings.vhosts.get(given["vhost"], given["vhost"]) if "vhost" in given else settings.vhost
    queue = settings.queues.get(given["queue"], given["queue"])
    return Wanted(vhost, queue, _field(query, given.get("mode")))


def _parameters(query: Query) -> dict[str, str]:
    given: dict[str, str] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        if term.key not in _PARAMETERS:
            raise _wrong(query, f'"{term.key}" is no parameter of rabbitmq; there are {", ".join(_PARAMETERS)}')
        if term.operator not in _EQUALITY or len(term.values) != 1:
            raise _wrong(query, f'"{term}": write one value, such as {term.key}={_example(term.key)}')
        if given.setdefault(term.key, term.values[0]) != term.values[0]:
            raise _wrong(query, f'"{term.key}" is given twice')
    return given


def _field(query: Query, mode: str | None) -> str:
    if mode is None:
        return METRICS.get(query.name, "messages")
    if mode not in _MODES:
        raise _wrong(query, f'there is no mode "{mode}"; there are {", ".join(_MODES)}')
    return _MODES[mode]


def _example(key: str) -> str:
    return {"queue": "worker_tasks", "vhost": "production"}.get(key, "ready")


def _wrong(query: Query, what: str) -> AdapterError:
    return AdapterError(f'selector of External metric "{query.name}": {what}', "spec")
