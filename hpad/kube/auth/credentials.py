"""The credentials for an API server, and their renewal."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
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
            raise ConfigError("the token is invalid: it contains characters such as a line break")


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
        """Returns the headers to send; waits for a reading if one is due."""
        if self._read is not None and self._due(clock):
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._renew(self._read, clock), name="credentials")
            expires = self._current.expires
            invalid = self._stale or (expires is not None and clock.now() >= expires)
            await asyncio.wait({self._reading}, timeout=None if invalid else self._patience)
        return self._headers

    def refuse(self, sent: Mapping[str, str], clock: Clock) -> bool:
        """Called when the server refused these headers; returns whether `headers` may return other ones now."""
        if sent is not self._headers:  # renewed since, after the refusal of another request
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
        expires_soon = expires is not None and clock.now() >= expires - _EARLY
        return expires_soon or (self._every is not None and age >= self._every)

    def _age(self, clock: Clock) -> float:
        """Returns the seconds since the last reading, or since the first use."""
        now = clock.monotonic()
        if self._read_at is None:
            self._read_at = now
        return now - self._read_at

    async def _renew(self, read: Read, clock: Clock) -> None:
        begins, ends = "credentials cannot be renewed", "credentials can be renewed again"
        failing = self._failing = self._failing or Episode(self._log, clock, begins, ends)
        try:
            self._current = await run_in_thread(read)
        except ConfigError as error:
            failing.occurred(error=str(error))
        except Exception as error:  # noqa: BLE001  # its text may contain a secret; the caches go on
            failing.occurred(error=f"bug: {type(error).__name__}")
        else:
            failing.ended()
            self._headers = _headers(self._current)
        self._stale = False
        self._renewed = True
        self._read_at = clock.monotonic()


async def run_in_thread(work: Callable[[], T]) -> T:
    """Runs blocking work in a daemon thread, so that a plugin that hangs does not delay the end of the process."""
    result: futures.Future[T] = futures.Future()

    def run() -> None:
        with contextlib.suppress(futures.InvalidStateError):  # the caller was cancelled
            try:
                result.set_result(work())
            except Exception as error:  # noqa: BLE001  # raised again in the caller
                result.set_exception(error)

    threading.Thread(target=run, name="hpad-credentials", daemon=True).start()
    return await asyncio.wrap_future(result)


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
