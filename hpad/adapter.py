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

`serves` holds metric types. An optional `metrics`, a tuple of names or shell-style patterns, says which metrics
of these types come here without a rule of the configuration; without it, all do. It is an attribute of the instance if
it depends on the settings, and it may map types to such tuples. `Settings` is the schema of the source's configuration.
A ClassVar `renamed` in it maps fields of earlier versions to their replacements, for the error about an old field.
__init__ must not block.

`answer` gets a batch and returns one result per query, in the same order, so that one list call can serve every HPA of
a namespace. It makes one attempt, may be cancelled at any time, and judges nothing. Timeouts, retries, circuit
breaking, coalescing and caching belong to hpad; so do reducing many values to one and judging the age of a sample.

An optional `group(query)` returns what queries have in common that share a call: a hashable value, such as the
namespace of a list, or None. HPAs ask one after the other, spread over the period. With one query, hpad also asks for
those of its group that are expected soon, and caches their answers.

An optional `personal(query)` returns, from the query alone, whether the answer depends on the asking HPA. If it does,
hpad sets the query's `asker` (the HPA's name and labels, and its target), and asks equal queries of different HPAs
separately. Otherwise `asker` is None, and one answer serves all of them.

Optional methods for commands, which never run in a reconcile:

- `async explain(query) -> str`: what the source is asked for the query, such as PromQL, as text for people.
- `async history(query, times) -> list[Sample | AdapterError]`: what `answer` would have returned at each of these times
  (datetimes in ascending order, at equal distances).

Both raise AdapterError, and neither returns a secret.

`hpad check` and `hpad doctor` report all errors of the settings at once. Each field is checked by itself. __post_init__
may report several errors, a line each: "field: text". A static method `flaws(settings)` may check the files that the
settings name: it yields (path, text), where the path holds fields and keys, such as `("metrics", "depth", "query"),
"a ( is never closed"`. It may block. If some fields are invalid, `settings` is an object with the valid ones alone.
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
    """Read access to the API server that holds the HPAs."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Returns the body of a GET answered with 200; raises AdapterError with the server's own message.

        The error's blame is "spec" if the server does not know the metric or object, else "cluster".
        """
        ...


class Log(Protocol):
    """A bound structlog logger."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class Context(msgspec.Struct, frozen=True):
    """What hpad gives to an adapter instance. `name` is the source's name in the configuration.

    `http` is a session for this instance alone, which hpad closes. `api` is None if hpad runs without an API server.
    """

    name: str
    http: aiohttp.ClientSession
    clock: Clock
    log: Log
    api: ApiReader | None = None


class Adapter(Protocol):
    """The part of the contract that every adapter has."""

    serves: ClassVar[frozenset[str]]
    Settings: ClassVar[type[msgspec.Struct]]

    def __init__(self, settings: Any, context: Context) -> None: ...

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns one result per query, in order."""
        ...

    async def aclose(self) -> None:
        """Releases all resources. Called once."""
        ...


async def one_by_one(queries: Sequence[Query], answer_one: Callable[[Query], Awaitable[Sample]]) -> list[Answer]:
    """Answers a batch with a function for one query; an AdapterError that it raises answers that query alone."""
    answers: list[Answer] = []
    for query in queries:
        try:
            answers.append(await answer_one(query))
        except AdapterError as error:
            answers.append(error)
    return answers


async def read_part(response: aiohttp.ClientResponse) -> bytes:
    """Waits for the next part of the body and returns it; empty at the end.

    Raises aiohttp.ClientError if the connection is lost, also between two parts, where aiohttp raises RuntimeError.
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
