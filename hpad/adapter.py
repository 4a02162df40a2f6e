"""PUBLIC: the contract between hpad and a metric source.

An adapter is a class, published under the entry-point group `hpad.adapters`:

    class Static:
        '''Numbers from the configuration.'''
        serves = frozenset({"External"})

        class Settings(msgspec.Struct, forbid_unknown_fields=True):
            values: dict[str, float]

        def __init__(self, settings: Settings, context: Context) -> None: ...
        async def answer(self, queries: Sequence[Query]) -> list[Sample | AdapterError]: ...
        async def aclose(self) -> None: ...

`serves` holds metric types. An optional `metrics`, a tuple of names or shell-style patterns, says which metrics of
those types come here without a rule of the configuration (without it, all do); where that depends on the settings, it
is an attribute of the instance, and where it differs by type, it maps types to such tuples. `Settings` is the schema of
the source's configuration; a ClassVar `renamed` in it maps fields of earlier versions to what is written instead now,
for the error that names them. __init__ must not block.

`answer` gets a batch and returns one result per query, in the same order, so that one list call can serve every HPA of
a namespace. It makes one attempt, may be cancelled at any time, and judges nothing: timeouts, retries, circuit
breaking, coalescing and caching belong to hpad, as does reducing many values to one and judging a sample's age by its
timestamp.

An optional `group(query)` returns what queries have in common that one call serves as well as one of them (a hashable
value: the namespace of a list, say; None: nothing). HPAs ask one after the other, all over the period; hpad then asks,
along with one of them, for those of its group that come up next, and keeps the answers for them.

An optional `personal(query)` says whether the answer depends on which HPA asks (a bool, told from the query alone).
Where it does, hpad sets the query's `asker`: the HPA's name and labels, and its target; equal queries of different HPAs
are then asked one by one. Everywhere else `asker` is None, so that one answer serves them all.

Optional methods for commands, which never run in a reconcile:

- `async explain(query) -> str`: what the source is asked for the query, as text for people (a PromQL expression, say).
- `async history(query, times) -> list[Sample | AdapterError]`: what `answer` would have returned at each of these times
  (datetimes in ascending order, at equal distances).

Both raise AdapterError, and neither returns a secret. `hpad check` and `hpad doctor` tell all that is wrong with the
settings at once: each field is judged by itself, __post_init__ may name several flaws (a line each, "field: text"), and
a static method `flaws(settings)` yields what a look at the files that the settings name shows, as (path, text), where
the path holds fields and keys: `("metrics", "depth", "query"), "a ( is never closed"`. It may block; where fields are
wrong, `settings` is an object with the good ones alone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import aiohttp
import msgspec

from hpad.api.duration import parse as parse_duration
from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metrics import (
    ExternalMetricValueList,
    MetricValue,
    MetricValueList,
    PodMetrics,
    PodMetricsList,
    custom_pod_sample,
    external_sample,
    fetch_failed,
    object_sample,
    pod_sample,
)
from hpad.api.quantity import Quantity, QuantityError, parse_milli
from hpad.api.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    SOURCE_TYPES,
    AdapterError,
    Asker,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
    Sample,
)
from hpad.api.selector import Operator, Requirement, Selector
from hpad.api.text import meant, reason, shown
from hpad.clock import Clock

Answer = Sample | AdapterError


class ApiReader(Protocol):
    """Read access to the API server of the cluster whose HPAs are served."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """The body of a GET that answered 200; raises AdapterError with the server's own message.

        Its blame is "cluster", or "spec" where a server that works does not know the metric or object asked for.
        """
        ...


class Log(Protocol):
    """A bound structlog logger."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class Context(msgspec.Struct, frozen=True):
    """The capabilities of an adapter instance. `name` is the instance's own, from the configuration.

    `http` is this instance's own session (closed by hpad); `api` is None where hpad runs without an API server.
    """

    name: str
    http: aiohttp.ClientSession
    clock: Clock
    log: Log
    api: ApiReader | None = None


class Adapter(Protocol):
    """What the core relies on."""

    serves: ClassVar[frozenset[str]]
    Settings: ClassVar[type[msgspec.Struct]]

    def __init__(self, settings: Any, context: Context) -> None: ...

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """One result per query, in order."""
        ...

    async def aclose(self) -> None:
        """Let go of everything; called once."""
        ...


async def one_by_one(queries: Sequence[Query], answer_one: Callable[[Query], Awaitable[Sample]]) -> list[Answer]:
    """Lift a one-query function to the batch form; an AdapterError it raises becomes the answer to that query only."""
    answers: list[Answer] = []
    for query in queries:
        try:
            answers.append(await answer_one(query))
        except AdapterError as error:
            answers.append(error)
    return answers


async def read_part(response: aiohttp.ClientResponse) -> bytes:
    """What has come of the body since the last part, waiting for it; empty at the end.

    Raises aiohttp.ClientError where the connection is lost: also in the moment between two parts, for which aiohttp
    itself has a RuntimeError.
    """
    try:
        return await response.content.readany()
    except RuntimeError as error:
        raise aiohttp.ClientPayloadError("the connection was lost") from error


__all__ = [
    "CONTAINER_RESOURCE",
    "EXTERNAL",
    "OBJECT",
    "PODS",
    "RESOURCE",
    "SOURCE_TYPES",
    "Adapter",
    "AdapterError",
    "Answer",
    "ApiReader",
    "Asker",
    "Context",
    "CrossVersionObjectReference",
    "ExternalMetricValueList",
    "ExternalSample",
    "Log",
    "MetricValue",
    "MetricValueList",
    "ObjectSample",
    "Operator",
    "PodMetrics",
    "PodMetricsList",
    "PodSample",
    "PodValue",
    "Quantity",
    "QuantityError",
    "Query",
    "Requirement",
    "Sample",
    "Selector",
    "custom_pod_sample",
    "external_sample",
    "fetch_failed",
    "meant",
    "object_sample",
    "one_by_one",
    "parse_duration",
    "parse_milli",
    "pod_sample",
    "read_part",
    "reason",
    "shown",
]
