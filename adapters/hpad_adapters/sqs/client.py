"""Requests to Amazon SQS and STS, by aiobotocore. Everything here runs on the thread of the source."""

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore import exceptions
from botocore.loaders import create_loader

from hpad.adapter import AdapterError, Context, hide, or_error, shown
from hpad.adapter_http import read_secrets
from hpad_adapters.sqs.settings import ATTRIBUTES, SqsSettings

MAX_BYTES = 1 << 20
"""The limit for one response; those of interest have some hundred bytes."""
_SECONDS = 5
_AT_ONCE = 16
_MOST_URLS = 4096
_EARLY_SECONDS = 300.0
_SESSION_NAME = "hpad"
_NO_QUEUE = ("NonExistentQueue", "QueueDoesNotExist")
_LONGEST_MESSAGE = 300


class _TooMuchError(Exception):
    """The response has more than MAX_BYTES."""


class _Response(AioAWSResponse):
    async def _content_prop(self) -> bytes:
        if self._content is None:
            parts = bytearray()
            async for part in self.raw.content.iter_any():
                parts += part
                if len(parts) > MAX_BYTES:
                    raise _TooMuchError
            self._content: bytes | None = bytes(parts)
        return self._content


class _Http(AIOHTTPSession):
    """Bounds responses, which the library reads whole, follows no redirect and keeps no cookie, as `Exchange` does."""

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        session.cookie_jar.clear()
        return SimpleNamespace(request=functools.partial(session.request, allow_redirects=False))

    async def send(self, request: Any) -> Any:
        # A streamed response is one that `send` does not read.
        streams, request.stream_output = request.stream_output, True
        try:
            found = await super().send(request)
        finally:
            request.stream_output = streams
        bounded = _Response(found.url, found.status_code, found.headers, found.raw)
        if not streams:
            try:
                await bounded.content
            except BaseException as error:
                found.raw.close()
                if not isinstance(error, aiohttp.ClientError):
                    raise
                raise exceptions.ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from None
        return bounded


