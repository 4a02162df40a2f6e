"""External metrics from external.metrics.k8s.io, which KEDA, prometheus-adapter and others serve.

Reference: k8s.io/metrics, API external.metrics.k8s.io/v1beta1.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from hpad.adapter import (
    EXTERNAL,
    Answer,
    Context,
    ExternalMetricValueList,
    ExternalSample,
    Query,
    external_sample,
    or_error,
)
from hpad_adapters import lists

_LIST = msgspec.json.Decoder(ExternalMetricValueList)


class ExternalMetrics:
    """External metrics of the API external.metrics.k8s.io, which one server per cluster serves.

    Each metric and selector is one request. The API has no list of several metrics, and a list without a selector could
    not be divided here: the selector also determines which series go into a value, or (with KEDA) which server answers.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = lists.Reader("external", configured, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns the values of all series that the metric's selector matches."""
        return list(await asyncio.gather(*(or_error(self._one(query)) for query in queries)))

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    async def _one(self, query: Query) -> ExternalSample:
        namespace, name = lists.segment(query.namespace), lists.segment(query.name)
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}"
        selector = "" if query.selector is None else str(query.selector)
        return external_sample((await self._reader.read(path, {"labelSelector": selector}, _LIST)).items or ())
