"""The adapter `keda-external`: each external scaler of KEDA is a metric source.

Source: KEDA 2.21, "External Scalers" and externalscaler.proto; external_scaler.go for what is sent and how a value is
chosen.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    Query,
    Sample,
    or_error,
    positive_duration,
)
from hpad.adapter_http import (
    SecretRef,
    Tls,
    TlsSettings,
    duration_error,
    host_and_port,
    hosts_error,
    read_secrets,
    refuse,
)
from hpad_adapters import extras
from hpad_adapters.credentials import unused_tls_error
from hpad_adapters.keda_external import messages
from hpad_adapters.selection import labels, no_metric

_AT_ONCE = 16
_EXAMPLE = "scaler.namespace:9090"
_MOST_LATE = 1 << 14
"""Number of metrics without an answer in time that are remembered, those of the last time."""
_MOST = (2**63 - 1) // 1000


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A metric of the scaler.

    metadata: what KEDA sends as scalerMetadata, all fields of the trigger's `metadata`; a value may be {file: …} or
        {env: …}, read again for each batch. scalerAddress is added.
    params: labels of the metric's selector that are sent as further metadata.
    metric: the scaler's name of the metric; empty: the only one of its GetMetricSpec.
    name, namespace: of the ScaledObject, which some scalers look up; empty: those of the HPA.
    inactive: the value while the scaler's IsActive says false: zero, as in KEDA for a minReplicaCount of 0, or value:
        that of GetMetrics, and IsActive is not asked.
    """

    metadata: dict[str, str | SecretRef] = {}
    params: list[str] = []
    metric: str = ""
    name: str = ""
    namespace: str = ""
    inactive: Literal["zero", "value"] = "zero"


