"""The read-only port: /metrics, /livez, /readyz, /healthz, /api/hpas, /api/sources and a page for people.

Which Host headers name this machine.

A web page can make its own name resolve to 127.0.0.1 and so have a browser read what listens there (DNS rebinding). The
browser still sends that name as the Host, by which the request is told from one of this machine's own.
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
from hpad.settings.shape import Serving
from hpad.store.memory import Store
from hpad.telemetry import CONTENT_TYPE, Telemetry


def all_loopback(addresses: Iterable[str]) -> bool:
    """Whether all these addresses are of the loopback device."""
    return all(_is_loopback(address) for address in addresses)


def is_local(hosts: Sequence[str]) -> bool:
    """Whether a request with these Host headers names loopback; one without any is no browser's."""
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
"""Open to every client, by any name, and on the last seat: a kubelet has nothing to show."""
REFRESH_SECONDS: Final = 10.0
"""How often the files of certificates and tokens are looked at."""
_OWN_HEADERS: Final = ("WWW-Authenticate", "Allow", "Retry-After")
_HEADERS: Final = {
    "Server": "hpad",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": page.CONTENT_SECURITY_POLICY,
}
_FOREIGN: Final = (
    "421: Misdirected Request\n"
    "This port is open to every client of this machine, so that it answers to local names only: localhost, 127.0.0.1,\n"
    "[::1]. For other names, set listen_token_file or another way to tell who may look.\n"
)