class _Opened:
    """One client of the library. Batches share it, and the last one closes it once another has taken its place."""

    def __init__(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self.client: Any = None
        self.until = math.inf
        """When the keys of a role are renewed, in seconds of the monotonic clock."""
        self.users = 0
        self.failed = False


class SqsClient:
    """The client of one source: made when it is first needed, and again after a failure and before a role expires."""

    def __init__(self, settings: SqsSettings, context: Context) -> None:
        self._settings = settings
        self._clock = context.clock
        self._urls: dict[str, str] = {}
        self._opened: _Opened | None = None
        self._lock = asyncio.Lock()

    async def counts(self, queues: Iterable[str]) -> dict[str, dict[str, int] | AdapterError]:
        """Returns the attributes of each queue, or its error; raises AdapterError if there are no credentials."""
        limit = asyncio.Semaphore(_AT_ONCE)
        async with self._current() as opened:

            async def one(queue: str) -> dict[str, int] | AdapterError:
                async with limit:
                    return await or_error(self._attributes, opened, queue)

            names = list(queues)
            return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))

    async def close(self) -> None:
        """Closes the connections, once no batch uses them."""
        opened, self._opened = self._opened, None
        if opened is not None and not opened.users:
            await opened.stack.aclose()

    async def _attributes(self, opened: _Opened, queue: str) -> dict[str, int]:
        try:
            url = await self._url(opened.client, queue)
            names = list(ATTRIBUTES.values())
            answer = await opened.client.get_queue_attributes(QueueUrl=url, AttributeNames=names)
        except Exception as error:  # noqa: BLE001  # the library raises many kinds, and any for a malformed response
            self._urls.pop(queue, None)
            mapped = _mapped(f"queue {shown(queue)}", error)
            opened.failed = opened.failed or mapped.blame != "spec"  # a new client reads rotated credentials
            raise mapped from None
        found = answer.get("Attributes") or {}
        if not isinstance(found, dict) or not all(_is_count(found.get(name)) for name in names):
            raise AdapterError(f"SQS: queue {shown(queue)}: the answer lacks counts of messages")
        return {name: int(found[name]) for name in names}

    async def _url(self, client: Any, queue: str) -> str:
        if "/" in queue:
            return queue
        if queue not in self._urls:
            owner = {"QueueOwnerAWSAccountId": self._settings.account} if self._settings.account else {}
            url = (await client.get_queue_url(QueueName=queue, **owner))["QueueUrl"]
            while len(self._urls) >= _MOST_URLS:
                del self._urls[next(iter(self._urls))]
            self._urls[queue] = url
        return self._urls[queue]

    @contextlib.asynccontextmanager
    async def _current(self) -> AsyncIterator[_Opened]:
        """Yields the client of the source, or a new one; raises AdapterError."""
        async with self._lock:
            opened = self._opened
            if opened is None or opened.failed or self._clock.monotonic() >= opened.until:
                await self.close()
                opened = self._opened = await self._signed_in()
            opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            if opened is not self._opened and not opened.users:
                await opened.stack.aclose()

    async def _signed_in(self) -> _Opened:
        opened = _Opened()
        try:
            await self._connect(opened)
        except Exception as error:  # noqa: BLE001  # the library raises many kinds
            await opened.stack.aclose()
            raise error if isinstance(error, AdapterError) else _mapped("sign-in", error) from None
        return opened

    async def _connect(self, opened: _Opened) -> None:
        settings = self._settings
        session = AioSession(profile=settings.profile or None)
        session.register_component("data_loader", _descriptions())
        keys = await self._own_keys()
        if settings.role_arn:
            async with session.create_client("sts", **self._options(settings.sts_endpoint_url), **keys) as sts:
                keys = await self._role_keys(sts, opened)
        elif not keys and await session.get_credentials() is None:
            raise AdapterError("SQS: there are no AWS credentials: see access_key_id, profile and role_arn")
        made = session.create_client("sqs", **self._options(settings.endpoint_url), **keys)
        opened.client = await opened.stack.enter_async_context(made)

    def _options(self, endpoint: str) -> dict[str, Any]:
        config = AioConfig(
            connect_timeout=_SECONDS,
            read_timeout=_SECONDS,
            retries={"total_max_attempts": 1, "mode": "standard"},
            http_session_cls=_Http,
        )
        region = self._settings.region
        return (
            {"config": config}
            | ({"region_name": region} if region else {})
            | ({"endpoint_url": endpoint} if endpoint else {})
        )

    async def _own_keys(self) -> dict[str, str]:
        settings = self._settings
        if not settings.access_key_id:
            return {}
        secret = (await read_secrets({"secret_access_key": settings.secret}))["secret_access_key"]
        return {"aws_access_key_id": settings.access_key_id, "aws_secret_access_key": secret}

    async def _role_keys(self, sts: Any, opened: _Opened) -> dict[str, str]:
        settings = self._settings
        external = {"ExternalId": settings.external_id} if settings.external_id else {}
        answer = await sts.assume_role(RoleArn=settings.role_arn, RoleSessionName=_SESSION_NAME, **external)
        found = answer["Credentials"]
        hide(found["SecretAccessKey"])
        hide(found["SessionToken"])
        life: timedelta = found["Expiration"] - self._clock.now()
        opened.until = self._clock.monotonic() + life.total_seconds() - _EARLY_SECONDS
        return {
            "aws_access_key_id": found["AccessKeyId"],
            "aws_secret_access_key": found["SecretAccessKey"],
            "aws_session_token": found["SessionToken"],
        }


@functools.lru_cache(maxsize=1)
def _descriptions() -> Any:
    """Returns the loader of service descriptions, which keeps them: a client then takes 0.03 s instead of 0.25."""
    return create_loader()


def _is_count(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 16


def _mapped(what: str, error: Exception) -> AdapterError:
    """Returns the error of the library in the words of hpad. A URL in its text holds no credentials."""
    if isinstance(error, exceptions.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if 300 <= status < 400:
            return AdapterError(f"SQS: {what}: a redirect ({status}), which is not followed: write the final address")
        fault = error.response.get("Error", {})
        code, text = str(fault.get("Code", "")), str(fault.get("Message", ""))
        blame: Any = "spec" if code.endswith(_NO_QUEUE) else "source"
        return AdapterError(f"SQS: {what}: {code}: {text[:_LONGEST_MESSAGE]}", blame)
    if isinstance(error, exceptions.HTTPClientError) and isinstance(error.kwargs.get("error"), _TooMuchError):
        error = error.kwargs["error"]
    if isinstance(error, _TooMuchError):
        return AdapterError(f"SQS: {what}: the answer has more than {MAX_BYTES >> 20} MiB")
    if isinstance(error, exceptions.BotoCoreError):
        return AdapterError(f"SQS: {what}: {str(error)[:_LONGEST_MESSAGE]}")
    return AdapterError(f"SQS: {what}: the answer is not one of SQS ({type(error).__name__})")
