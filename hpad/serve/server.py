"""The read-only HTTP server: /metrics, /livez, /readyz, /healthz, the JSON API and the status page that uses it."""

import asyncio
import contextlib
import errno
import functools
import os
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol, cast

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from hpad.api.text import harmless
from hpad.clock import Clock, SystemClock
from hpad.kube import errors
from hpad.serve import ServeError as ServeError
from hpad.serve import api, authentication, document, limits, stream
from hpad.serve.api_types import Status
from hpad.serve.authentication import Reviewer
from hpad.serve.operations import PREFIX
from hpad.settings.model import Serving
from hpad.telemetry import CONTENT_TYPE, Telemetry

DOCUMENT: Final = document.document()
PROBES: Final = ("/livez", "/readyz", "/healthz")
"""Paths that need no authentication, because a kubelet has no credentials. Any Host header will do."""
_ERROR_HEADERS: Final = ("WWW-Authenticate", "Allow", "Retry-After")
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": DOCUMENT.policy,
}


class Present(Protocol):
    """What hpad does at present. `unready`: the reasons why it is not ready; `problems`: each in one sentence.

    `mode`: the status without these two.
    """

    def unready(self) -> list[str]: ...
    def problems(self) -> list[str]: ...
    def mode(self) -> Status: ...


Stamp = tuple[tuple[int, int, int], ...]


class Certificates:
    """An SSL context that always uses the latest valid version of the certificate files.

    `context` is None before the first `refresh`, and the same object ever after. Each version of certificate and key
    becomes a context of its own, to which new handshakes switch.
    """

    def __init__(self, serving: Serving) -> None:
        self._files = {
            "tls_cert_file": serving.certificate,
            "tls_private_key_file": serving.private_key,
        }
        self._stamp: Stamp = ()
        self._latest: ssl.SSLContext
        self.context: ssl.SSLContext | None = None

    def refresh(self) -> bool:
        """Loads the files if they changed, and returns whether they did. Blocks.

        Raises ServeError for an unusable version; the previous version stays in use.
        """
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        self._latest = self._load()
        self._stamp = stamp
        if self.context is None:
            self.context = self._latest
            # Called in each handshake, also without a server name in it: the listener keeps its first context for good.
            self.context.sni_callback = self._switch_context
        return True

    def _switch_context(self, tls: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _front: ssl.SSLContext) -> None:
        tls.context = self._latest

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without resumption: a resumed session would outlive a certificate that was replaced.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        certificate, key = self._files.values()
        assert certificate is not None
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            files = f"tls_cert_file {certificate}, tls_private_key_file {key}"
            raise ServeError(f"{files}: cannot be used for TLS: {_reason(error)}") from None
        return context

    def _read_stamp(self) -> Stamp:
        """Returns inode, size and time of each file: they change when it is replaced, also through a symbolic link."""
        stamps = []
        for setting, file in self._files.items():
            if file is None:
                continue
            try:
                found = os.stat(file)
            except OSError as error:
                raise ServeError(f"{setting}: {file}: {error.strerror}") from None
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return tuple(stamps)


def _no_password() -> str:
    """Refuses encrypted keys. Without a callback OpenSSL would prompt on the terminal."""
    raise ValueError("the private key is encrypted; hpad needs an unencrypted key")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)


class ServedFiles(NamedTuple):
    """The certificate and the tokens, None if not configured. Their `refresh` reads them again."""

    certificates: Certificates | None
    tokens: authentication.Tokens | None

    @property
    def configured(self) -> "list[Certificates | authentication.Tokens]":
        return [each for each in (self.certificates, self.tokens) if each is not None]

    @classmethod
    def of(cls, serving: Serving) -> "ServedFiles":
        return cls(
            None if serving.certificate is None else Certificates(serving),
            None if serving.token_file is None else authentication.Tokens(serving.token_file),
        )


