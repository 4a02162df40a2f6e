"""Queues by the management API: single reads for a few, one shared list of the vhost for many.

The list with `disable_stats` and `enable_queue_totals` (RabbitMQ 3.8) counts as of now and costs the broker least. A
single queue has such totals since 3.13, and streams may have none at all; then the counts come from statistics, which
are up to five seconds old and absent until the first collection. For classic and quorum queues the list is asked
instead: counts of different ages, one after the other, would look like a queue that drains and fills. Rates, consumers
and their capacity are statistics in any case. HTTP API reference of the rabbitmq_management plugin.

Some of what brokers (3.10) say is not what it seems, for some seconds or as long as a node is down. A quorum queue
whose leader has changed, or was restarted, has zero messages in the totals until its leader has counted; its statistics
then lack its state and consumers, whatever count they give. (Brokers that keep no statistics are believed.) A queue
whose node is down is 404 by itself; lists have it, as one that is "down", without totals, which must not be taken for a
broker that knows none. Lists with totals leave out queues that do not answer in time, such as quorum queues without a
leader; those without totals and statistics have all there are.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq.broker import Broker, NotFound
from hpad_adapters.rabbitmq.modes import ANY_VHOST
from hpad_adapters.rabbitmq.queue import QUORUM, NotAsAWhole, Queue, Sought
from hpad_adapters.rabbitmq.settings import Settings

FEW = 3
STREAM = "stream"

_COUNTED = "name,vhost,type,state,messages,messages_ready,messages_unacknowledged"
_TOTALS = {"disable_stats": "true", "enable_queue_totals": "true", "columns": _COUNTED}
_ALL = {"disable_stats": "true", "columns": "name,vhost,type,state"}
_RATES = ("publish", "deliver_get", "ack")
_SPACING_SECONDS = 5
_TRIES = 3
_LONGEST_FILTER = 5000
"""Characters of a URL, of which RabbitMQ takes 8000."""
_DOTS = frozenset({".", ".."})
"""Names that no path can end in."""
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")
_T = TypeVar("_T")


class _Page(msgspec.Struct, frozen=True):
    items: list[Queue]
    page_count: int
    filtered_count: int | None = None


_QUEUE = msgspec.json.Decoder(Queue)
_PAGE = msgspec.json.Decoder(_Page)


class Management:
    """Reads queues of one broker, and remembers which sorts of counts it offers."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._page_size = settings.page_size
        self._max_queues = settings.max_queues
        self._statistics = _statistics(settings)
        self._totals = True
        self._single_totals = True

    async def read(self, vhost: str, sought: Sought) -> list[Queue]:
        """The queues that exist; those of "*" are of any vhost. Raises AdapterError."""
        if sought.statistics:
            return await self._with_statistics(vhost, sought)
        if self._few(vhost, sought) and self._single_totals and self._totals:
            found = await self._each(vhost, sought.names, _TOTALS)
            if not any(map(_untold, found)):
                return await self._completed(vhost, found)
            self._single_totals = False
        return await self._counted(vhost, sought)

    async def aclose(self) -> None:
        """Nothing of its own is open."""

    async def _counted(self, vhost: str, sought: Sought) -> list[Queue]:
        if self._totals:
            found = await self._listed(vhost, sought, _TOTALS)
            found += await self._left_out(vhost, sought, found)
            if any(queue.complete for queue in found) or not any(map(_untold, found)):
                return await self._completed(vhost, found)
        found = await self._with_statistics(vhost, sought)
        self._totals = self._totals and not any(queue.complete and queue.type != STREAM for queue in found)
        return found

    async def _left_out(self, vhost: str, sought: Sought, found: list[Queue]) -> list[Queue]:
        """Queues that are there, but not among those with totals."""
        if vhost != ANY_VHOST and not sought.patterns and sought.names <= {queue.name for queue in found}:
            return []
        places = set(map(_place, found))
        there = await self._listed(vhost, sought, _ALL)
        return [Queue(each.name, each.vhost, each.type, "down") for each in there if _place(each) not in places]

    async def _completed(self, vhost: str, found: list[Queue]) -> list[Queue]:
        """With the counts that only statistics have: those of streams, in RabbitMQ 3.10, and of doubtful queues."""
        lacking = frozenset(queue.name for queue in found if _lacks(queue))
        if not lacking:
            return found
        known = {_place(queue): queue for queue in await self._with_statistics(vhost, Sought(names=lacking))}
        return [_better(queue, known.get(_place(queue))) if _lacks(queue) else queue for queue in found]

    async def _with_statistics(self, vhost: str, sought: Sought) -> list[Queue]:
        if self._few(vhost, sought):
            found = await self._each(vhost, sought.names, self._statistics)
        else:
            found = await self._listed(vhost, sought, self._statistics)
        return [queue.without_counts() if _uncounted(queue) else queue for queue in found]

    def _few(self, vhost: str, sought: Sought) -> bool:
        return vhost != ANY_VHOST and not sought.patterns and len(sought.names) <= FEW and not sought.names & _DOTS

    async def _each(self, vhost: str, names: Iterable[str], parameters: Mapping[str, str]) -> list[Queue]:
        """One by one; who is not there may be down, which the list tells."""
        read = {name: await self._single(vhost, name, parameters) for name in names}
        absent = frozenset(name for name, queue in read.items() if queue is None)
        listed = await self._listed(vhost, Sought(names=absent), _ALL) if absent else []
        return [*(queue for queue in read.values() if queue is not None), *listed]

    async def _single(self, vhost: str, name: str, parameters: Mapping[str, str]) -> Queue | None:
        path = f"/api/queues/{quote(vhost, safe='')}/{quote(name, safe='')}"
        try:
            body = await self._broker.get(path, parameters, vhost=vhost)
        except NotFound:
            return None
        return _believed(self._decoded(_QUEUE, body, "a queue"))

    async def _listed(self, vhost: str, sought: Sought, parameters: Mapping[str, str]) -> list[Queue]:
        """By a list; names among more queues than that may have, by lists of those alone."""
        try:
            return await self._view(vhost, sought, parameters)
        except NotAsAWhole:
            if sought.patterns or _by_names(sought.names):
                raise
        chunks = (Sought(names=names) for names in _chunks(sought.names))
        return [queue for chunk in chunks for queue in await self._view(vhost, chunk, parameters)]

    async def _view(self, vhost: str, sought: Sought, parameters: Mapping[str, str]) -> list[Queue]:
        """All pages, as one view: a queue that goes while they are read would move another one out of sight."""
        for _ in range(_TRIES):
            found = await self._pages(vhost, sought, {**_filter(sought), **parameters})
            if found is not None:
                return found
        raise AdapterError(f"the queues of {self._of(vhost)} changed {_TRIES} times while their pages were read")

    async def _pages(self, vhost: str, sought: Sought, parameters: Mapping[str, str]) -> list[Queue] | None:
        """Until all names are found, or to the end; None where the pages do not make up a whole."""
        seen, found, counts = set[tuple[str, str]](), list[Queue](), set[int | None]()
        missing, page, pages = set(sought.names), 1, 1
        while page <= pages:
            answer = await self._page(vhost, page, parameters)
            self._check_size(vhost, answer)
            new = [queue for queue in answer.items if _place(queue) not in seen]
            seen.update(map(_place, new))
            found += (_believed(queue) for queue in new if sought.holds(queue.name))
            missing.difference_update(queue.name for queue in new)
            counts.add(answer.filtered_count)
            if not missing and not sought.patterns and vhost != ANY_VHOST:
                return found
            page, pages = page + 1, answer.page_count
        return found if counts in ({None}, {len(seen)}) else None

    def _check_size(self, vhost: str, answer: _Page) -> None:
        count = answer.filtered_count if answer.filtered_count is not None else len(answer.items)
        if count > self._max_queues or (answer.page_count - 1) * self._page_size >= self._max_queues:
            raise NotAsAWhole(
                f"{self._of(vhost)} has more than {self._max_queues} queues to look at (max_queues): a part of them "
                "would be a wrong number"
            )

    async def _page(self, vhost: str, page: int, parameters: Mapping[str, str]) -> _Page:
        path = "/api/queues" if vhost == ANY_VHOST else f"/api/queues/{quote(vhost, safe='')}"
        numbered = {"page": str(page), "page_size": str(self._page_size), **parameters}
        try:
            body = await self._broker.get(path, numbered, vhost=vhost)
        except NotFound:
            raise AdapterError(f'vhost "{vhost}" does not exist at {self._broker}', "spec") from None
        return self._decoded(_PAGE, body, "a list of queues")

    def _of(self, vhost: str) -> str:
        return f"{self._broker}" if vhost == ANY_VHOST else f'vhost "{vhost}" of {self._broker}'

    def _decoded(self, decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise AdapterError(f"{self._broker} answered something else than {what}") from None


def _statistics(settings: Settings) -> Mapping[str, str]:
    """Only the columns that are read, of which the samples of a rate are the most; the spacing is the broker's own."""
    part = "samples" if settings.smoothing else "avg_rate"
    rates = [f"message_stats.{event}_details.{part}" for event in _RATES]
    return {
        "columns": ",".join((_COUNTED, "consumers", "consumer_capacity", *rates)),
        "msg_rates_age": str(int(settings.rate_span.total_seconds())),
        "msg_rates_incr": str(_SPACING_SECONDS),
    }


def _believed(queue: Queue) -> Queue:
    """Of a quorum queue that is "down" the broker says that it has no messages."""
    return queue.without_counts() if queue.away else queue


def _untold(queue: Queue) -> bool:
    """Whether the broker could give totals of such a queue, but does not."""
    return not (queue.complete or queue.type == STREAM or queue.away)


def _uncounted(queue: Queue) -> bool:
    """Whether statistics of a quorum queue are without what its leader tells, whatever they are made of."""
    return queue.type == QUORUM and not queue.state and queue.consumers is None


def _lacks(queue: Queue) -> bool:
    """Whether statistics may know more of a queue than its totals say."""
    if queue.type == QUORUM:
        return queue.messages == 0
    return queue.type == STREAM and not queue.complete


def _better(queue: Queue, known: Queue | None) -> Queue:
    """What statistics know of a queue in place of its totals, unless the broker keeps none: then it says "live"."""
    if known is None:
        return queue.without_counts()
    return queue if queue.type == QUORUM and known.state and not known.complete else known


def _place(queue: Queue) -> tuple[str, str]:
    return queue.vhost, queue.name


def _filter(sought: Sought) -> Mapping[str, str]:
    """What lets the broker leave out most other queues.

    It ignores case, matches a part of a name, in bytes, and by other rules than ours: so it is told no more than names,
    as many as a URL can carry, or the text that a pattern begins with, and what it gives is looked at again.
    """
    if not sought.patterns:
        return _by_names(sought.names)
    if not sought.names and len(sought.patterns) == 1:
        [pattern] = sought.patterns
        prefix = _prefix(pattern.pattern)
        return _by_name(f"^{prefix}") if prefix else {}
    return {}


def _by_names(names: Iterable[str]) -> Mapping[str, str]:
    """Empty for too many of them."""
    escaped = sorted(map(re.escape, names))
    return _by_name(f"^(?:{'|'.join(escaped)})$") if sum(map(_weight, escaped)) <= _LONGEST_FILTER else {}


def _chunks(names: Iterable[str]) -> Iterator[frozenset[str]]:
    """As many together as a filter holds."""
    chunk, weight = set[str](), 0
    for name in sorted(names):
        weight += (own := _weight(re.escape(name)))
        if weight > _LONGEST_FILTER:
            yield frozenset(chunk)
            chunk, weight = set(), own
        chunk.add(name)
    yield frozenset(chunk)


def _weight(escaped: str) -> int:
    """What a name takes of a URL, with a sign between it and the next."""
    return len(quote(escaped)) + 3


def _by_name(expression: str) -> Mapping[str, str]:
    return {"name": expression, "use_regex": "true"}


def _prefix(expression: str) -> str:
    """The text that all that the pattern matches begins with, as far as can be told without reading all of it."""
    if "|" in expression or "(?" in expression:
        return ""
    found = _LITERAL.match(expression)
    prefix = found.group() if found else ""
    return prefix[:-1] if expression[len(prefix) : len(prefix) + 1] in ("*", "?", "{") else prefix
