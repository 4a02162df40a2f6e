"""Queues and their depths: single reads for a few, one shared list of the vhost for many.

The list with `disable_stats` and `enable_queue_totals` (RabbitMQ 3.8) counts as of now and costs the broker least. A
single queue has such totals since 3.13; before that its counts come from statistics that are up to five seconds old and
absent until the first collection, so that the list is asked for those names instead: counts of different ages, one
after the other, would look like a queue that drains and fills. HTTP API reference of the rabbitmq_management plugin.
"""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, TypeVar
from urllib.parse import quote

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq.broker import Broker, NotFound

FEW = 3
PAGE_SIZE = 500  # the most that RabbitMQ gives
MAX_PAGES = 40

_COLUMNS = {"columns": "name,messages,messages_ready,messages_unacknowledged"}
_TOTALS = {"disable_stats": "true", "enable_queue_totals": "true"}

_Count = Annotated[int, msgspec.Meta(ge=0)]
_T = TypeVar("_T")


class Queue(msgspec.Struct, frozen=True):
    """The counts are None where the broker did not give them."""

    name: str
    messages: _Count | None = None
    messages_ready: _Count | None = None
    messages_unacknowledged: _Count | None = None

    @property
    def complete(self) -> bool:
        """Whether all counts are there."""
        return None not in (self.messages, self.messages_ready, self.messages_unacknowledged)


class _Page(msgspec.Struct, frozen=True):
    items: list[Queue]
    page_count: int


_QUEUE = msgspec.json.Decoder(Queue)
_PAGE = msgspec.json.Decoder(_Page)


class Queues:
    """Reads queues of one broker, and remembers which sorts of counts it offers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._list_parameters: Mapping[str, str] = _TOTALS
        self._single_totals = True

    async def read(self, vhost: str, names: Collection[str]) -> dict[str, Queue]:
        """The queues of those names, by name; one that does not exist is absent. Raises AdapterError."""
        if len(names) <= FEW and self._single_totals:
            found = [await self._single(vhost, name) for name in names]
            if all(queue is None or queue.complete for queue in found):
                return {queue.name: queue for queue in found if queue is not None}
            self._single_totals = False
        return await self._listed(vhost, names)

    async def _single(self, vhost: str, name: str) -> Queue | None:
        path = f"/api/queues/{quote(vhost, safe='')}/{quote(name, safe='')}"
        try:
            body = await self._broker.get(path, {**_TOTALS, **_COLUMNS}, vhost=vhost)
        except NotFound:
            return None
        return self._decoded(_QUEUE, body, "a queue")

    async def _listed(self, vhost: str, names: Collection[str]) -> dict[str, Queue]:
        """Page through the vhost until all names are found; for a few, the broker leaves out the other queues."""
        sought, found, page, pages = set(names), dict[str, Queue](), 1, 1
        while sought - found.keys() and page <= pages:
            answer = await self._page(vhost, page, _pattern(names))
            found.update((queue.name, queue) for queue in answer.items if queue.name in sought)
            page, pages = page + 1, answer.page_count
            if pages > MAX_PAGES:
                raise AdapterError(
                    f'vhost "{vhost}" of {self._broker} has more than {MAX_PAGES * PAGE_SIZE} queues: that is too many'
                )
        return found

    async def _page(self, vhost: str, page: int, pattern: Mapping[str, str]) -> _Page:
        answer = await self._get_page(vhost, page, pattern)
        if self._list_parameters and answer.items and not any(queue.complete for queue in answer.items):
            self._list_parameters = {}
            answer = await self._get_page(vhost, page, pattern)
        return answer

    async def _get_page(self, vhost: str, page: int, pattern: Mapping[str, str]) -> _Page:
        parameters = {"page": str(page), "page_size": str(PAGE_SIZE), **pattern, **self._list_parameters, **_COLUMNS}
        try:
            body = await self._broker.get(f"/api/queues/{quote(vhost, safe='')}", parameters, vhost=vhost)
        except NotFound:
            raise AdapterError(f'vhost "{vhost}" does not exist at {self._broker}', "spec") from None
        return self._decoded(_PAGE, body, "a list of queues")

    def _decoded(self, decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise AdapterError(f"{self._broker} answered something else than {what}") from None


def _pattern(names: Collection[str]) -> Mapping[str, str]:
    """The parameters that select a few names; the broker ignores case, so what it gives is looked at again."""
    if len(names) > FEW:
        return {}
    return {"name": f"^(?:{'|'.join(re.escape(name) for name in sorted(names))})$", "use_regex": "true"}
