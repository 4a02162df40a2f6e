"""HTTP requests to one API server: bytes in, bytes out, with timeouts, a rate limit, and credentials kept fresh."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Self
from urllib.parse import quote, urlencode, urlsplit

import structlog
from multidict import CIMultiDict

import hpad
from hpad.api.secrets import Secrets, of_url
from hpad.clock import Clock
from hpad.kube import errors, paths
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.exchange import AnswerTooLarge, Failed, HttpAnswer, HttpRequest
from hpad.kube.session import SAFE, HttpStream, Session, whole
from hpad.kube.session import Allowed as Allowed  # also a part of this module
from hpad.kube.session import NotAllowed as NotAllowed

Observe = Callable[[str, str, str, float], None]
"""Called for each answer with method, host, status code as text ("<error>" if there is none), and seconds."""

LARGEST_ANSWER = 512 * 2**20
"""The size of the largest accepted answer in bytes: a list of 100,000 pods in one page, or metrics of a million."""
_MOST_RETRIES = 3  # after answers with status 429
_LONGEST_RETRY_AFTER_S = 10.0
USER_AGENT = f"hpad/{hpad.__version__}"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
_JSON: Final = "application/json"
_NO_ANSWER: Final = "<error>"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.\-/%:@!$&'()*+,;=~]*").fullmatch
_LONG_WAIT_S: Final = 1.0
_WARN_EVERY_S: Final = 60.0
_ONE: Final = 1.0 - 1e-9
"""A token, less the rounding error of adding fractions."""


BURST: Final = 30
"""The requests that a limiter lets through at once: the default of kube-controller-manager."""


class Limiter:
    """A token bucket like client-go's (util/flowcontrol): `qps` requests a second on average, `burst` at once.

    Requests are served in the order of arrival. A cancelled request uses no token. By default there is no limiter:
    API servers protect themselves (API priority and fairness).
    """

    def __init__(self, clock: Clock, qps: float, burst: int = BURST) -> None:
        self.waiting = 0
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()
        self._warned_at = -_WARN_EVERY_S
        self._first = asyncio.Lock()  # taken by the first of the waiting requests

    async def acquire(self) -> None:
        """Waits until one more request may be sent."""
        self.waiting += 1
        try:
            self._fill()
            self._warn((self.waiting - self._tokens) / self._qps)
            async with self._first:
                self._fill()
                while self._tokens < _ONE:
                    await self._clock.sleep((1.0 - self._tokens) / self._qps)
                    self._fill()
                self._tokens -= 1.0
        finally:
            self.waiting -= 1

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    def _warn(self, seconds: float) -> None:
        """Warns, at most once a minute, if the latest request will wait for a second or more."""
        now = self._clock.monotonic()
        if seconds >= _LONG_WAIT_S and now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            structlog.get_logger("hpad.kube").warning(
                "requests to the API server are delayed by the limit kube_api_qps",
                kube_api_qps=self._qps,
                seconds=round(seconds, 1),
                waiting=self.waiting,
            )


class Client:
    """Sends requests to the API server of a ClusterConfig; use it as an async context manager, or call `aclose`.

    `timeout` bounds one attempt in seconds, from connecting to the last byte, without the wait for `limiter`. These
    requests are repeated: a GET, PUT (with its resourceVersion) or DELETE once if its connection was closed without an
    answer; any after 429 with Retry-After, three times; any once with renewed credentials after 401 or a failed TLS
    handshake. An answer of more than `largest` bytes is refused;
    streams have no such limit.
    """

    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock,
        *,
        user_agent: str = USER_AGENT,
        timeout: float = 10.0,
        observe: Observe | None = None,
        limiter: Limiter | None = None,
        largest: int = LARGEST_ANSWER,
    ) -> None:
        self.config = config
        self.clock = clock
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number of answers by (method, status code)."""
        self._timeout = timeout
        self._observe = observe
        self._limiter = limiter
        self._largest = largest
        self._host = urlsplit(config.server).netloc
        self._session = Session(config, user_agent, largest)
        self._credentials: Mapping[str, str] | None = None
        """Those that were sent last."""
        self._refused: Mapping[str, str] | None = None
        """Those that were refused with a client certificate, for as long as there are no others."""
        self._secrets = Secrets(text for name, text in of_url(config.proxy or "") if name == "password")
        self._headers: dict[tuple[str, str | None], Mapping[str, str]] = {}
        """By media types (accepted, sent), with `_credentials`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections; later requests fail with status 0."""
        await self._session.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,
        allowed: Allowed | None = None,
    ) -> bytes:
        """Returns the body of a 2xx answer. Raises ApiError for any other answer, and with status 0 for none.

        Calls `allowed` where it hands over a request with a body; an exception of `allowed` reaches the caller. The
        request ends at the latest after the seconds that `allowed` returns: it fails, and nothing more of it is sent.
        """
        waits, renewed = 0, False
        media = (accept, None if body is None else content_type)
        while True:
            credentials = await self._current_credentials()
            request = HttpRequest(method, _target(path, params), self._headers_of(media, credentials), body)
            try:
                return (await self._attempt(request, path, timeout, allowed)).body
            except errors.ApiError as error:
                # Once only: a server that refuses renewed credentials as well would receive requests in a loop.
                if error.unauthenticated and not renewed and self._refuse(credentials):
                    renewed = True
                elif error.status == 429 and error.retry_after is not None and waits < _MOST_RETRIES:
                    waits += 1
                    await self.clock.sleep(min(error.retry_after, _LONGEST_RETRY_AFTER_S))
                else:
                    self._renew_after_disconnect(error, credentials)
                    raise

    async def answer(self, path: str, timeout: float) -> HttpAnswer:
        """Returns the 2xx answer to a GET with its headers. Repeats nothing. Raises ApiError."""
        headers = self._headers_of((_JSON, None), await self._current_credentials())
        return await self._attempt(HttpRequest("GET", _target(path, None), headers), path, timeout, None)

    async def stream(
        self, path: str, params: Mapping[str, str], silence: float, pause: float = 0.0
    ) -> AsyncGenerator[bytes, None]:
        """Yields the chunks of a long GET as they arrive, until the server ends it.

        After each chunk nothing is read for `pause` seconds, so that what arrives meanwhile is one chunk.

        Raises ApiError: before the first chunk if the answer is not 2xx, later if the connection breaks or brings
        nothing for `silence` seconds.
        """
        credentials = await self._current_credentials()
        headers = self._headers_of((_JSON, None), credentials)
        try:
            async with self._streamed(path, _target(path, params), headers, silence) as answer:
                while part := await answer.read():
                    if pause:
                        await answer.hold(lambda: self.clock.sleep(pause))
                    yield part
        except errors.ApiError as error:
            if error.unauthenticated:
                self._refuse(credentials)
            self._renew_after_disconnect(error, credentials)
            raise

    async def _current_credentials(self) -> Mapping[str, str]:
        """Returns the credentials to send. An open connection keeps its client certificate, so it is not used again
        once there is another one in place of one that was refused."""
        credentials = await self.config.identity.headers(self.clock)
        if self._refused is not None and credentials is not self._refused:
            self._refused = None
            self._session.renew()
        return credentials

    def _refuse(self, credentials: Mapping[str, str]) -> bool:
        """Called when the server has refused these credentials; returns whether there may be other ones now."""
        other = self.config.identity.refuse(credentials, self.clock)
        if other and self.config.certified and credentials is self._credentials:
            self._refused = credentials
        return other

    def _renew_after_disconnect(self, error: errors.ApiError, credentials: Mapping[str, str]) -> None:
        """Reads a client certificate again after a dropped connection: with TLS 1.3 a server refuses it that way."""
        if self.config.certified and error.reason == errors.DISCONNECTED:
            self.config.identity.refuse(credentials, self.clock)

    def _headers_of(self, media: tuple[str, str | None], credentials: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the headers for media types (accepted, sent), which change only with the credentials."""
        if credentials is not self._credentials:
            self._credentials = credentials
            self._headers.clear()
            for secret in credentials.values():
                self._secrets.add(secret)
        headers = self._headers.get(media)
        if headers is None:
            accept, content_type = media
            typed = {} if content_type is None else {"Content-Type": content_type}
            headers = self._headers[media] = CIMultiDict({"Accept": accept, **typed, **credentials})
        return headers

    async def _attempt(
        self, request: HttpRequest, path: str, timeout: float | None, allowed: Allowed | None
    ) -> HttpAnswer:
        """Sends the request once and counts the answer. Raises ApiError unless it has a 2xx status."""
        if self._limiter is not None:
            await self._limiter.acquire()
        began, code = self.clock.monotonic(), _NO_ANSWER
        try:
            answer = await self._session.send(request, timeout or self._timeout, allowed)
            code = str(answer.status)
            if not 200 <= answer.status < 300:
                raise self._refusal(answer, answer.body, paths.described(request.method, path))
            return answer
        except Failed as failure:
            code = str(failure.status) if failure.status else _NO_ANSWER
            raise self._failed(failure, request.method, path) from failure
        finally:
            self._count(request.method, code, began)

    @asynccontextmanager
    async def _streamed(
        self, path: str, target: str, headers: Mapping[str, str], silence: float
    ) -> AsyncIterator[HttpStream]:
        """Starts a stream and counts the status code. Raises ApiError unless the answer has a 2xx status."""
        if self._limiter is not None:
            await self._limiter.acquire()
        began, code = self.clock.monotonic(), _NO_ANSWER
        try:
            async with self._session.stream(target, headers, silence) as answer:
                code = str(answer.status)
                if not 200 <= answer.status < 300:
                    body = await whole(answer, self._largest)
                    raise self._refusal(answer, body, paths.described("GET", path))
                yield answer
        except Failed as failure:
            raise self._failed(failure, "GET", path) from failure
        finally:
            self._count("GET", code, began)

    def _refusal(self, answer: HttpAnswer | HttpStream, body: bytes, request: str) -> errors.ApiError:
        """Returns the error in an answer, which may repeat the credentials: a server or a proxy chooses its text."""
        error = errors.from_answer(answer.status, body, answer.headers, request)
        error.message = self._secrets.hidden(error.message)
        return error

    def _failed(self, failure: Failed, method: str, path: str) -> errors.ApiError:
        """Returns the error of a request without an answer; the text of a proxy may repeat its credentials."""
        message = failure.message
        if isinstance(failure, AnswerTooLarge):
            message = f"the answer to {method} {path} is larger than {self._largest / 2**20:g} MiB: not read"
        return errors.ApiError(0, failure.reason, self._secrets.hidden(message))

    def _count(self, method: str, code: str, began: float) -> None:
        self.requests[method, code] += 1
        if self._observe is not None:
            self._observe(method, self._host, code, self.clock.monotonic() - began)


def _target(path: str, params: Mapping[str, str] | None) -> str:
    """Escapes the parameters, and characters of the path that are not escaped yet."""
    escaped = path if _PLAIN(path) else quote(path, safe=SAFE)
    return f"{escaped}?{urlencode(params, quote_via=quote)}" if params else escaped
