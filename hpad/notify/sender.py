"""Sends the messages for one destination: one request at a time, in order, with a bounded queue and bounded retries."""

import asyncio
import contextlib
import urllib.parse
from collections import deque
from typing import Final

import aiohttp
import structlog

from hpad.adapter import HIDING, AdapterError, Context, hide
from hpad.adapter_http import HttpOptions, Request, Response, SecretRef, TlsOptions, first_line, read_secrets
from hpad.adapter_http.exchange import Exchange
from hpad.adapter_http.options import fits_header
from hpad.api.loopback import is_in_clear
from hpad.api.secrets import Secrets
from hpad.api.text import harmless
from hpad.clock import Clock
from hpad.notify.texts import Body, Notice, Sender, body, most_at_once
from hpad.settings.notify import IN_CLEAR, NotifyDestination, url_fault
from hpad.telemetry.episode import Episode
from hpad.telemetry.series import NotifySeries

MOST_WAITING: Final = 2000
"""Messages that wait for one destination; further ones are dropped and counted."""
PAUSES: Final = (1.0, 5.0, 25.0)
"""Seconds before the second and each further attempt."""
LONGEST_PAUSE: Final = 300.0
"""The longest `Retry-After` that is respected, in seconds."""
ATTEMPT_SECONDS: Final = 10.0
_ANSWER_BYTES: Final = 1 << 16
_APART: Final = 1.0
"""Seconds between two requests: Slack takes about one message per second."""
_LONGEST_ERROR: Final = 300


class RefusedError(Exception):
    """The destination did not take a message. `retry`: it may later, in `after` seconds at the earliest."""

    def __init__(self, text: str, *, retry: bool, after: float = 0.0) -> None:
        super().__init__(text)
        self.retry = retry
        self.after = after


