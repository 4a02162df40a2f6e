"""Queues from the management API: single reads for a few queues, one shared list of the vhost for many.

Single reads serve a few queues of a vhost that has thousands, where a list would cost the broker most. The list with
`disable_stats` and `enable_queue_totals` (RabbitMQ 3.8) counts as of now and costs the broker least per queue. A single
queue has such totals since RabbitMQ 3.13. Where totals are lacking, the counts come from statistics, which are up to
five seconds old and absent until the first collection. For classic and quorum queues the list replaces single reads in
that case, because counts of different ages would look like a queue that drains and fills. Rates, consumers and their
capacity are always statistics. Source: HTTP API reference of the rabbitmq_management plugin.

The totals of a quorum queue are numbers of its leader's node, which counts every five seconds: 0 at other nodes
(rabbit_quorum_queue.erl: i). Single reads give those of the node that was asked, lists ask each leader. So zero is
believed only if the list and the statistics agree. Observed in RabbitMQ 4.0 and 3.10, for some seconds or while a node
is down:
- Of a new queue, and of one whose leader has changed, all totals are zero until the leader has counted. Statistics then
  lack the consumers (in 3.10 the state as well), and their counts are zero or absent. A broker that keeps no statistics
  lacks the consumers always; there only a leader that is another one than before tells (`Leaders`).
- A single read of a queue whose node is down is answered 404. Lists hold it as "down", without totals.
- Lists with totals leave out queues that do not answer in time, such as quorum queues without a leader. Lists without
  totals and statistics hold all queues. While a leader moves, a list may hold its queue twice.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from hpad.adapter import AdapterError, Context, or_error
from hpad_adapters.rabbitmq.answers import (
    COUNTED,
    COUNTED_SECONDS,
    Leaders,
    Overview,
    QueuePage,
    chunks,
    name_filter,
    overview,
    page_of,
    queue_of,
    running_nodes,
    sample_columns,
    statistics_columns,
)
from hpad_adapters.rabbitmq.broker import KEEPS_SLASHES, BrokerRefusedError, NotFoundError, RabbitmqBroker, meant
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.queues import QUORUM, STREAM, RabbitmqQueue, possible
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup, TooManyQueuesError

FEW = 3
KNOWN_SECONDS = 60.0
"""The time for which hpad remembers who keeps statistics: it takes a restart of a node to change."""

_TOTALS = {"disable_stats": "true", "enable_queue_totals": "true", "columns": COUNTED}
_ALL = {"disable_stats": "true", "columns": "name,vhost,type,state"}
_TRIES = 3
_DOTS = frozenset({".", ".."})
"""Names that a path cannot end with."""


class NoStatisticsError(AdapterError):
    """The broker keeps no statistics, or not all of its nodes do."""


class Management:
    """Reads queues of one broker, and remembers for which requests the broker reports totals."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._broker = RabbitmqBroker(settings, context)
        self._page_size = settings.page_size
        self._max_queues = settings.max_queues
        self._statistics = statistics_columns(settings)
        self._samples = sample_columns(settings)
        self._monotonic = context.clock.monotonic
        self._leaders = Leaders(self._monotonic)
        self._all_kept = -math.inf
        """When all nodes were found to keep statistics."""
        self._doubtful_seconds = settings.rate_span.total_seconds() + COUNTED_SECONDS
        self._keeps_rates = False
        self._totals = True
        self._single_totals = True

    def __str__(self) -> str:
        return str(self._broker)

    async def read(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues that exist; "*" stands for any vhost. Raises AdapterError."""
        if lookup.statistics:
            read = self._with_samples if lookup.samples else self._with_statistics
            found = await read(vhost, lookup)
            await self._require_statistics(vhost, found)
            await self._require_those_of_all_nodes(vhost)
            return found
        if self._few(vhost, lookup) and self._single_totals and self._totals:
            found = await self._each(vhost, lookup.names, _TOTALS)
            self._leaders.note(found)
            if not any(map(_lacks_totals, found)):
                return await self._confirmed(vhost, found)
            self._single_totals = False
        return await self._counted(vhost, lookup)

    async def _confirmed(self, vhost: str, found: list[RabbitmqQueue]) -> list[RabbitmqQueue]:
        """Replaces queues that seem empty by those of one list, because the node that was asked may not know them."""
        names = frozenset(queue.name for queue in found if queue.seems_empty)
        others = [queue for queue in found if not queue.seems_empty]
        return [*others, *await self._counted(vhost, Lookup(names=names))] if names else others

    async def _counted(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        if self._totals:
            found = await self._listed(vhost, lookup, _TOTALS)
            self._leaders.note(found)
            found += await self._without_totals(vhost, lookup, found)
            # One complete queue shows that the broker reports totals: then the others lack theirs for another reason.
            if any(queue.complete for queue in found) or not any(map(_lacks_totals, found)):
                return await self._completed(vhost, found)
        found = await self._with_statistics(vhost, lookup)
        self._totals = self._totals and not any(queue.complete and queue.type != STREAM for queue in found)
        return found

    async def _without_totals(self, vhost: str, lookup: Lookup, found: list[RabbitmqQueue]) -> list[RabbitmqQueue]:
        """Returns the queues that exist but are not in the list with totals."""
        if vhost != ANY_VHOST and not lookup.patterns and lookup.names <= {queue.name for queue in found}:
            return []
        places = set(map(_place, found))
        there = await self._listed(vhost, lookup, _ALL)
        return [RabbitmqQueue(each.name, each.vhost, each.type, "down") for each in there if _place(each) not in places]

    async def _completed(self, vhost: str, found: list[RabbitmqQueue]) -> list[RabbitmqQueue]:
        """Adds what statistics know of quorum queues that seem empty."""
        names = frozenset(queue.name for queue in found if queue.seems_empty)
        if not names:
            return found
        known = {_place(queue): queue for queue in await self._with_statistics(vhost, Lookup(names=names))}
        return [self._merged(queue, known.get(_place(queue))) if queue.seems_empty else queue for queue in found]

    def _merged(self, queue: RabbitmqQueue, known: RabbitmqQueue | None) -> RabbitmqQueue:
        """Returns an empty queue with the counts of its statistics, without counts if they are unknown.

        Statistics of a broker that keeps none hold the state and no counts: then the totals are all there is.
        """
        if known is None:
            return queue.without_counts()
        if known.complete or known.fault or not known.state or known.unavailable:
            return known
        return queue if self._leaders.has_counted(queue) else queue.without_counts()

    async def _with_samples(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues with samples, and with the counts of now: those of statistics are five seconds older."""
        counted = await self.read(vhost, Lookup(lookup.names, lookup.patterns))
        sampled = {_place(queue): queue for queue in await self._with_statistics(vhost, lookup)}
        found = [sampled.get(_place(queue), queue).with_counts(queue) for queue in counted]
        if any(queue.message_stats is None for queue in found) and await self._rates_kept(vhost):
            return [queue.with_statistics() for queue in found]
        return found

    async def _require_statistics(self, vhost: str, found: Sequence[RabbitmqQueue]) -> None:
        """Raises NoStatisticsError, with what to do, if the queues lack statistics because the broker keeps none."""
        usable = [queue for queue in found if not queue.unavailable and not queue.fault]
        if not usable or any(queue.consumers is not None for queue in usable):
            return
        said = await or_error(overview, self._broker, vhost)
        if isinstance(said, Overview) and said.disable_stats:
            raise NoStatisticsError(
                f"{self} keeps no statistics (rates_mode, disable_metrics_collector): write source: auto and "
                "metrics_url, so that hpad reads its plugin rabbitmq_prometheus",
                lasting=True,
                alive=True,
            )

    async def _require_those_of_all_nodes(self, vhost: str) -> None:
        """Raises NoStatisticsError if some nodes keep no statistics: those of the others lack what happens there."""
        if silent := await self.silent_nodes(vhost):
            raise NoStatisticsError(
                f"{', '.join(silent)} of {self} keep{'s' if len(silent) == 1 else ''} no statistics, so that a part of "
                "the numbers is unknown: let all nodes keep them, or write source: auto and metrics_url; a node that "
                "has just started has none for some seconds",
                lasting=True,
                alive=True,
            )

    async def silent_nodes(self, vhost: str) -> list[str]:
        """Returns the nodes that run and keep no statistics, while others do. That all do is remembered for a minute.

        Returns none if the nodes are not listed. That the user may not list them is remembered as well.
        """
        if self._monotonic() - self._all_kept < KNOWN_SECONDS:
            return []
        nodes = await or_error(running_nodes, self._broker, vhost)
        if isinstance(nodes, AdapterError) and not nodes.lasting:
            return []  # the next list may tell
        listed = [] if isinstance(nodes, AdapterError) else nodes
        silent = [each.name for each in listed if not each.rates_mode]
        if 0 < len(silent) < len(listed):
            return silent
        self._all_kept = self._monotonic()
        return []

    async def keeps_rates(self, vhost: str) -> bool:
        """Returns whether the broker says that it keeps rates; raises AdapterError."""
        return (await overview(self._broker, vhost)).keeps_rates

    async def _rates_kept(self, vhost: str) -> bool:
        """Returns whether the broker keeps rates: then a queue without any had no event."""
        self._keeps_rates = self._keeps_rates or await self.keeps_rates(vhost)
        return self._keeps_rates

    async def _with_statistics(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        columns = self._samples if lookup.samples else self._statistics
        if self._few(vhost, lookup):
            found = await self._each(vhost, lookup.names, columns)
        else:
            found = await self._listed(vhost, lookup, columns)
        self._leaders.note(found)
        kept = any(_lacks_consumers(queue) and queue.state for queue in found) and await self._keeps_statistics(vhost)
        return [
            _uncounted(queue)
            if _lacks_consumers(queue) and (kept or not queue.state)
            else self._without_doubtful_growth(queue)
            for queue in found
        ]

    def _without_doubtful_growth(self, queue: RabbitmqQueue) -> RabbitmqQueue:
        """Drops the growth of a queue whose leader has moved, for as long as it may go back to that time."""
        if not self._leaders.moved_within(queue, self._doubtful_seconds):
            return queue
        lacking = f"another node leads it for less than {self._doubtful_seconds:g}s, on which all its messages are new"
        return msgspec.structs.replace(queue, messages_details=None, lacking=lacking)

    async def _keeps_statistics(self, vhost: str) -> bool:
        """Returns whether the broker says that it keeps statistics; not remembered, because its nodes may differ."""
        try:
            return (await overview(self._broker, vhost)).keeps_statistics
        except NotFoundError:
            return False

    def _few(self, vhost: str, lookup: Lookup) -> bool:
        return vhost != ANY_VHOST and not lookup.patterns and len(lookup.names) <= FEW and not lookup.names & _DOTS

    async def _each(self, vhost: str, names: Collection[str], parameters: Mapping[str, str]) -> list[RabbitmqQueue]:
        """Reads queues one by one. The list then shows whether an absent queue is down.

        A queue whose read fails fails alone; with a second one, the fault is taken for one of the broker.
        """
        found, absent, failed = list[RabbitmqQueue](), set[str](), False
        for name in names:
            read = await or_error(self._single, vhost, name, parameters) if possible(name) else None
            if isinstance(read, AdapterError):
                if failed or len(names) == 1:
                    raise read
                read, failed = RabbitmqQueue(name, vhost, fault=read.message), True
            if read is None:
                absent.add(name)
            else:
                found.append(read)
        return [*found, *await self._listed(vhost, Lookup(names=frozenset(absent)), _ALL)] if absent else found

    async def _single(self, vhost: str, name: str, parameters: Mapping[str, str]) -> RabbitmqQueue | None:
        path = f"/api/queues/{quote(vhost, safe='')}/{quote(name, safe='')}"
        try:
            body = await self._broker.get(path, parameters, vhost=vhost)
        except NotFoundError:
            return None
        return _without_doubtful_counts(queue_of(body, str(self._broker)))

    async def _listed(self, vhost: str, lookup: Lookup, parameters: Mapping[str, str]) -> list[RabbitmqQueue]:
        """Reads one list. Of more names than a filter holds, the whole vhost or several lists, whichever is less."""
        parts = [] if lookup.patterns else chunks(lookup.names)
        try:
            if len(parts) < 2:
                return await self._view(vhost, lookup, {**name_filter(lookup), **parameters})
            return await self._by_parts(vhost, lookup, parts, parameters)
        except BrokerRefusedError:  # of the filter by name: how long it may be depends on the version
            return await self._view(vhost, lookup, parameters)

    async def _by_parts(
        self, vhost: str, lookup: Lookup, parts: Sequence[frozenset[str]], parameters: Mapping[str, str]
    ) -> list[RabbitmqQueue]:
        try:
            return await self._view(vhost, lookup, parameters, most_pages=len(parts))
        except TooManyQueuesError:
            lookups = [Lookup(names=names) for names in parts]
        found = [await self._view(vhost, each, {**name_filter(each), **parameters}) for each in lookups]
        return [queue for part in found for queue in part]

    async def _view(
        self, vhost: str, lookup: Lookup, parameters: Mapping[str, str], *, most_pages: int | None = None
    ) -> list[RabbitmqQueue]:
        """Reads all pages of one state of the vhost."""
        # A queue deleted between two pages moves another one onto a page that was already read.
        for _ in range(_TRIES):
            found = await self._pages(vhost, lookup, parameters, most_pages)
            if found is not None:
                queues = [_without_doubtful_counts(queue) for queue in found if lookup.matches(queue.name)]
                self._check_vhost(vhost, queues)
                return queues
        raise AdapterError(f"the queues of {self._of(vhost)} changed {_TRIES} times while their pages were read")

    async def _pages(
        self, vhost: str, lookup: Lookup, parameters: Mapping[str, str], most_pages: int | None
    ) -> Iterable[RabbitmqQueue] | None:
        """Reads pages until all names are found, or all pages; returns None if the vhost changed in between."""
        found, counts = dict[tuple[str, str], RabbitmqQueue](), set[int | None]()
        missing, repeated, page, pages = set(lookup.names), 0, 1, 1
        while page <= pages:
            answer = await self._page(vhost, page, parameters)
            self._check_size(vhost, answer, most_pages)
            new = _distinct(answer.items)
            repeated += len(answer.items) - len(new)
            found = new | found
            missing.difference_update(queue.name for queue in answer.items)
            counts.add(answer.filtered_count)
            if not missing and not lookup.patterns and vhost != ANY_VHOST:
                return found.values()
            page, pages = page + 1, answer.page_count
        # Brokers without filtered_count give no way to notice a change.
        return found.values() if counts in ({None}, {len(found) + repeated}) else None

    def _check_vhost(self, vhost: str, queues: Iterable[RabbitmqQueue]) -> None:
        """Raises AdapterError for queues of another vhost: without the "%2F" of "/" the path is that of all vhosts."""
        others = sorted({queue.vhost for queue in queues} - {vhost, ""})
        if others and vhost != ANY_VHOST:
            found = f'{self._broker} answers with queues of vhost "{others[0]}" in place of "{vhost}"'
            raise AdapterError(f"{found}: {KEEPS_SLASHES}", lasting=True)

    def _check_size(self, vhost: str, answer: QueuePage, most_pages: int | None) -> None:
        count = answer.filtered_count if answer.filtered_count is not None else len(answer.items)
        too_many = count > self._max_queues or (answer.page_count - 1) * self._page_size >= self._max_queues
        if too_many or (most_pages is not None and answer.page_count > most_pages):
            raise TooManyQueuesError(
                f"{self._of(vhost)} has more than {self._max_queues} queues to read (max_queues): a part of them "
                "would be a wrong number"
            )

    async def _page(self, vhost: str, page: int, parameters: Mapping[str, str]) -> QueuePage:
        path = "/api/queues" if vhost == ANY_VHOST else f"/api/queues/{quote(vhost, safe='')}"
        numbered = {"page": str(page), "page_size": str(self._page_size), **parameters}
        try:
            body = await self._broker.get(path, numbered, vhost=vhost)
        except NotFoundError:
            raise AdapterError(f'vhost "{vhost}" does not exist at {self._broker}{meant(vhost)}', "spec") from None
        return page_of(body, str(self._broker), self._page_size)

    def _of(self, vhost: str) -> str:
        return f"{self._broker}" if vhost == ANY_VHOST else f'vhost "{vhost}" of {self._broker}'


def _without_doubtful_counts(queue: RabbitmqQueue) -> RabbitmqQueue:
    """Drops the counts of an unavailable queue: the broker reports zero for a quorum queue that is down."""
    return queue.without_counts() if queue.unavailable else queue


def _lacks_totals(queue: RabbitmqQueue) -> bool:
    """Returns whether the queue lacks totals that a broker with totals would report."""
    return not (queue.complete or queue.fault or queue.type == STREAM or queue.unavailable)


def _lacks_consumers(queue: RabbitmqQueue) -> bool:
    """Returns whether the statistics of a quorum queue lack its leader's part."""
    return queue.type == QUORUM and queue.consumers is None and not queue.unavailable


def _uncounted(queue: RabbitmqQueue) -> RabbitmqQueue:
    """Returns the queue without the counts of its statistics, because its leader has not counted yet."""
    return msgspec.structs.replace(queue.with_counts(RabbitmqQueue(queue.name)), state="")


def _distinct(queues: Iterable[RabbitmqQueue]) -> dict[tuple[str, str], RabbitmqQueue]:
    """Returns the queues by vhost and name; of one that is there twice, the entry that knows of more messages."""
    found: dict[tuple[str, str], RabbitmqQueue] = {}
    for queue in queues:
        other = found.setdefault(_place(queue), queue)
        if (queue.complete, queue.tasks) > (other.complete, other.tasks):
            found[_place(queue)] = queue
    return found


def _place(queue: RabbitmqQueue) -> tuple[str, str]:
    return queue.vhost, queue.name
