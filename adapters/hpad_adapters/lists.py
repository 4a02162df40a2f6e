"""Lists of the API server: the metrics APIs of Kubernetes (metrics.k8s.io and others), and an index of objects."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from hpad.adapter import AdapterError, ApiReader, Context, Selector, fetch_failed, positive_duration, shown
from hpad.adapter_http import UNDECODABLE, count_elements
from hpad_adapters.selection import EQUALITY

T = TypeVar("T")
_CONCURRENCY = 16
_MOST_ELEMENTS = 2_000_000
"""Values, lists and objects of one list; the metrics of a pod have some twenty."""


class ListMetadata(msgspec.Struct, frozen=True, rename={"more": "continue"}):
    """`more` names the next page of a list, "" for the last one."""

    more: str = ""


def sized(body: bytes) -> bytes:
    """Returns the JSON text of a list, before anything is made of it; raises AdapterError if it has too many values."""
    if len(body) > _MOST_ELEMENTS and count_elements(body, _MOST_ELEMENTS) > _MOST_ELEMENTS:
        raise AdapterError(f"the answer has more than {_MOST_ELEMENTS} values", "cluster", lasting=True)
    return body


def segment(text: str) -> str:
    """Returns a name as a segment of a path; raises AdapterError for one that would name another path.

    Kubernetes refuses the same (apimachinery, pkg/api/validation/path: IsValidPathSegmentName).
    """
    if text in (".", "..") or "/" in text or "%" in text:
        raise AdapterError(f"{shown(text)} cannot be part of a path: it is . or .., or contains / or %", "spec")
    return quote(text, safe="")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """request_timeout: of one request, such as "5s"."""

    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        self.timeout_seconds()

    def timeout_seconds(self) -> float:
        """Returns the timeout in seconds; raises ValueError."""
        return positive_duration("request_timeout", self.request_timeout).total_seconds()


class ListReader:
    """Reads one of the APIs ("resource", "custom" or "external"), which its errors name."""

    def __init__(self, api: str, settings: Settings, context: Context) -> None:
        self._api = api
        self._timeout = context.within(settings.timeout_seconds())
        self._server: ApiReader | None = context.api
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def read(self, path: str, params: Mapping[str, str], decoder: msgspec.json.Decoder[T]) -> T:
        """Returns the decoded body; empty parameters are left out.

        Raises AdapterError with the text of Kubernetes and the message of the API server.
        """
        if self._server is None:
            raise fetch_failed(self._api, "hpad runs without an API server; answer this metric from another source")
        parameters = {name: value for name, value in params.items() if value}
        try:
            async with self._semaphore, asyncio.timeout(self._timeout):
                body = await self._server.get(path, parameters)
            return decoder.decode(sized(body))
        except AdapterError as error:
            message = fetch_failed(self._api, error.message).message
            raise AdapterError(message, error.blame, lasting=error.lasting) from None
        except TimeoutError:
            raise fetch_failed(self._api, f"no answer within {self._timeout:g}s") from None
        except UNDECODABLE as error:
            raise fetch_failed(self._api, f"the answer is not a list of metrics: {error}") from None


class LabelIndex(Generic[T]):
    """Objects by each of their labels, so that each of many selectors tests few of them.

    `unlabelled`: whether there are objects, and none of them has a label.
    """

    def __init__(self, objects: Sequence[T], labels: Callable[[T], Mapping[str, str] | None]) -> None:
        self._objects = objects
        self._labels = labels
        self._by_value: dict[str, dict[str, list[T]]] = {}
        """For each label that a selector has asked for, the objects by its value."""
        self.unlabelled = bool(objects) and not any(map(labels, objects))

    def select(self, selector: Selector) -> list[T]:
        """Returns the objects that the selector matches, in their order."""
        exact = [term for term in selector.requirements if term.operator in EQUALITY and len(term.values) == 1]
        narrowed = [self._with(term.key).get(term.values[0], []) for term in exact]
        if len(narrowed) == len(selector.requirements) == 1:
            return narrowed[0]  # as with most selectors: nothing else is required
        candidates = min(narrowed, key=len, default=self._objects)
        return [each for each in candidates if selector.matches(self._labels(each) or {})]

    def _with(self, label: str) -> dict[str, list[T]]:
        """Returns the objects that have the label, by its value."""
        found = self._by_value.get(label)
        if found is None:
            found = self._by_value[label] = {}
            for each in self._objects:
                value = (self._labels(each) or {}).get(label)
                if value is not None:
                    found.setdefault(value, []).append(each)
        return found
