"""The tasks that workers have fetched: a hash of all queues of the database, with the whole task in each entry.

Redis cannot tell the queue of an entry, so that entries are read, in steps and up to a limit: a read of a large hash
would block Redis. Source: kombu/transport/redis.py, QoS.append: an entry is the JSON list of message, exchange and
routing key.
"""

from collections import Counter
from collections.abc import Collection

import msgspec

from hpad.adapter import AdapterError, shown
from hpad_adapters.celery.bindings import Bindings, QueueOwners
from hpad_adapters.redis_servers import AnyRedis, RedisRequest, Reply, ReplyError

MOST_ENTRIES = 2_000
"""How many entries are read to see whose they are."""
MOST_BYTES = 4 << 20
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

    Of a hash beyond MOST_ENTRIES or MOST_BYTES only a sample is known: it is not `whole`.
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


async def read(servers: AnyRedis, key: str, size: int, bindings: Bindings) -> Fetched:
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
        if cursor == "0" or len(entries) >= wanted or received > MOST_BYTES:
            return _counted(entries.values()), cursor == "0"
    raise _too_many(size)


async def _step(servers: AnyRedis, key: str, cursor: str, count: int) -> tuple[str, dict[str, str]]:
    """Returns the next cursor, "0" at the end, and some entries by their tags; raises AdapterError."""
    [answer] = await servers.ask([RedisRequest(key, (("HSCAN", key, cursor, "COUNT", str(count)),))])
    if isinstance(answer, AdapterError):
        raise answer
    match answer:
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
    except (msgspec.MsgspecError, ValueError):
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
    limit = f"{MOST_ENTRIES} or {MOST_BYTES >> 20} MiB"
    return AdapterError(
        f"workers have fetched {size} tasks, too many to read whose they are (at most {limit}): take "
        "celery_tasks_waiting, or a metric of all queues of the database, or give the queue a database of its own",
        "spec",
    )
