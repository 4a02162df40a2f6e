"""The credentials for an API server, and their renewal."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ssl import SSLContext
from typing import TypeVar

import structlog

from hpad.clock import Clock
from hpad.telemetry.episode import Episode

T = TypeVar("T")
_EARLY = timedelta(seconds=60)
_READ_TIMEOUT_S = 2.0  # for a renewal, while the current credentials are valid
_MIN_INTERVAL_S = 10.0  # between two readings, even if the server refuses the credentials


class ConfigError(ValueError):
    """There is no usable cluster configuration; the message names the source and the problem."""


@dataclass(frozen=True)
class Credentials:
    """The result of one reading. `authorization` is a header value, never printed; `expires` is None if unknown.

    Raises ConfigError for characters that no header may contain, such as a line break.
    """

    authorization: str = field(default="", repr=False)
    expires: datetime | None = None

    def __post_init__(self) -> None:
        if not self.authorization.isprintable():
            raise ConfigError("the token is none: it holds characters that no token has, such as a line break")


Read = Callable[[], Credentials]
"""Reads the credentials from files or a plugin. Blocks, so it is called in a thread. Raises ConfigError."""


class Identity:
    """The Authorization header. It is read again every `every` seconds, before it expires, and after a refusal.

    If a reading fails, the current credentials stay in use and the reading is repeated later. Only one reading runs at
    a time, and it continues if its caller is cancelled. While the current credentials are valid, a request waits at
    most `patience` seconds for a reading.
    """

    def __init__(
        self,
        initial: Credentials | None = None,
        read: Read | None = None,
        every: float | None = None,
        *,
        patience: float = _READ_TIMEOUT_S,
    ) -> None:
        self._current = initial or Credentials()
        self._headers = _headers(self._current)
        self._read = read
        self._every = every
        self._patience = patience
        self._read_at: float | None = None
        self._stale = False
        self._renewed = False
        self._reading: asyncio.Task[None] | None = None
        self._failing: Episode | None = None
        self._log = structlog.get_logger("hpad.kube")

    async def headers(self, clock: Clock) -> Mapping[str, str]:
        """The headers to send; waits for a reading if one is due."""
        if self._read is not None and self._due(clock):
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._renew(self._read, clock), name="credentials")
            expires = self._current.expires
            ended = self._stale or (expires is not None and clock.now() >= expires)
            await asyncio.wait({self._reading}, timeout=None if ended else self._patience)
        return self._headers

    def refuse(self, sent: Mapping[str, str], clock: Clock) -> bool:
        """Called when the server refused these headers; whether `headers` may return other ones now."""
        if sent is not self._headers:
            return True
        if self._read is None or (self._renewed and self._age(clock) < _MIN_INTERVAL_S):
            return False
        self._stale = True
        return True

    def _due(self, clock: Clock) -> bool:
        age = self._age(clock)
        if self._stale or age < _MIN_INTERVAL_S:
            return self._stale
        expires = self._current.expires
        ending = expires is not None and clock.now() >= expires - _EARLY
        return ending or (self._every is not None and age >= self._every)

    def _age(self, clock: Clock) -> float:
        """Seconds since the last reading, or since the first use."""
        now = clock.monotonic()
        if self._read_at is None:
            self._read_at = now
        return now - self._read_at

    async def _renew(self, read: Read, clock: Clock) -> None:
        cannot, can = "credentials cannot be renewed", "credentials can be renewed again"
        failing = self._failing = self._failing or Episode(self._log, clock, cannot, can)
        try:
            self._current = await aside(read)
        except ConfigError as error:
            failing.occurred(error=str(error))
        except Exception as error:  # noqa: BLE001  # its text may hold a secret; it must not end the caches
            failing.occurred(error=f"bug: {type(error).__name__}")
        else:
            failing.ended()
            self._headers = _headers(self._current)
        self._stale = False
        self._renewed = True
        self._read_at = clock.monotonic()


async def aside(work: Callable[[], T]) -> T:
    """Runs blocking work in a daemon thread, so that a plugin that hangs does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(outcome: T | None, error: BaseException | None) -> None:
        if result.done():  # the caller was cancelled
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(outcome)  # type: ignore[arg-type]  # not None if there is no error

    def run() -> None:
        outcome, failure = None, None
        try:
            outcome = work()
        except Exception as error:  # noqa: BLE001  # raised again in the caller
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, outcome, failure)

    threading.Thread(target=run, name="hpad-credentials", daemon=True).start()
    return await result


def _headers(credentials: Credentials) -> dict[str, str]:
    return {"Authorization": credentials.authorization} if credentials.authorization else {}


@dataclass(frozen=True)
class ClusterConfig:
    """The address of the API server, and how to connect to it.

    `server` is its URL without a trailing slash; `ssl` is None for plain HTTP; `namespace` is that of the context or of
    hpad's own pod; `source` names the origin of the configuration; `certified`: there is a client certificate.
    """

    server: str
    ssl: SSLContext | None = None
    identity: Identity = field(default_factory=Identity)
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    source: str = ""
    certified: bool = False
