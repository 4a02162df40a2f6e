"""One server, one request at a time: what goes wrong gets a sentence of its own, and no secret is in any of them.

Credentials and certificates: from the configuration, the environment, or files read again when they change.
"""

import asyncio
import contextlib
import os
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import aiohttp
import msgspec
import yarl

from hpad.adapter import AdapterError, Context, parse_duration, read_part, reason
from hpad_adapters.prometheus import wire
from hpad_adapters.prometheus.settings import Elsewhere, Settings

_UNFIT = "\r\n\0"


class Secrets:
    """The headers and the TLS context of one source."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files: dict[str, tuple[tuple[int, int], str]] = {}
        self._tls: tuple[tuple[tuple[int, int], ...], ssl.SSLContext] | None = None
        values = (settings.secret, *settings.headers.values())
        self._static = not any(isinstance(value, Elsewhere) for value in values)
        self._headers = self._made() if self._static else None

    async def headers(self) -> dict[str, str]:
        """What to send with a request; raises AdapterError naming the file or variable that is missing."""
        return self._headers if self._headers is not None else await asyncio.to_thread(self._made)

    async def tls(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`; raises AdapterError naming the file that cannot be used."""
        options = self._settings
        if options.insecure and not options.cert:
            return False
        if not options.ca and not options.cert:
            return True
        return await asyncio.to_thread(self._context)

    def _made(self) -> dict[str, str]:
        settings = self._settings
        made = {name: self._text(value, f"headers: {name}") for name, value in settings.headers.items()}
        if settings.secret:
            secret = self._text(settings.secret, "password" if settings.username else "bearer_token")
            basic = settings.username and aiohttp.encode_basic_auth(settings.username, secret)
            made["Authorization"] = basic or f"Bearer {secret}"
        return made

    def _text(self, value: str | Elsewhere, field: str) -> str:
        if isinstance(value, str):
            text = value
        elif value.env:
            if value.env not in os.environ:
                raise AdapterError(f"{field}: the environment variable {value.env} is not set")
            text = os.environ[value.env]
        else:
            text = self._content(value.file, field)
        if any(character in text for character in _UNFIT):
            raise AdapterError(f"{field}: what is there holds a line break, so that no header can carry it")
        return text

    def _content(self, file: str, field: str) -> str:
        try:
            stamp = _stamp(file)
            known = self._files.get(file)
            if known is None or known[0] != stamp:
                known = self._files[file] = stamp, Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"{field}: {file} cannot be read: {_reason(error)}") from None
        if not known[1]:
            raise AdapterError(f"{field}: {file} is empty")
        return known[1]

    def _context(self) -> ssl.SSLContext:
        options = self._settings
        files = [file for file in (options.ca, options.cert, options.key) if file]
        try:
            stamps = tuple(map(_stamp, files))
            if self._tls is None or self._tls[0] != stamps:
                self._tls = stamps, self._loaded()
        except (OSError, ssl.SSLError) as error:
            named = getattr(error, "filename", None) or ", ".join(files)
            raise AdapterError(f"TLS: {named} cannot be used: {_reason(error)}") from None
        return self._tls[1]

    def _loaded(self) -> ssl.SSLContext:
        options = self._settings
        context = ssl.create_default_context(cafile=options.ca or None)
        if options.cert:
            context.load_cert_chain(options.cert, options.key or None)
        if options.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _stamp(file: str) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_mtime_ns, status.st_size


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or reason(error)


_LONGEST_TEXT = 300
_GRACE_SECONDS = 1.0
_MILLISECOND = timedelta(milliseconds=1)
_ADVICE = {
    401: "the credentials are missing or wrong (username, password, bearer_token, headers)",
    403: "the credentials do not allow this",
    404: "there is no Prometheus API at this address; check the url, and its path",
    422: "the query cannot be executed",
    429: "the server has had too many requests",
    503: "the server is overloaded, not ready, or gave up on the query",
}
_THE_QUERYS_FAULT = (400, 422)
_LASTING = (400, 401, 403, 404, 422)
_envelope = msgspec.json.Decoder(wire.Envelope)


class Head(msgspec.Struct, frozen=True):
    """What is known of an answer before its body: `location` is where a redirect leads."""

    status: int
    content_type: str
    location: str


class Access(msgspec.Struct, frozen=True):
    """What it takes to ask the server by other means: `tls` as aiohttp has it, seconds for one answer."""

    base: str
    headers: dict[str, str]
    tls: ssl.SSLContext | bool
    patience: str
    seconds: float
    settings: Settings


