"""The read-only HTTP server: /metrics, /livez, /readyz, /healthz, /api/hpas, /api/sources and a status page.

Without authentication on loopback, requests must name this machine in their Host header. A web page can make its own
name resolve to 127.0.0.1 and have a browser read the response (DNS rebinding); the browser then sends the foreign name.
"""

import asyncio
import contextlib
import errno
import functools
import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from hpad.api.text import harmless, harmless_json
from hpad.clock import Clock, SystemClock
from hpad.serve import ServeError as ServeError
from hpad.serve import authentication, limits, page, tls
from hpad.serve.authentication import Reviewer
from hpad.settings.model import Serving
from hpad.store.memory import Store
from hpad.telemetry import CONTENT_TYPE, Telemetry


def all_loopback(addresses: Iterable[str]) -> bool:
    """Returns whether all addresses belong to the loopback device."""
    return all(_is_loopback(address) for address in addresses)


def is_local(hosts: Sequence[str]) -> bool:
    """Returns whether the Host headers name loopback. A request without one does not come from a browser."""
    return not hosts or (len(hosts) == 1 and _names_loopback(hosts[0].strip().lower()))


def _names_loopback(host: str) -> bool:
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0].removesuffix(".")
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


PROBES: Final = ("/livez", "/readyz", "/healthz")
"""Open to every client, under any name, and on a connection kept for probes: a kubelet has no credentials."""
REFRESH_SECONDS: Final = 10.0
"""How often the files of certificates and tokens are checked for changes."""
_ERROR_HEADERS: Final = ("WWW-Authenticate", "Allow", "Retry-After")
_HEADERS: Final = {
    "Server": "hpad",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": page.CONTENT_SECURITY_POLICY,
}
_FOREIGN_HOST: Final = (
    "421: Misdirected Request\n"
    "This port needs no authentication, so it answers only requests for localhost, 127.0.0.1 or [::1].\n"
    "To use other names, configure authentication, for example with listen_token_file.\n"
)


