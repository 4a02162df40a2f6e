"""Reads the metrics APIs of Kubernetes (metrics.k8s.io and others) through the API server."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from hpad.adapter import AdapterError, ApiReader, Context, fetch_failed, parse_duration, shown

T = TypeVar("T")
_CONCURRENCY = 16


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """request_timeout: of one request, such as "5s"."""

    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"request_timeout: {shown(self.request_timeout)} is not a duration above zero")

    @property
    def seconds(self) -> float:
        """The timeout in seconds; raises ValueError."""
        return parse_duration(self.request_timeout).total_seconds()


class Reader:
    """Reads one of the APIs ("resource", "custom" or "external"), which its errors name."""

    def __init__(self, api: str, settings: Settings, context: Context) -> None:
        self._api = api
        self._timeout = settings.seconds
        self._server: ApiReader | None = context.api
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    async def read(self, path: str, params: Mapping[str, str], decoder: msgspec.json.Decoder[T]) -> T:
        """The decoded body; empty parameters are left out.

        Raises AdapterError with the text of Kubernetes and the message of the API server.
        """
        if self._server is None:
            raise fetch_failed(self._api, "hpad runs without an API server; answer this metric from another source")
        parameters = {name: value for name, value in params.items() if value}
        try:
            async with self._slots, asyncio.timeout(self._timeout):
                return decoder.decode(await self._server.get(path, parameters))
        except AdapterError as error:
            message = fetch_failed(self._api, error.message).message
            raise AdapterError(message, error.blame, lasting=error.lasting) from None
        except TimeoutError:
            raise fetch_failed(self._api, f"no answer within {self._timeout:g}s") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise fetch_failed(self._api, f"the answer is not a list of metrics: {error}") from None
