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
a namespace. It makes one attempt and may be cancelled at any time. Timeouts, retries, circuit breaking, coalescing and
caching belong to hpad; so do reducing many values to one and checking the age of a sample.

An ExternalSample may have a `note`: a short remark about its values for people, such as 'no consumer holds a message of
the queue "orders"'. It follows "but" in the sentence of a decision that this metric leads while pods are ready, and
changes no decision. Like error messages it loses secrets.

An optional `group(query)` returns a hashable value that is equal for queries that one call can answer, such as the
namespace of a list, or None. The turns of HPAs are spread over the period. Together with one query, hpad sends the
queries of its group that are expected soon, and caches their answers.

An optional `personal(query)` returns, from the query alone, whether the answer depends on the HPA. If it does, hpad
sets the query's `hpa` (the HPA's name and labels, and its target), and reads equal queries of different HPAs
separately. Otherwise `hpa` is None, and one answer serves all of them.

An optional `parameters`, a tuple of labels, says what the adapter reads from selectors; it is an attribute of the
instance if it depends on the settings. Labels by which the configuration chose the source are taken out of the selector
unless they are among them; of an adapter without `parameters`, those that the configuration gives one value.

An optional `ignores_containers = True` says that answers to Resource metrics leave out the usage of the containers in
the query's `ignored_containers` (the annotation hpad.io/ignore-containers); a pod without any other container has no
value. Without it hpad answers such queries with an error, since a sum over all containers would be wrong.

An optional `knows_members = True` says that the adapter answers queries with `members`: the pods of a target with their
IP addresses, whose unfinished work decides which of them a scale-down removes (the annotation
hpad.io/scale-down-order). The answer is a PodSample, also to a query of type External: one value per pod, zero for a
pod that is known to be idle. A pod without a value is unknown, and counts as busy. Without the attribute hpad answers
such a query of type External with an error, and leaves out the members of one of type Pods.

An optional `QuerySchema`, a msgspec.Struct as `Settings` is, opens the source to queries that Autoscalers bring along
(`spec.queries`), in the namespaces that the operator allows: it is the schema of their parameters. The authors of these
queries are not those of the settings: leave out all that names hosts, files, headers or credentials, that changes
something, or that may take long in Python, such as a regular expression. `answer` gets such a query of type External
with a `definition`, whose `metric` is an instance of the schema; its name means nothing. Keep what you make of a
definition under it in a weakref.WeakKeyDictionary: it lives as long as an Autoscaler has it. The `group` of such a
query should hold its definition, unless one call costs the same for all. A static method `closed(settings)` may return
what the settings lack for such queries, "field: text", and "" if nothing is missing.

An optional `files`, a tuple of paths, names the files whose content the instance keeps, such as rules. When one
changes, hpad builds the source anew, and goes on with the former one if that fails. An optional `async prepare()` reads
them before the first `answer`; it raises AdapterError. Files that are read for each call need neither.

Two optional methods for commands never run in a reconcile. `async explain(query) -> str` returns the request that the
query becomes, such as PromQL, as text for people. `async past(query, window) -> PastPromQL` returns the PromQL by which
a Prometheus that scrapes what the source reads knows the past of the metric; rates in it are over `window`. Both raise
AdapterError, and return no secret.

Errors and log lines lose the secrets of the settings, and those that `hpad.adapter_http.read_secrets` has read, for
some time also after a rotation; see `hide` for others. Fields hold secrets by their names, such as `password`, or by
the mark `msgspec.Meta(extra_json_schema={"writeOnly": True})`.

`hpad check` and `hpad doctor` report the errors of all fields. If these are valid, __post_init__ may report several
errors, a line each: "field: text"; so may that of a struct in a field. If the settings are valid, a static method
`flaws(settings)` may check the files that they name: it yields (path, text), where the path holds fields and keys, such
as `("rules_file", "rules", 0), "the query is empty"`. It may block. `faults` finds such errors in what a file holds.

A static method `lacks(settings)` may return what the installation lacks for these settings, such as a package of an
extra, and "" if nothing is missing. `hpad check` warns of it.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

import aiohttp
import msgspec

from hpad.api import duration as durations
from hpad.api.hpa import CrossVersionObjectReference as CrossVersionObjectReference
from hpad.api.metrics import ExternalMetricValueList as ExternalMetricValueList
from hpad.api.metrics import MetricValueList as MetricValueList
from hpad.api.metrics import PodMetrics as PodMetrics
from hpad.api.metrics import PodMetricsList as PodMetricsList
from hpad.api.metrics import custom_pod_sample as custom_pod_sample
from hpad.api.metrics import external_sample as external_sample
from hpad.api.metrics import fetch_failed as fetch_failed
from hpad.api.metrics import object_sample as object_sample
from hpad.api.metrics import pod_sample as pod_sample
from hpad.api.quantity import Quantity as Quantity
from hpad.api.quantity import QuantityError as QuantityError
from hpad.api.quantity import parse_milli as parse_milli
from hpad.api.sample import CONTAINER_RESOURCE as CONTAINER_RESOURCE
from hpad.api.sample import EXTERNAL as EXTERNAL
from hpad.api.sample import OBJECT as OBJECT
from hpad.api.sample import PODS as PODS
from hpad.api.sample import RESOURCE as RESOURCE
from hpad.api.sample import SOURCE_TYPES as SOURCE_TYPES
from hpad.api.sample import AdapterError as AdapterError

