"""What Redis keeps of a Celery application beside its lists: the declared queues, and the tasks that workers fetched.

Redis removes an empty list, so an absent list is an empty queue or one that does not exist. Workers and producers of
Celery declare each queue before they use it, and kombu notes it in a set for each exchange, which stays when the queue
is empty and its workers are gone.

Source: kombu/transport/redis.py, Channel._queue_bind and Channel.get_table: an element of the set is routing key,
pattern and queue.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from hpad.adapter import AdapterError, shown
from hpad.adapter_http import UNDECODABLE
from hpad_adapters.celery.settings import RedisBroker
from hpad_adapters.redis_servers import AnyRedis, RedisRequest, Reply, ReplyError
from hpad_adapters.selection import or_raise

Replies = Mapping[RedisRequest, list[Reply] | AdapterError]
_WILDCARD = re.compile(r"[*#]")
_MOST_COMPARISONS = 100_000


class Binding(NamedTuple):
    """A queue, and the exchange and routing key that lead to it. The routing key of a topic may hold wildcards."""

    exchange: str
    routing_key: str
    queue: str


class Bindings:
    """Reads the bindings of exchanges."""

    def __init__(self, broker: RedisBroker, default_exchange: str) -> None:
        self._broker = broker
        self._default = default_exchange

    def requests(self, queues: Iterable[str]) -> list[RedisRequest]:
        """Returns a request for each exchange that may lead to one of the queues."""
        return self.of(self._exchanges(queues))

    def of(self, exchanges: Iterable[str]) -> list[RedisRequest]:
        """Returns a request for each exchange."""
        return [_request(self._broker.bindings(name)) for name in exchanges]

    def read(self, exchanges: Iterable[str], replies: Replies) -> list[Binding]:
        """Returns the bindings of exchanges; raises AdapterError if they cannot be read."""
        found = []
        for exchange in exchanges:
            request = _request(self._broker.bindings(exchange))
            members = or_raise(replies[request])
            found += [self._binding(exchange, member) for member in _members(request.key, members[0])]
        return found

    def check(self, queue: str, replies: Replies) -> None:
        """Raises AdapterError if no binding names the queue, or bindings cannot be read."""
        exchanges = self._exchanges((queue,))
        if any(binding.queue == queue for binding in self.read(exchanges, replies)):
            return
        names = ", ".join(map(shown, exchanges))
        raise AdapterError(
            f"queue {shown(queue)} does not exist: it holds no tasks, and no binding of the exchanges {names} "
            "names it; check its spelling, or name its exchange in `exchanges`",
            "spec",
        )

    def check_sep(self, queue: str, replies: Replies) -> None:
        """Raises AdapterError if the bindings of the queue have another `sep`, as then the lists of priorities have.

        Without this, tasks of a priority would be left out. What cannot be read is no error here.
        """
        others = False
        for exchange in self._exchanges((queue,)):
            match replies[_request(self._broker.bindings(exchange))]:
                case [list() as members]:
                    texts = [each for each in members if isinstance(each, str)]
                    if any(self._binding(exchange, each).queue == queue for each in texts):
                        return
                    others |= any(self._broker.sep not in each and each.endswith(queue) for each in texts)
        if others:
            text = f"queue {shown(queue)} is declared with another `sep`: give that of broker_transport_options"
            raise AdapterError(text, "spec")

    def _exchanges(self, queues: Iterable[str]) -> list[str]:
        """Returns the exchanges of Celery's defaults and those of the settings, each once.

        A queue that Celery creates by itself has an exchange of its own name, one of task_queues without an exchange
        has the default one (celery/app/amqp.py, Queues).
        """
        return list(dict.fromkeys((*queues, self._default, *self._broker.exchanges)))

    def _binding(self, exchange: str, member: str) -> Binding:
        parts = member.split(self._broker.sep)
        return Binding(exchange, parts[0], parts[-1])


class QueueOwners:
    """Finds the queues of a task by its exchange and routing key, as Celery's transport does.

    Source: kombu/transport/virtual/base.py: Channel._lookup; exchange.py: TopicExchange.
    """

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._exact: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._wild: defaultdict[str, list[tuple[list[str], str]]] = defaultdict(list)
        self._comparisons = _MOST_COMPARISONS
        for each in bindings:
            self._exact[each.exchange, each.routing_key].add(each.queue)
            if len(pieces := _WILDCARD.split(each.routing_key)) > 1:
                self._wild[each.exchange].append((pieces, each.queue))

    def queues(self, exchange: str, key: str) -> frozenset[str]:
        """Returns the queues that the task may be of; raises AdapterError if bindings with wildcards are too many."""
        wild = self._wild.get(exchange, ())
        self._comparisons -= len(wild)
        if self._comparisons < 0:
            raise AdapterError(f"the exchange {shown(exchange)} has too many bindings with wildcards", "spec")
        found = self._exact.get((exchange, key), set()) | {queue for pieces, queue in wild if _matches(pieces, key)}
        # Celery sends to the queue itself (no exchange, its name as routing key) unless the application names another.
        return frozenset(found) if exchange and found else frozenset({key})


def _matches(pieces: list[str], key: str) -> bool:
    """Returns whether the key consists of these pieces, with any text between them: "*" and "#" of a topic."""
    first, *middle, last = pieces
    if not key.startswith(first) or not key.endswith(last) or len(key) < len(first) + len(last):
        return False
    start, end = len(first), len(key) - len(last)
    for piece in middle:
        if (found := key.find(piece, start, end)) < 0:
            return False
        start = found + len(piece)
    return True


def _request(key: str) -> RedisRequest:
    return RedisRequest(key, (("SMEMBERS", key),))


def _members(key: str, reply: Reply) -> list[str]:
    if isinstance(reply, ReplyError):
        raise AdapterError(f"SMEMBERS of the key {shown(key)}: {reply}")
    if not isinstance(reply, list) or not all(isinstance(each, str) for each in reply):
        raise AdapterError(f"the reply to SMEMBERS of the key {shown(key)} is not a list of texts")
    return [each for each in reply if isinstance(each, str)]


# The tasks that workers have fetched: a hash of all queues of the database, with the whole task in each entry.
#
# Redis cannot tell the queue of an entry, so that entries are read, in steps and up to a limit: a read of a large hash
# would block Redis. Source: kombu/transport/redis.py, QoS.append: an entry is the JSON list of message, exchange and
# routing key.

MOST_ENTRIES = 2_000
"""How many entries are read to see whose they are."""
_MOST_BYTES = 4 << 20
_SAMPLED = 100
_FEWEST, _MOST = 10, 1_000
"""Entries of one step, for Redis to choose about so many."""
_STEP_BYTES = 512 << 10
_MOST_STEPS = 100
_NAMED = 3
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_NAME = msgspec.json.Decoder(str | None)

Source = tuple[str, str]
"""The exchange and the routing key of a task."""


class Fetched(msgspec.Struct, frozen=True):
    """The size of the hash, and how many tasks may be of each set of queues: mostly one.

    Of a hash beyond MOST_ENTRIES or _MOST_BYTES only a sample is known: it is not `whole`.
    """

    size: int = 0
    tasks: Counter[frozenset[str]] = msgspec.field(default_factory=Counter)
    whole: bool = True

    def count(self, queues: Collection[str], every: bool) -> int:
        """Returns the tasks of these queues, which are all of the application if `every`; raises AdapterError."""
        own = sum(number for owners, number in self.tasks.items() if not owners.isdisjoint(queues))
        if not self.whole:
            if every and own == self.tasks.total():
                return self.size
            raise _too_many(self.size)
        for owners in self.tasks:
            if not owners.isdisjoint(queues) and not owners <= set(queues):
                raise _of_several(owners)
        return own


async def read_fetched(servers: AnyRedis, key: str, size: int, bindings: Bindings) -> Fetched:
    """Reads the entries, and the bindings of their exchanges; raises AdapterError."""
    sources, whole = await _sources(servers, key, size)
    exchanges = sorted({exchange for exchange, _ in sources if exchange})
    requests = bindings.of(exchanges)
    replies = dict(zip(requests, await servers.ask(requests), strict=True)) if requests else {}
    owners = QueueOwners(bindings.read(exchanges, replies))
    tasks = Counter[frozenset[str]]()
    for source, number in sources.items():
        tasks[owners.queues(*source)] += number
    return Fetched(max(size, sources.total()), tasks, whole)


async def _sources(servers: AnyRedis, key: str, size: int) -> tuple[Counter[Source], bool]:
    """Returns how many tasks have each source, of all entries or of a sample, and whether it is all."""
    entries, cursor, received = dict[str, Source | None](), "0", 0
    wanted = _SAMPLED if size > MOST_ENTRIES else 2 * MOST_ENTRIES
    for _ in range(_MOST_STEPS):
        average = received // max(1, len(entries)) or _STEP_BYTES
        cursor, page = await _step(servers, key, cursor, min(max(_STEP_BYTES // average, _FEWEST), _MOST))
        received += sum(map(len, page.values()))
        entries |= {tag: _source(entry) for tag, entry in page.items()}
        if cursor == "0" or len(entries) >= wanted or received > _MOST_BYTES:
            return _counted(entries.values()), cursor == "0"
    raise _too_many(size)


async def _step(servers: AnyRedis, key: str, cursor: str, count: int) -> tuple[str, dict[str, str]]:
    """Returns the next cursor, "0" at the end, and some entries by their tags; raises AdapterError."""
    [answer] = await servers.ask([RedisRequest(key, (("HSCAN", key, cursor, "COUNT", str(count)),))])
    match or_raise(answer):
        case [[str() as following, list() as flat]] if len(flat) % 2 == 0 and _are_texts(flat):
            texts = [each for each in flat if isinstance(each, str)]
            return following, dict(zip(texts[::2], texts[1::2], strict=True))
        case [ReplyError() as refusal]:
            raise AdapterError(f"the key {shown(key)}: {refusal}")
    raise AdapterError(f"the reply to HSCAN of the key {shown(key)} is no cursor with entries")


def _are_texts(flat: list[Reply]) -> bool:
    return all(isinstance(each, str) for each in flat)


def _source(entry: str) -> Source | None:
    """Returns where a task comes from; None for an entry that is not Celery's."""
    try:
        _, exchange, key, *_ = _LIST.decode(entry)
        return _NAME.decode(exchange) or "", _NAME.decode(key) or ""
    except (*UNDECODABLE, ValueError):  # a list of fewer than three
        return None


def _counted(found: Collection[Source | None]) -> Counter[Source]:
    """Counts the sources. Entries of another application are left out, but a hash without any task is not Celery's."""
    sources = Counter(source for source in found if source is not None)
    if found and not sources:
        raise AdapterError("the hash of fetched tasks holds other entries than Celery's", "spec")
    return sources


def _of_several(owners: Collection[str]) -> AdapterError:
    names = ", ".join(map(shown, sorted(owners)[:_NAMED]))
    text = f"a task that workers have fetched may be of each of the queues {names}: ask for them together"
    return AdapterError(text, "spec")


def _too_many(size: int) -> AdapterError:
    limit = f"{MOST_ENTRIES} or {_MOST_BYTES >> 20} MiB"
    return AdapterError(
        f"workers have fetched {size} tasks, too many to read whose they are (at most {limit}): take "
        "celery_tasks_waiting, or a metric of all queues of the database, or give the queue a database of its own",
        "spec",
    )
