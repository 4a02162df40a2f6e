"""Decodes queues and pages of queues. An odd value is a fault of its queue alone, not of the page."""

from typing import Any

import msgspec

from hpad.adapter import AdapterError
from hpad.adapter_http import decoded
from hpad_adapters.rabbitmq.queues import Queue

_LONGEST_SHOWN = 40
_ABSENT = (b'""', b"null")
"""What RabbitMQ writes for what it does not know."""


class Page(msgspec.Struct, frozen=True):
    """A page of a list; brokers before 3.7 report no `filtered_count`."""

    items: list[Queue]
    page_count: int
    filtered_count: int | None = None


class _RawPage(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    page_count: int
    filtered_count: int | None = None


_QUEUE = msgspec.json.Decoder(Queue)
_PAGE = msgspec.json.Decoder(Page)
_RAW_PAGE = msgspec.json.Decoder(_RawPage)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_FIELDS: dict[str, msgspec.json.Decoder[Any]] = {
    each.name: msgspec.json.Decoder(each.type) for each in msgspec.structs.fields(Queue) if each.name != "fault"
}


def page_of(body: bytes, name: str, most: int) -> Page:
    """Returns a page of at most so many queues; raises AdapterError, which names the broker, for anything else."""
    try:
        page: Page | _RawPage = _PAGE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        page = decoded(_RAW_PAGE, body, name, "a list of queues")
    if len(page.items) > most:
        raise AdapterError(f"{name} answered {len(page.items)} queues on a page of {most}")
    items = [item if isinstance(item, Queue) else queue_of(bytes(item), name) for item in page.items]
    return Page(items, page.page_count, page.filtered_count)


def queue_of(body: bytes, name: str) -> Queue:
    """Returns a queue; one with values that cannot be used lacks them, and says so as its fault.

    Raises AdapterError, which names the broker, for anything that is no queue.
    """
    try:
        return _QUEUE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = decoded(_OBJECT, body, name, "a queue")
    usable, odd = dict[str, Any](), list[str]()
    for field, decoder in _FIELDS.items():
        raw = bytes(fields.get(field, b"null"))
        try:
            usable |= {field: decoder.decode(raw)} if raw not in _ABSENT else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            odd.append(f"{field} is {_cut(raw)}")
    if not usable.get("name"):
        raise AdapterError(f"{name} answered something other than a queue")
    return Queue(**usable, fault=", ".join(odd))


def _cut(raw: bytes) -> str:
    text = raw.decode(errors="replace")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