class KedaExternalSettings(TlsSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An external scaler of KEDA.

    address: host and port, KEDA's scalerAddress; metrics: name in the HPA -> metric of the scaler.
    request_timeout: of the calls for one metric, since the scaler may wait for one of its backends, and answer for
        others; a metric without an answer fails alone.
    tls: connect by TLS, KEDA's enableTLS; ca, cert, key: PEM files, loaded again when they change; server_name: on the
    scaler's certificate, if not the host; insecure: trust any certificate.
    """

    address: str
    metrics: dict[str, Metric]
    tls: bool = False
    server_name: str = ""
    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        refuse(
            "" if self.metrics else "metrics: is empty; write a metric, such as depth: {metadata: {queue: mails}}",
            self.tls_options.error,
            duration_error("request_timeout", self.request_timeout),
            hosts_error("address", [self.plain_address], _EXAMPLE),
            unused_tls_error(self, tls=self.tls),
        )

    @property
    def plain_address(self) -> str:
        """The address without dns:///, which KEDA's resolver takes."""
        return self.address.removeprefix("dns:///").removeprefix("passthrough:///")

    @property
    def request_seconds(self) -> float:
        """The time for the calls for one metric, in seconds."""
        return positive_duration("request_timeout", self.request_timeout).total_seconds()


class KedaExternal:
    """Metrics of an external scaler of KEDA, by gRPC.

    A batch calls GetMetrics, IsActive and GetMetricSpec over one connection.
    """

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = ()
    Settings = KedaExternalSettings

    @staticmethod
    def lacks(settings: KedaExternalSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("grpclib", "keda-external")

    def __init__(self, settings: KedaExternalSettings, context: Context) -> None:
        self._calls: Any = extras.load("hpad_adapters.keda_external.calls", "keda-external").Calls
        self.metrics = tuple(settings.metrics)
        self.parameters = frozenset(name for metric in settings.metrics.values() for name in metric.params)
        self._settings = settings
        self._clock = context.clock
        self._seconds = context.within(settings.request_seconds)
        self._late: dict[int, None] = {}
        self._tls = Tls(settings.tls_options) if settings.tls else None
        self._at = host_and_port(settings.plain_address, _EXAMPLE)
        self._where = f"external scaler {settings.address}"

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if TLS cannot be used."""
        tls = await self._tls.context() if self._tls is not None else None
        limit, deadline = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop().time() + self._seconds

        async def one(calls: Any, query: Query) -> Sample:
            try:
                async with asyncio.timeout_at(deadline), limit:
                    return await self._tried(calls, query)
            except TimeoutError:
                text = f'{self._where} did not answer within {self._seconds:g}s about "{query.name}"'
                # A retry would keep the other queries waiting, also of one that had no turn.
                raise AdapterError(text, lasting=True, late=hash(query) in self._late) from None

        turns = {late: turn for turn, late in enumerate(self._late)}
        in_turn = sorted(dict.fromkeys(queries), key=lambda query: turns.get(hash(query), -1))
        with contextlib.closing(self._calls(*self._at, tls, self._settings.server_name)) as calls:
            async with asyncio.TaskGroup() as group:
                tasks = {query: group.create_task(or_error(one, calls, query)) for query in in_turn}
        return [tasks[query].result() for query in queries]

    def group(self, query: Query) -> str:
        """Returns the same for all queries: one connection serves them."""
        return self._where

    def personal(self, query: Query) -> bool:
        """Returns whether the HPA's name is sent."""
        metric = self._settings.metrics.get(query.name)
        return metric is not None and not metric.name

    async def aclose(self) -> None:
        """Does nothing: a connection ends with its batch."""

    async def _tried(self, calls: Any, query: Query) -> Sample:
        """Returns the sample; remembers a metric that has none in time: it comes last, and others need not wait.

        Of those without one the last to have its turn comes last.
        """
        self._late.pop(hash(query), None)
        try:
            return await self._sample(calls, query)
        except asyncio.CancelledError:
            self._late[hash(query)] = None
            if len(self._late) > _MOST_LATE:
                del self._late[next(iter(self._late))]
            raise

    async def _sample(self, calls: Any, query: Query) -> Sample:
        metric = self._settings.metrics.get(query.name)
        if metric is None:
            raise no_metric(query, self._settings.metrics)
        reference = await self._reference(query, metric)
        ask = _Scaler(self._where, calls.call, reference)
        name = metric.metric or await ask.only_metric()
        values = await ask.values(name)
        if metric.inactive == "zero" and not await ask.active():
            values = (0,)
        return ExternalSample(values, self._clock.now())

    async def _reference(self, query: Query, metric: Metric) -> bytes:
        metadata = {"scalerAddress": self._settings.address, **await read_secrets(metric.metadata)}
        metadata |= labels(query, metric.params)
        name = metric.name or (query.hpa.name if query.hpa is not None else "")
        return messages.scaled_object(name, metric.namespace or query.namespace, metadata)


class _Scaler:
    """What one scaler says about one ScaledObject. All methods raise AdapterError."""

    def __init__(self, where: str, call: Callable[[str, bytes], Awaitable[bytes]], reference: bytes) -> None:
        self._where = where
        self._call = call
        self._reference = reference

    async def only_metric(self) -> str:
        """Returns the name of the only metric of GetMetricSpec."""
        names = await self._asked("GetMetricSpec", messages.metric_names)
        if len(names) != 1:
            offered = ", ".join(sorted(names)) or "none"
            raise AdapterError(f"{self._where} offers not one metric but these: {offered}; write `metric`", "spec")
        return str(names[0])

    async def values(self, metric: str) -> tuple[int, ...]:
        """Returns the values of a metric in thousandths."""
        request = messages.metrics_request(self._reference, metric)
        found = await self._asked("GetMetrics", messages.metric_values, request)
        if not found:
            raise AdapterError(f'{self._where} has no value for metric "{metric}"')
        if not all(math.isfinite(value) and abs(value) <= _MOST for value in found):
            raise AdapterError(f'{self._where} has a value for metric "{metric}" that is not a number of 64 bits')
        return tuple(round(value * 1000) for value in found)

    async def active(self) -> bool:
        """Returns the answer to IsActive."""
        return bool(await self._asked("IsActive", messages.is_active))

    async def _asked(self, method: str, decode: Callable[[bytes], Any], request: bytes | None = None) -> Any:
        try:
            return decode(await self._call(method, self._reference if request is None else request))
        except AdapterError as error:
            raise AdapterError(f"{self._where} {error.message}") from None
        except messages.MessageError as error:
            raise AdapterError(f"{self._where} {error}, in answer to {method}") from None