# "import X as X" makes a name part of this module (PEP 484), from which adapters import it.
from hpad.api.sample import Answer as Answer
from hpad.api.sample import ExternalSample as ExternalSample
from hpad.api.sample import HPAIdentity as HPAIdentity
from hpad.api.sample import Member as Member
from hpad.api.sample import ObjectSample as ObjectSample
from hpad.api.sample import PastPromQL as PastPromQL
from hpad.api.sample import PodSample as PodSample
from hpad.api.sample import PodValue as PodValue
from hpad.api.sample import Query as Query
from hpad.api.sample import QueryDefinition as QueryDefinition
from hpad.api.sample import Sample as Sample
from hpad.api.secrets import public as public
from hpad.api.selector import Operator as Operator
from hpad.api.selector import Requirement as Requirement
from hpad.api.selector import Selector as Selector
from hpad.api.settings_errors import faults as faults
from hpad.api.text import meant as meant
from hpad.api.text import reason as reason
from hpad.api.text import shown as shown
from hpad.clock import Clock
from hpad.files import opened as opened

parse_duration = durations.parse
T = TypeVar("T")
P = ParamSpec("P")
_PART_OF_CALL = 0.9


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
    `timeout` is how long a call of `answer` may take, in seconds: a part of the sync period, or the source's setting.
    """

    name: str
    http: aiohttp.ClientSession
    clock: Clock
    log: Log
    api: ApiReader | None = None
    timeout: float = math.inf

    def within(self, seconds: float) -> float:
        """Returns the time for one of the requests of a call: `seconds`, and less if the call itself ends before.

        So one that hangs is an error of its own queries (AdapterError: late), and the call can still return the answers
        to the others.
        """
        return min(seconds, _PART_OF_CALL * self.timeout)


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


async def or_error(ask: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | AdapterError:
    """Returns the result, or the AdapterError that was raised, so that it answers one query and not the batch.

    A coroutine in place of `ask` would never be awaited if a task of this were cancelled before it starts.
    """
    try:
        return await ask(*args, **kwargs)
    except AdapterError as error:
        return error


async def one_by_one(queries: Sequence[Query], answer_one: Callable[[Query], Awaitable[Sample]]) -> list[Answer]:
    """Answers a batch with a function for one query; an AdapterError that it raises answers that query alone."""
    return [await or_error(answer_one, query) for query in queries]


def positive_duration(field: str, text: str) -> timedelta:
    """Parses the duration in a setting; raises ValueError, "field: text", unless it is above zero."""
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
    if duration <= timedelta(0):
        raise ValueError(f"{field}: {shown(text)} is not a duration above zero")
    return duration


LONGEST_YAML = 4 << 20
"""Bytes of a file that `read_yaml` reads."""


def read_yaml(path: Path) -> Any:
    """Returns the value of a YAML file, read as the tools of Kubernetes do; None for an empty one. Blocks.

    Raises ValueError for a file that cannot be read or is too large, for several documents, for a field that occurs
    more than once, and for aliases that multiply the text.
    """
    try:
        with opened(path) as file:
            content = file.read(LONGEST_YAML + 1)
        if len(content) > LONGEST_YAML:
            raise ValueError(f"cannot be read: it is larger than {LONGEST_YAML >> 20} MiB")
        return parse_yaml(content)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None


def parse_yaml(content: bytes, max_elements: int = 500_000) -> Any:
    """Returns the value of a YAML text with at most so many keys and values, as `read_yaml` does. Blocks."""
    from hpad.api import yaml_reader  # imported late: few sources need YAML

    try:
        return yaml_reader.only(content.decode("utf-8-sig"), max_elements)
    except UnicodeDecodeError:
        raise ValueError("cannot be read: it is not UTF-8 text") from None


HIDING: ContextVar[Callable[[str], object]] = ContextVar("hiding", default=lambda _: None)
"""What `hide` calls. hpad sets it to that of the source whose adapter it calls."""


def hide(secret: str) -> None:
    """Keeps a secret out of all errors and log lines of this source, also percent-encoded, in JSON and in base64.

    `hpad.adapter_http.read_secrets` calls it for what files and variables hold. An adapter calls it for secrets that it
    gets in another way, such as a token of an identity provider, in __init__ or `answer`, each time that it uses one.
    """
    HIDING.get()(secret)


async def read_part(response: aiohttp.ClientResponse) -> bytes:
    """Waits for the next part of the body and returns it; empty at the end.

    Raises aiohttp.ClientError if the connection is lost, also between two parts, where aiohttp raises RuntimeError.
    """
    try:
        return await response.content.readany()
    except RuntimeError as error:
        raise aiohttp.ClientPayloadError("the connection was lost") from error