class Server:
    """Listens after `start`; `url` is then its address.

    `unready` returns the reasons why hpad is not ready, `troubles` further problems for the page, `mode` what this hpad
    does, and `reports` the state of the metric sources. `serving` configures TLS and authentication; neither by
    default. `reviewer` is needed if `serving.review` is set.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        source: page.HpaSource,
        store: Store,
        telemetry: Telemetry,
        unready: Callable[[], list[str]],
        troubles: Callable[[], list[str]] = list,
        mode: Callable[[], page.Mode] = lambda: page.PLAIN,
        reports: Callable[[], Sequence[object]] = tuple,
        serving: Serving = Serving(),  # noqa: B008  # frozen
        reviewer: Reviewer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self._source = source
        self._store = store
        self._telemetry = telemetry
        self._unready = unready
        self._troubles = troubles
        self._mode = mode
        self._reports = reports
        self._clock: Clock = clock or SystemClock()
        self._certificates = tls.Certificates(serving) if serving.certificate is not None else None
        self._tokens = authentication.Tokens(serving.token_file) if serving.token_file is not None else None
        self._authenticator = authentication.Authenticator(
            certificates=serving.client_ca is not None,
            tokens=self._tokens,
            reviewer=reviewer if serving.review else None,
            clock=self._clock,
        )
        self._slots = asyncio.Semaphore(limits.CONCURRENT_REQUESTS)
        self._local_names_only = False
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._errors: dict[str, str] = {}
        self._log = structlog.get_logger("hpad.serve")
        self.url = ""

    async def start(self) -> None:
        """Starts listening. Raises ServeError."""
        for files in self._files:
            await asyncio.to_thread(files.open)
        application = web.Application(middlewares=[self._respond], client_max_size=limits.BODY_BYTES)
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/api/hpas", self._hpas),
                web.get("/api/hpas/{namespace}/{name}", self._hpa),
                web.get("/api/sources", self._sources),
                web.get("/metrics", self._metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/healthz", self._livez),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await self._listen(self._runner)
        if self._files:
            self._refreshing = asyncio.create_task(self._refresh_regularly(), name="serve files")

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self._address
        loop, manager = asyncio.get_running_loop(), runner.server
        assert manager is not None
        context = self._certificates.context if self._certificates is not None else None
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
        self._local_names_only = self._authenticator.open and all_loopback(addresses)
        bound = self._listener.sockets[0].getsockname()
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.url = f"{'http' if context is None else 'https'}://{name}:{bound[1]}"

    async def stop(self) -> None:
        """Stops listening. Responses being sent get one second."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            self._refreshing = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            manager = self._runner.server
            remaining = manager.connections if manager is not None else []
            await self._runner.cleanup()
            for connection in remaining:  # a client that does not read must not delay the stop
                cast(limits.Connection, connection).abort()
            self._runner = None

    async def refresh(self) -> None:
        """Reads changed files of certificates and tokens now. Logs an invalid one and keeps the previous version."""
        for files in self._files:
            kind = type(files).__name__.lower()
            try:
                if await asyncio.to_thread(files.refresh):
                    self._log.info(f"reloaded {kind}: the files changed")
                self._errors.pop(kind, None)
            except ServeError as error:
                if self._errors.get(kind) != str(error):
                    self._log.error(f"reload of {kind} rejected: the previous ones stay in use", error=str(error))
                self._errors[kind] = str(error)

    async def _refresh_regularly(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_SECONDS)
            await self.refresh()

    @property
    def _files(self) -> list[tls.Certificates | authentication.Tokens]:
        return [files for files in (self._certificates, self._tokens) if files is not None]

    @web.middleware
    async def _respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handles every request, also of unknown paths."""
        connection = request.protocol
        assert isinstance(connection, limits.Connection)
        connection.request_received()
        response = await self._handle(request, handler)
        response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
        if connection.probes_only:
            response.force_close()
        connection.response_started()
        return response

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(limits.REQUEST_SECONDS), contextlib.AsyncExitStack() as stack:
                if request.path not in PROBES:
                    await self._admit(request)
                    await stack.enter_async_context(self._slots)
                return await handler(request)
        except web.HTTPException as error:
            return web.Response(text=error.text, status=error.status, headers=_error_headers(error))
        except TimeoutError:
            return web.Response(text="503: Service Unavailable\n", status=503, headers={"Retry-After": "15"})
        except Exception:  # noqa: BLE001  # details go to the log only
            self._log.exception("bug: unexpected exception in a request", path=request.path)
            return web.Response(text="500: Internal Server Error\n", status=500)

    async def _admit(self, request: web.Request) -> None:
        """Returns if the request, which is not a probe, may be answered. Raises web.HTTPException."""
        if cast(limits.Connection, request.protocol).probes_only:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "15"})
        if not self._names_this_machine(request):
            raise web.HTTPMisdirectedRequest(text=_FOREIGN_HOST)
        await self._authenticator.admit(request)

    def _names_this_machine(self, request: web.Request) -> bool:
        return not self._local_names_only or is_local(request.headers.getall("Host", ()))

    async def _page(self, request: web.Request) -> web.Response:
        rows = await page.rows(self._source, self._store, dry_run=self._mode().dry_run)
        notes = list(dict.fromkeys([*self._unready(), *self._troubles()]))
        text = await asyncio.to_thread(page.render, rows, notes, self._mode())
        return web.Response(text=text, content_type="text/html")

    async def _hpas(self, request: web.Request) -> web.Response:
        return _json(await page.rows(self._source, self._store, dry_run=self._mode().dry_run))

    async def _hpa(self, request: web.Request) -> web.Response:
        key = (request.match_info["namespace"], request.match_info["name"])
        for hpa in self._source.values():
            if hpa.metadata.key == key:
                return _json(page.row(hpa, self._store, dry_run=self._mode().dry_run))
        raise web.HTTPNotFound(text=f"no HPA {'/'.join(key)}\n")

    async def _sources(self, request: web.Request) -> web.Response:
        return _json(self._reports())

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _livez(self, request: web.Request) -> web.Response:
        """Answers whenever the event loop runs."""
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        """Lists the reasons only without authentication, because they name files and servers."""
        reasons = self._unready()
        shown = reasons if self._authenticator.open and self._names_this_machine(request) else ["not ready"]
        lines = map(harmless, shown if reasons else ["ok"])
        return web.Response(text="\n".join(lines) + "\n", status=503 if reasons else 200)


def _listen_error(error: OSError) -> str:
    """Returns the system's message, the same with every event loop, and advice for a port in use."""
    if error.errno == errno.EADDRINUSE:
        return "another process, perhaps another hpad, listens there; set `listen` to another port or to none"
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _error_headers(error: web.HTTPException) -> dict[str, str]:
    """Returns the headers of an error response: how to authenticate, allowed methods, when to retry."""
    return {name: value for name, value in error.headers.items() if name in _ERROR_HEADERS}


def _json(value: object) -> web.Response:
    """Encodes a response that is safe to print on a terminal."""
    return web.Response(body=harmless_json(msgspec.json.encode(value)), content_type="application/json")
