"""Who hpad is to an API server, and how that is kept fresh: tokens, certificates and their renewal."""

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
_PATIENCE_S = 2.0  # with a reading, while what is held is good still
_LEAST_S = 10.0  # between two readings, however often the server refuses us


class ConfigError(ValueError):
    """There is no usable configuration of a cluster; the message says where it was looked for and what is missing."""


@dataclass(frozen=True)
class Credentials:
    """What one reading gave. `authorization` is a header value and never printed; `expires` None where unknown.

    Raises ConfigError for what no header can carry: a token file of two lines, say.
    """

    authorization: str = field(default="", repr=False)
    expires: datetime | None = None

    def __post_init__(self) -> None:
        if not self.authorization.isprintable():
            raise ConfigError("the token is none: it holds characters that no token has, such as a line break")


Read = Callable[[], Credentials]
"""Read the credentials anew (files, a plugin, an identity provider). Blocks: called in a thread. Raises ConfigError."""


class Identity:
    """The Authorization header of each request, read anew every `every` seconds, before it expires, and when refused.

    Where a reading fails, the credentials held stay in use and the reading is tried again a little later. There is one
    reading at a time, and it goes on whoever has stopped waiting for it: a provider takes each refresh token once.
    While those held are good still, nobody waits for a reading for more than `patience` seconds.
    """

    def __init__(
        self,
        held: Credentials | None = None,
        read: Read | None = None,
        every: float | None = None,
        *,
        patience: float = _PATIENCE_S,
    ) -> None:
        self._held = held or Credentials()
        self._headers = _headers(self._held)
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
        """The headers to send; waits for a reading where one is due."""
        if self._read is not None and self._due(clock):
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._renew(self._read, clock), name="credentials")
            expires = self._held.expires
            ended = self._stale or (expires is not None and clock.now() >= expires)
            await asyncio.wait({self._reading}, timeout=None if ended else self._patience)
        return self._headers

    def refuse(self, sent: Mapping[str, str], clock: Clock) -> bool:
        """The server answered 401 to these headers: whether asking `headers` again may bring better ones."""
        if sent is not self._headers:
            return True
        if self._read is None or (self._renewed and self._age(clock) < _LEAST_S):
            return False
        self._stale = True
        return True

    def _due(self, clock: Clock) -> bool:
        age = self._age(clock)
        if self._stale or age < _LEAST_S:
            return self._stale
        expires = self._held.expires
        ending = expires is not None and clock.now() >= expires - _EARLY
        return ending or (self._every is not None and age >= self._every)

    def _age(self, clock: Clock) -> float:
        """Seconds since the last reading; the first counts from the first use."""
        now = clock.monotonic()
        if self._read_at is None:
            self._read_at = now
        return now - self._read_at

    async def _renew(self, read: Read, clock: Clock) -> None:
        cannot, can = "credentials cannot be renewed", "credentials can be renewed again"
        failing = self._failing = self._failing or Episode(self._log, clock, cannot, can)
        try:
            self._held = await aside(read)
        except ConfigError as error:
            failing.occurred(error=str(error))
        except Exception as error:  # noqa: BLE001  # what it says may hold a secret; caches must not end for it
            failing.occurred(error=f"bug: {type(error).__name__}")
        else:
            failing.ended()
            self._headers = _headers(self._held)
        self._stale = False
        self._renewed = True
        self._read_at = clock.monotonic()


async def aside(work: Callable[[], T]) -> T:
    """Have it done in a thread that keeps nobody from ending the process: a plugin may take a minute to say nothing."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(outcome: T | None, error: BaseException | None) -> None:
        if result.done():  # whoever waited has been cancelled
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(outcome)  # type: ignore[arg-type]  # there is one where there is no error

    def run() -> None:
        outcome, failure = None, None
        try:
            outcome = work()
        except Exception as error:  # noqa: BLE001  # raised again where it is waited for
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, outcome, failure)

    threading.Thread(target=run, name="hpad-credentials", daemon=True).start()
    return await result


def _headers(credentials: Credentials) -> dict[str, str]:
    return {"Authorization": credentials.authorization} if credentials.authorization else {}


@dataclass(frozen=True)
class ClusterConfig:
    """Where the API server is and how to speak to it.

    `server` is its URL without a slash at the end; `ssl` None for plain HTTP; `namespace` the one of the context, or of
    the pod hpad runs in; `source` says where all this comes from; `certified`: a client certificate says who we are.
    """

    server: str
    ssl: SSLContext | None = None
    identity: Identity = field(default_factory=Identity)
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    source: str = ""
    certified: bool = False
