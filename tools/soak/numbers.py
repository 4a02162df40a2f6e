"""A metric source over HTTP that serves the load of each application, with injected faults."""

import asyncio
import json
import random
from collections.abc import Callable

from aiohttp import web

TROUBLES = ("500", "429", "hang", "html", "cut", "null", "text", "nan", "elsewhere", "reset")
"""The kinds of faults. None of these answers has a number, so hpad must not decide by one."""


class Numbers:
    """Answers `GET /load?app=NAME` with {"load": N}; a `share` of the requests gets the fault `trouble`, if any."""

    def __init__(self, load: Callable[[str], int | None], rng: random.Random) -> None:
        self.trouble: str | None = None
        self.share = 0.0
        self.asked = 0
        self.spoilt = 0
        self._load = load
        self._rng = rng

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        load = self._load(request.query.get("app", ""))
        if self.trouble is not None and self._rng.random() < self.share:
            self.spoilt += 1
            return await self._spoilt(request, self.trouble)
        if load is None:
            return web.json_response({"error": "no such application"}, status=404)
        return web.json_response({"load": load})

    async def _spoilt(self, request: web.Request, trouble: str) -> web.StreamResponse:
        if trouble == "hang":
            await asyncio.sleep(3600)
        if trouble == "reset" and request.transport is not None:
            request.transport.abort()
        if trouble == "cut":
            return await _cut(request)
        if trouble.isdigit():
            return web.Response(status=int(trouble), text="{}")
        if trouble == "html":
            return web.Response(text="<html>Please log in</html>", content_type="text/html")
        if trouble == "elsewhere":
            return web.json_response({"other": 1})
        body = {"null": "null", "text": '"many"'}.get(trouble, "NaN")
        return web.Response(text=f'{{"load": {body}}}', content_type="application/json")


async def _cut(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "400"})
    await response.prepare(request)
    await response.write(json.dumps({"load": 10}).encode()[:-3])
    if request.transport is not None:
        request.transport.close()
    return response
