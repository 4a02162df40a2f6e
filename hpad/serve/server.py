"""The read-only windows over HTTP: /metrics, /livez, /readyz, /api/hpas, /api/sources and a page for people."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from aiohttp import web

from hpad.serve import hpas, page
from hpad.store.memory import Store
from hpad.telemetry import CONTENT_TYPE, Telemetry


class ServeError(Exception):
    """The address cannot be listened on; the message names it and says why."""


class Server:
    """Listens once started; `url` then says where. `unready` gives the reasons why hpad is not ready, none if it is;
    `troubles` what else people should know, for the page; `reports` how the metric sources fare.

    Everything here only reads; there is nothing to authenticate for, and the default is to listen on loopback.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        source: hpas.HpaSource,
        store: Store,
        telemetry: Telemetry,
        unready: Callable[[], list[str]],
        troubles: Callable[[], list[str]] = list,
        reports: Callable[[], Sequence[object]] = tuple,
    ) -> None:
        self._address = address
        self._source = source
        self._store = store
        self._telemetry = telemetry
        self._unready = unready
        self._troubles = troubles
        self._reports = reports
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Raises ServeError."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/api/hpas", self._hpas),
                web.get("/api/hpas/{namespace}/{name}", self._hpa),
                web.get("/api/sources", self._sources),
                web.get("/metrics", self._metrics),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
            ]
        )
        host, port = self._address
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            raise ServeError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        bound = self._runner.addresses[0]
        self.url = f"http://{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _page(self, request: web.Request) -> web.Response:
        rows = await hpas.rows(self._source, self._store)
        text = await asyncio.to_thread(page.render, rows, [*self._unready(), *self._troubles()])
        return web.Response(text=text, content_type="text/html")

    async def _hpas(self, request: web.Request) -> web.Response:
        return _json(await hpas.rows(self._source, self._store))

    async def _hpa(self, request: web.Request) -> web.Response:
        wanted = (request.match_info["namespace"], request.match_info["name"])
        for hpa in self._source.values():
            if hpa.metadata.key == wanted:
                return _json(hpas.row(hpa, self._store))
        raise web.HTTPNotFound(text=f"no HPA {'/'.join(wanted)} here\n")

    async def _sources(self, request: web.Request) -> web.Response:
        return _json(self._reports())

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _livez(self, request: web.Request) -> web.Response:
        """The loop turns: that is all liveness means here."""
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = self._unready()
        return web.Response(text="\n".join(reasons or ["ok"]) + "\n", status=503 if reasons else 200)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