class NoticeSender:
    """The queue and the task of one destination. `trouble` is why the last message could not be sent, else ""."""

    def __init__(self, destination: NotifyDestination, sender: Sender, clock: Clock, series: NotifySeries) -> None:
        self.destination = destination
        self.sender = sender
        self.trouble = ""
        self._clock = clock
        self._series = series
        self._waiting: deque[Notice] = deque()
        self._filled = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._secrets = Secrets()
        self._log = structlog.get_logger("hpad.notify")
        self._outage = Episode(self._log, clock, "messages cannot be sent", "messages can be sent again")
        series.configured(destination.name)

    def offer(self, notice: Notice) -> None:
        """Puts a message at the end of the queue; drops it if the queue is full. Never waits."""
        if self._stopping or len(self._waiting) >= MOST_WAITING:
            self._series.count(self.destination.name, "dropped", 1)
            return
        self._waiting.append(notice)
        self._filled.set()

    def start(self) -> None:
        """Starts the task; needs a running event loop."""
        self._task = asyncio.create_task(self._run(), name=f"notify {self.destination.name}")

    async def stop(self, seconds: float) -> None:
        """Sends what waits, for at most so many seconds, and drops the rest."""
        self._stopping = True
        self._filled.set()
        task = self._task
        if task is None:
            return
        await asyncio.wait((task,), timeout=seconds)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if self._waiting:
            self._series.count(self.destination.name, "dropped", len(self._waiting))
            self._log.warning("messages were not sent", destination=self.destination.name, messages=len(self._waiting))
            self._waiting.clear()

    async def test(self, notice: Notice) -> str:
        """Sends one message at once, in one attempt. Returns why that failed, else ""."""
        HIDING.set(self._secrets.add)
        async with _session() as session:
            try:
                await self._post(self._exchange(session), body(self.destination.form, [notice], self.sender))
            except RefusedError as error:
                return str(error)
        return ""

    async def _run(self) -> None:
        HIDING.set(self._secrets.add)
        async with _session() as session:
            exchange = self._exchange(session)
            while await self._next():
                most = most_at_once(self.destination.form)
                batch = [self._waiting[index] for index in range(min(most, len(self._waiting)))]
                try:
                    sent = await self._deliver(exchange, batch)
                except Exception as error:  # noqa: BLE001  # a bug about one message must not end all messages
                    # Without its text, which may hold the address.
                    name, kind = self.destination.name, type(error).__name__
                    self._log.error("bug: a message could not be sent", destination=name, error=kind)
                    sent = False
                # Not before: what is being sent when hpad stops counts as waiting.
                for _ in batch:
                    self._waiting.popleft()
                self._series.count(self.destination.name, "sent" if sent else "failed", len(batch))
                if self._waiting and most > 1:
                    await self._clock.sleep(_APART)

    async def _next(self) -> bool:
        """Waits for a message; returns False once there is none and hpad stops."""
        while not self._waiting:
            if self._stopping:
                return False
            self._filled.clear()
            await self._filled.wait()
        return True

    async def _deliver(self, exchange: Exchange, batch: list[Notice]) -> bool:
        """Sends messages in at most `1 + len(PAUSES)` attempts; returns whether that succeeded."""
        name, content = self.destination.name, body(self.destination.form, batch, self.sender)
        for pause in (*PAUSES, None):
            try:
                await self._post(exchange, content)
            except RefusedError as error:
                self.trouble = str(error)
                self._outage.occurred(destination=name, error=self.trouble)
                if not error.retry or pause is None or self._stopping:
                    return False
                await self._clock.sleep(max(pause, error.after))
            else:
                self.trouble = ""
                self._outage.ended(destination=name)
                return True
        return False

    async def _post(self, exchange: Exchange, content: Body) -> None:
        """Sends one request. Raises RefusedError with a text that has no secret, and never an address."""
        try:
            url = await self._url()
            headers = {"Content-Type": content.content_type, **await self._authorization(url)}
            # The status says all. An answer may be a whole page, also of a proxy.
            request = Request(url=url, name="it", method="POST", content=content.content, cut=True)
            answer = await exchange.send(request, headers)
        except AdapterError as error:
            raise RefusedError(self._shown(error.message), retry=not error.lasting) from None
        if not 200 <= answer.status < 300:
            raise self._refused(answer)

    def _refused(self, answer: Response) -> RefusedError:
        if 300 <= answer.status < 400:
            text = f"it answers with a redirect ({answer.status}), which is not followed: write the final address"
            return RefusedError(text, retry=False)
        text = self._shown(f"it answers {answer.status}{first_line(answer.body)}")
        retry = answer.status in (408, 425, 429) or answer.status >= 500
        return RefusedError(text, retry=retry, after=_seconds(answer.retry_after))

    async def _url(self) -> str:
        """Returns the address; raises RefusedError if its file has none."""
        file = self.destination.url_file
        if file is None:
            return self.destination.url
        url = (await read_secrets({"url_file": SecretRef(file=str(file))}))["url_file"]
        if fault := url_fault(url):
            raise RefusedError(f"url_file: the content of {file} {fault}", retry=True)
        for part in (urllib.parse.urlsplit(url).path, *urllib.parse.urlsplit(url).path.split("/")):
            if part:
                hide(part)
        return url

    async def _authorization(self, url: str) -> dict[str, str]:
        file = self.destination.token_file
        if file is None:
            return {}
        if is_in_clear(url):
            raise RefusedError(f"token_file: {IN_CLEAR}", retry=False)
        token = (await read_secrets({"token_file": SecretRef(file=str(file))}))["token_file"]
        if not fits_header(token):
            raise RefusedError(f"token_file: {file} has more than one line, or control characters", retry=True)
        return {"Authorization": f"Bearer {token}"}

    def _exchange(self, session: aiohttp.ClientSession) -> Exchange:
        name, ca = self.destination.name, self.destination.ca
        options = HttpOptions(
            tls=TlsOptions(ca="" if ca is None else str(ca)), timeout=ATTEMPT_SECONDS, max_bytes=_ANSWER_BYTES
        )
        return Exchange(Context(name=name, http=session, clock=self._clock, log=self._log), options)

    def _shown(self, text: str) -> str:
        return harmless(self._secrets.hidden(text))[:_LONGEST_ERROR]


def _session() -> aiohttp.ClientSession:
    """Makes a session with one connection, without cookies, compression, and the environment's proxy."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        trust_env=False,
    )


def _seconds(retry_after: str) -> float:
    """Returns the seconds of a `Retry-After` header, within bounds; 0 for none, or for a date."""
    is_number = retry_after.isascii() and retry_after.isdigit()
    return min(float(retry_after[:9]), LONGEST_PAUSE) if is_number else 0.0
