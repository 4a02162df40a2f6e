"""A cache of HPAs whose watch leaves out the namespaces of others, on a scripted server."""

import asyncio
from dataclasses import replace

from aiohttp import web
from support.kube_caches import HPAS, page, synced
from support.scripted_server import QUICK, hangs, line, until

from hpad.api.metadata import Key
from hpad.kube import hpa_bytes, paths
from hpad.kube.hpa_cache import HpaCache
from hpad.kube.reflector import Kind
from hpad.kube.watch import WatchScope

WATCH = HPAS + "?watch"
KIND = Kind(paths.HPAS, hpa_bytes.decode, lambda hpa: hpa.metadata.resource_version)
OURS, THEIRS = Key("ours", "web"), Key("theirs", "web")
WITHOUT_THEIRS = "metadata.namespace!=theirs"


def hpa(name="web", namespace="ours", *, version=1, maximum=3, written="2026-01-01T00:00:00Z", **entry):
    managers = [{"manager": "hpad", "operation": "Update", "subresource": "status", "time": written, **entry}]
    meta = {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": str(version)}
    status = {"conditions": [{"type": "AbleToScale", "status": "True"}]}
    return {"metadata": {**meta, "managedFields": managers}, "spec": {"maxReplicas": maximum}, "status": status}


class Feed:
    """A watch to which a test adds changes."""

    def __init__(self):
        self.lines = asyncio.Queue()

    def send(self, kind, body):
        self.lines.put_nowait(line(kind, body))

    async def __call__(self, request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while written := await self.lines.get():
            await response.write(written)
        return response


class Gate:
    """Answers once it is opened."""

    def __init__(self, answer):
        self.answer, self.open = answer, asyncio.Event()

    async def __call__(self, request):
        await self.open.wait()
        return await self.answer(request)


class World:
    """A cache of HPAs in the namespaces `ours` and `theirs`, whose watches hang, and what it calls back."""

    def __init__(self, client, script, running, *, least=1, namespaces=()):
        self.script = script
        scope = WatchScope(
            client, namespaces, replace(QUICK, shortest_watch=60, longest_watch=60, least_left_out=least)
        )
        self.cache = HpaCache(scope, KIND)
        self.noticed, self.caught_up = {}, []
        self.cache.share(lambda key: key.namespace != "ours", self.noticed.__setitem__, self.caught)
        script.on("GET", HPAS, page(hpa(), hpa(namespace="theirs"), version=10))
        script.on("GET", WATCH, hangs)
        self.running = running

    def caught(self):
        self.caught_up.append(dict(self.noticed))

    @property
    def selectors(self):
        """The field selectors of the watches so far."""
        return [query.get("fieldSelector", "") for _, path, query in self.script.asked if path == WATCH]

    def lacks(self, namespace):
        return self.cache.lacks(namespace)

    async def start(self):
        self.running(self.cache.run())
        await synced(self.cache)
        await until(lambda: self.selectors)

    async def without_theirs(self):
        await self.start()
        self.cache.keep({"ours"})
        await until(lambda: self.selectors[-1] == WITHOUT_THEIRS)