class Connection:
    """Speaks to the server of one source. Raises nothing but AdapterError."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._secrets = Secrets(settings)
        patience = parse_duration(settings.query_timeout)
        self._patience = f"{max(1, patience // _MILLISECOND)}ms"  # of Go's durations Prometheus takes no "1.5s"
        self._seconds = patience.total_seconds() + _GRACE_SECONDS
        self._timeout = aiohttp.ClientTimeout(total=self._seconds)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._warned: set[str] = set()
        self._base = settings.url.rstrip("/")
        self._where = f'Prometheus "{context.name}" ({self._base})'

    async def query(self, expression: str, at: float) -> list[wire.Series]:
        """The series of an instant query at that time (seconds since 1970).

        The wait for a turn counts as well: of many slow queries those are answered that were in time, and the rest does
        not hold them up.
        """
        form = {"query": expression, "time": f"{at:.3f}", "timeout": self._patience}
        with self._border():
            async with asyncio.timeout(self._seconds), self._slots:
                data = await self._data("query", form, self._settings.method)
        with self.decoding():
            return wire.series(data)

    async def series_names(self, selector: str, since: float, until: float) -> list[str]:
        """The names of the series that a selector matched between two times."""
        form = {"match[]": selector, "start": f"{since:.3f}", "end": f"{until:.3f}"}
        data = await self._data("label/__name__/values", form, "GET")
        with self.decoding():
            return wire.names(data)

    async def _data(self, call: str, form: Mapping[str, str], method: str) -> msgspec.Raw:
        url = f"{self._base}/api/v1/{call}"
        params = dict(self._settings.params) if method == "POST" else {**self._settings.params, **form}
        if params:
            url = f"{url}?{urllib.parse.urlencode(params)}"
        headers = await self._secrets.headers()
        tls = await self._secrets.tls()
        with self._border():
            async with self._context.http.request(
                method,
                yarl.URL(url, encoded=True),
                data=form if method == "POST" else None,
                headers=headers,
                ssl=tls,
                server_hostname=self._settings.server_name or None,
                allow_redirects=False,
                timeout=self._timeout,
            ) as response:
                body = await self._body(response)
                head = Head(response.status, response.content_type, response.headers.get("Location", ""))
                return self.checked(head, body)

    async def access(self) -> Access:
        """For a history, which is asked in a thread; raises AdapterError."""
        headers, tls = await self._secrets.headers(), await self._secrets.tls()
        return Access(self._base, headers, tls, self._patience, self._seconds, self._settings)

    @property
    def where(self) -> str:
        """The server, as errors name it."""
        return self._where

    def too_long(self) -> AdapterError:
        """That an answer is longer than max_bytes."""
        return AdapterError(
            f"{self._where} answers more than {self._settings.max_bytes} bytes (max_bytes); narrow the query"
        )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        limit = self._settings.max_bytes
        body = bytearray()
        while part := await read_part(response):
            body += part
            if len(body) > limit:
                raise self.too_long()
        return bytes(body)

    def checked(self, head: Head, body: bytes) -> msgspec.Raw:
        """The data of an answer; raises AdapterError for one that is a failure."""
        status = head.status
        if 300 <= status < 400:
            where = _host(head.location)
            raise AdapterError(f"{self._where} redirects to {where}, which is not followed; correct the url")
        if head.content_type != "application/json":
            if status == 200:
                raise AdapterError(f"{self._where} answers {head.content_type}, not JSON; is that a Prometheus?")
            raise AdapterError(self._refusal(status, ""), lasting=status in _LASTING)
        with self.decoding():
            envelope = _envelope.decode(body)
        if status != 200 or envelope.status != "success":
            blame = "spec" if status in _THE_QUERYS_FAULT else "source"
            raise AdapterError(self._refusal(status, envelope.error), blame, lasting=status in _LASTING)
        if envelope.is_partial:
            raise AdapterError(f"{self._where} answers in part only (isPartial): a part of its storage did not answer")
        self._warn(envelope.warnings)
        return envelope.data

    def _refusal(self, status: int, said: str) -> str:
        advice = f", {_ADVICE[status]}" if status in _ADVICE else ""
        text = f": {said[:_LONGEST_TEXT]}" if said else ""
        return f"{self._where} answers {status}{advice}{text}"

    def _warn(self, warnings: list[str]) -> None:
        """Each warning once, not once a tick."""
        for warning in set(warnings) - self._warned:
            self._context.log.warning("prometheus warns", source=self._context.name, warning=warning[:_LONGEST_TEXT])
        self._warned = set(warnings) | (self._warned if len(self._warned) < 100 else set())

    @contextlib.contextmanager
    def decoding(self) -> Iterator[None]:
        """What cannot be decoded as an AdapterError."""
        try:
            yield
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise AdapterError(f"{self._where} answers JSON that is cut off or not that of Prometheus") from None

    @contextlib.contextmanager
    def _border(self) -> Iterator[None]:
        """Every failure of the connection as an AdapterError."""
        try:
            yield
        except aiohttp.ClientConnectorDNSError:
            raise AdapterError(f"{self._where}: the name of the host is not known (DNS)") from None
        except aiohttp.ClientConnectorCertificateError as error:
            fault = getattr(error.certificate_error, "verify_message", "") or "it cannot be verified"
            raise AdapterError(f"{self._where}: the server's certificate is not trusted: {fault} (ca)") from None
        except aiohttp.ClientSSLError:
            raise AdapterError(f"{self._where}: no TLS connection; does the server speak TLS?") from None
        except aiohttp.ClientConnectorError as error:
            raise AdapterError(f"{self._where} cannot be reached: {error.strerror or 'no connection'}") from None
        except TimeoutError:
            raise AdapterError(f"{self._where} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            # In TLS 1.3 a server refuses a client's certificate, or the lack of one, only after the handshake.
            refused = isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError)
            what = "closed the TLS connection; does it want a cert?" if refused else "broke off its answer"
            raise AdapterError(f"{self._where} {what} ({reason(error)})") from None


def _host(location: str) -> str:
    """Where a redirect leads, without its path and parameters, which may hold secrets."""
    parts = urllib.parse.urlsplit(location)
    return f"{parts.scheme}://{parts.hostname}" if parts.hostname else "another path"