class Server:
    """Listens after `start`; `url` is then its address.

    `serving` configures TLS and authentication; neither by default. `reviewer` is needed if `serving.review` is set.
    """

    def __init__(
        self,
        address: tuple[str, int],
        shown: api.Shown,
        present: Present,
        telemetry: Telemetry,
        *,
        serving: Serving = Serving(),  # noqa: B008  # frozen
        reviewer: Reviewer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self._telemetry = telemetry
        self._present = present
        self._clock: Clock = clock or SystemClock()
        self._api = api.Api(shown, status=self._status, dry_run=lambda: present.mode().dry_run, clock=self._clock)
        self._files = ServedFiles.of(serving)
        self._authenticator = authentication.Authenticator(
            tokens=self._files.tokens,
            reviewer=reviewer if serving.review else None,
            clock=self._clock,
        )
        self._requests = asyncio.Semaphore(limits.CONCURRENT_REQUESTS)
        self._local_names_only = False
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._errors: dict[str, str] = {}
        self._log = structlog.get_logger("hpad.serve")
        self.url = ""

    async def start(self) -> None:
        """Starts listening. Raises ServeError."""
        for files in self._files.configured:
            await asyncio.to_thread(files.refresh)
        application = web.Application(middlewares=[self._respond], client_max_size=limits.BODY_BYTES)
        application.add_routes(
            [
                web.get("/", self._page),
                *self._api.routes(),
                web.get("/metrics", self._metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/healthz", self._livez),
            ]
        )
        application.on_response_prepare.append(_add_headers)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await self._listen(self._runner)

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self._address
        loop, manager = asyncio.get_running_loop(), runner.server
        assert manager is not None
        certificates = self._files.certificates
        context = certificates.context if certificates is not None else None
        connections = limits.Connections(limits.CONNECTIONS, limits.PROBE_CONNECTIONS)
        connection = functools.partial(
            limits.Connection, manager, connections=connections, loop=loop, **limits.CONNECTION_OPTIONS
        )
        timeout = limits.HANDSHAKE_SECONDS if context is not None else None
        try:
            self._listener = await loop.create_server(
                connection, host, port, ssl=context, ssl_handshake_timeout=timeout
            )
        except OSError as error:
            await self.stop()
            raise ServeError(f"cannot listen on {host}:{port}: {_listen_error(error)}") from None
        addresses = [each.getsockname()[0] for each in self._listener.sockets]
        self._local_names_only = self._authenticator.open and authentication.all_loopback(addresses)
        bound = self._listener.sockets[0].getsockname()
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.url = f"{'http' if context is None else 'https'}://{name}:{bound[1]}"

    async def stop(self) -> None:
        """Stops listening and ends the streams of decisions. Responses being sent get one second."""
        if self._listener is not None:
            self._listener.close()
        self.streams.close()
        if self._runner is not None:
            manager = self._runner.server
            remaining = manager.connections if manager is not None else []
            await self._runner.cleanup()
            for connection in remaining:  # a client that does not read must not delay the stop
                cast(limits.Connection, connection).abort()

    async def refresh(self) -> None:
        """Reads changed files of certificates and tokens. Logs an invalid one and keeps its previous version."""
        for files in self._files.configured:
            kind = type(files).__name__.lower()
            try:
                if await asyncio.to_thread(files.refresh):
                    self._log.info(f"reloaded {kind}: the files changed")
                self._errors.pop(kind, None)
            except ServeError as error:
                if self._errors.get(kind) != str(error):
                    self._log.error(f"reload of {kind} rejected: the previous ones stay in use", error=str(error))
                self._errors[kind] = str(error)

    @property
    def troubles(self) -> list[str]:
        """Which files of certificates and tokens were rejected when they were read last, one sentence each."""
        return [f"the previous {kind} stay in use: {error}" for kind, error in self._errors.items()]

    @property
    def streams(self) -> stream.Streams:
        """The clients that follow the decisions."""
        return self._api.streams

    @web.middleware
    async def _respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handles every request, also of unknown paths."""
        connection = request.protocol
        assert isinstance(connection, limits.Connection)
        connection.request_received()
        response = await self._handle(request, handler)
        if connection.admission is limits.Admission.PROBES:
            response.force_close()
        connection.response_started()
        return response

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(limits.REQUEST_SECONDS) as limit, contextlib.AsyncExitStack() as stack:
                if request.path not in PROBES:
                    await self._admit(request)
                if request.path == stream.PATH:
                    limit.reschedule(None)  # it has limits of its own
                elif request.path not in PROBES:
                    await stack.enter_async_context(self._requests)
                return await handler(request)
        except web.HTTPException as error:
            headers = {name: value for name, value in error.headers.items() if name in _ERROR_HEADERS}
            return _error(request, error.text or "", error.status, headers)
        except TimeoutError:
            return _error(request, "503: Service Unavailable\n", 503, {"Retry-After": "15"})
        except Exception:  # noqa: BLE001  # details go to the log only
            self._log.exception("bug: unexpected exception in a request", path=request.path)
            return _error(request, "500: Internal Server Error\n", 500)

    async def _admit(self, request: web.Request) -> None:
        """Returns if the request, which is not a probe, may be answered. Raises web.HTTPException."""
        if cast(limits.Connection, request.protocol).admission is limits.Admission.PROBES:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "15"})
        if not self._names_this_machine(request):
            raise web.HTTPMisdirectedRequest(text=authentication.REFUSAL)
        await self._authenticator.admit(request)

    def _names_this_machine(self, request: web.Request) -> bool:
        return not self._local_names_only or authentication.is_local(request.headers.getall("Host", ()))

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(body=DOCUMENT.page, content_type="text/html", charset="utf-8")

    def _status(self) -> Status:
        unready, problems = tuple(self._present.unready()), tuple(self._present.problems())
        return msgspec.structs.replace(self._present.mode(), unready=unready, problems=problems)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _livez(self, request: web.Request) -> web.Response:
        """Answers whenever the event loop runs."""
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        """Lists the reasons only without authentication, because they name files and servers."""
        reasons = self._present.unready()
        shown = reasons if self._authenticator.open and self._names_this_machine(request) else ["not ready"]
        lines = map(harmless, shown if reasons else ["ok"])
        return web.Response(text="\n".join(lines) + "\n", status=503 if reasons else 200)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "hpad"  # aiohttp has set its own
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def _listen_error(error: OSError) -> str:
    """Returns the system's message, the same with every event loop, and advice for a port in use."""
    if error.errno == errno.EADDRINUSE:
        return "another process, perhaps another hpad, listens there; set `listen` to another port or to none"
    return errors.system_text(error)


def _error(request: web.Request, text: str, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    """Returns the answer for an error: JSON under /api/v1/, else text."""
    if not request.path.startswith(PREFIX):
        return web.Response(text=text, status=status, headers=headers)
    response = api.error(text, status)
    response.headers.update(headers or {})
    return response