class Server:
    """Listens once started; `url` then says where. `unready` gives the reasons why hpad is not ready, none if it is;
    `troubles` what else people should know, for the page; `mode` what this hpad does, and whether it writes; `reports`
    how the metric sources fare.

    Everything here only reads. `serving` says how it is guarded (by default not at all, and the default address is on
    loopback); `reviewer` is needed where `serving.review` is set.
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
            known=self._tokens,
            reviewer=reviewer if serving.review else None,
            clock=self._clock,
        )
        self._at_work = asyncio.Semaphore(limits.AT_WORK)
        self._local_names_only = False
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._faults: dict[str, str] = {}
        self._log = structlog.get_logger("hpad.serve")
        self.url = ""

    async def start(self) -> None:
        """Raises ServeError."""
        for files in self._files:
            await asyncio.to_thread(files.open)
        application = web.Application(middlewares=[self._attend], client_max_size=limits.BODY_BYTES)
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
            self._refreshing = asyncio.create_task(self._keep_fresh(), name="serve files")

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self._address
        loop, inside = asyncio.get_running_loop(), runner.server
        assert inside is not None
        secure = self._certificates.context if self._certificates is not None else None
        room = limits.Connections(limits.CONNECTIONS, limits.PROBE_CONNECTIONS)
        connection = functools.partial(limits.Connection, inside, connections=room, loop=loop, **limits.SERVER)
        patience = limits.HANDSHAKE_SECONDS if secure is not None else None
        try:
            self._listening = await loop.create_server(
                connection, host, port, ssl=secure, ssl_handshake_timeout=patience
            )
        except OSError as error:
            await self.stop()
            raise ServeError(f"cannot listen on {host}:{port}: {_why_not(error)}") from None
        addresses = [each.getsockname()[0] for each in self._listening.sockets]
        self._local_names_only = self._authenticator.open and all_loopback(addresses)
        bound = self._listening.sockets[0].getsockname()
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        self.url = f"{'http' if secure is None else 'https'}://{name}:{bound[1]}"

    async def stop(self) -> None:
        """Close the window: what is being answered gets a second."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            self._refreshing = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            inside = self._runner.server
            left = inside.connections if inside is not None else []
            await self._runner.cleanup()
            for connection in left:  # who never takes his answer must not keep the loop from closing
                cast(limits.Connection, connection).abort()
            self._runner = None

    async def refresh(self) -> None:
        """Look at the files of certificates and tokens now; what is no good is said, and the last good one kept."""
        for files in self._files:
            kind = type(files).__name__.lower()
            try:
                if await asyncio.to_thread(files.refresh):
                    self._log.info(f"read {kind} anew, since they have changed")
                self._faults.pop(kind, None)
            except ServeError as error:
                if self._faults.get(kind) != str(error):
                    self._log.error(f"kept the {kind} that were read before", error=str(error))
                self._faults[kind] = str(error)

    async def _keep_fresh(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_SECONDS)
            await self.refresh()

    @property
    def _files(self) -> list[tls.Certificates | authentication.Tokens]:
        return [files for files in (self._certificates, self._tokens) if files is not None]

    @web.middleware
    async def _attend(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every request, also those for what is not there: within limits, for whoever may look, and said plainly."""
        connection = request.protocol
        assert isinstance(connection, limits.Connection)
        connection.asked()
        response = await self._bounded(request, handler)
        response.headers.update({name: value for name, value in _HEADERS.items() if name not in response.headers})
        if connection.probes_only:
            response.force_close()
        connection.answered()
        return response

    async def _bounded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with asyncio.timeout(limits.REQUEST_SECONDS), contextlib.AsyncExitStack() as stack:
                if request.path not in PROBES:
                    await self._admit(request)
                    await stack.enter_async_context(self._at_work)
                return await handler(request)
        except web.HTTPException as error:
            return web.Response(text=error.text, status=error.status, headers=_own_headers(error))
        except TimeoutError:
            return web.Response(text="503: Service Unavailable\n", status=503, headers={"Retry-After": "15"})
        except Exception:  # noqa: BLE001  # whoever asks learns nothing of it, the log all
            self._log.exception("bug: a request failed in a way nobody expected", path=request.path)
            return web.Response(text="500: Internal Server Error\n", status=500)

    async def _admit(self, request: web.Request) -> None:
        """Return if the request may be answered, which is no probe; raises web.HTTPException."""
        if cast(limits.Connection, request.protocol).probes_only:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "15"})
        if not self._by_local_name(request):
            raise web.HTTPMisdirectedRequest(text=_FOREIGN)
        await self._authenticator.admit(request)

    def _by_local_name(self, request: web.Request) -> bool:
        return not self._local_names_only or is_local(request.headers.getall("Host", ()))

    async def _page(self, request: web.Request) -> web.Response:
        rows = await page.rows(self._source, self._store, dry_run=self._mode().dry_run)
        said = list(dict.fromkeys([*self._unready(), *self._troubles()]))
        text = await asyncio.to_thread(page.render, rows, said, self._mode())
        return web.Response(text=text, content_type="text/html")

    async def _hpas(self, request: web.Request) -> web.Response:
        return _json(await page.rows(self._source, self._store, dry_run=self._mode().dry_run))

    async def _hpa(self, request: web.Request) -> web.Response:
        wanted = (request.match_info["namespace"], request.match_info["name"])
        for hpa in self._source.values():
            if hpa.metadata.key == wanted:
                return _json(page.row(hpa, self._store, dry_run=self._mode().dry_run))
        raise web.HTTPNotFound(text=f"no HPA {'/'.join(wanted)} here\n")

    async def _sources(self, request: web.Request) -> web.Response:
        return _json(self._reports())

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _livez(self, request: web.Request) -> web.Response:
        """The loop turns: that is all liveness means here."""
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        """The reasons name files and servers: whoever is nobody here learns only that there are some."""
        reasons = self._unready()
        said = reasons if self._authenticator.open and self._by_local_name(request) else ["not ready"]
        lines = map(harmless, said if reasons else ["ok"])
        return web.Response(text="\n".join(lines) + "\n", status=503 if reasons else 200)


def _why_not(error: OSError) -> str:
    """In the system's words, which event loops dress up differently; of the commonest case, what to do as well."""
    if error.errno == errno.EADDRINUSE:
        return "another process listens there already (perhaps an hpad); set `listen` to another port, or to none"
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _own_headers(error: web.HTTPException) -> dict[str, str]:
    """What an error says in its headers: how to log in, which methods there are, or when to come again."""
    return {name: value for name, value in error.headers.items() if name in _OWN_HEADERS}


def _json(value: object) -> web.Response:
    """An answer that may be shown on a terminal as it is."""
    return web.Response(body=harmless_json(msgspec.json.encode(value)), content_type="application/json")
