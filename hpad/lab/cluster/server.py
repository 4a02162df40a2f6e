"""The API on the wire: one aiohttp application that answers as a kube-apiserver would."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from hpad import clock as clocks
from hpad.lab.cluster import (
    admission,
    answers,
    bodies,
    discovery,
    errors,
    faults,
    journal,
    openapi,
    openapi_v2,
    ownership,
    patches,
    paths,
    podlogs,
    reads,
    reviews,
    scale,
    usage,
    watches,
    writes,
)
from hpad.lab.cluster.resources import NAMESPACES, PODS, Object, Registry
from hpad.lab.cluster.store import Store, key_of

_WRITING = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Server:
    """Everything a request can reach."""

    store: Store
    registry: Registry
    writer: writes.Writer
    hub: watches.Hub
    usage: usage.Usage
    log: journal.Journal
    faults: faults.Faults
    clock: clocks.Clock
    owners: ownership.Owners
    folder: Callable[[Object], Path | None]

    def application(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; refusals become Status objects, whatever the verb."""
        address, verb = None, ""
        try:
            address = paths.parse(self.registry, request.path)
            if address is not None:
                watch = request.query.get("watch") in ("true", "1")
                verb = paths.verb(request.method, address, watch=watch)
                self.log.requests[verb, address.resource.plural, address.subresource] += 1
            response = await self.faults.meet(request)
            if response is None:
                response = await self._answer(request, address, verb)
        except errors.ApiError as problem:
            response = web.json_response(problem.status(), status=problem.code, headers=problem.headers)
        if address is not None and verb in _WRITING:
            self._note(request, address, verb, response.status)
        return response

    def _note(self, request: web.Request, address: paths.Address, verb: str, status: int) -> None:
        self.log.writes.append(
            journal.Write(
                time=self.clock.now(),
                verb=verb,
                resource=address.resource.plural,
                subresource=address.subresource,
                path=request.path,
                user_agent=request.headers.get("User-Agent", ""),
                status=status,
            )
        )

    async def _answer(self, request: web.Request, address: paths.Address | None, verb: str) -> web.StreamResponse:
        if address is None and request.method == "POST" and tuple(request.path.split("/")[1:]) == reviews.PATH:
            return web.json_response(reviews.answered(await request.json()), status=201)
        if address is None:
            return self._elsewhere(request)
        if address.resource.virtual:
            return web.json_response(self.usage.answer(self.store, address, request.query))
        if verb == "watch":
            return await self._watch(request, address)
        if verb == "list":
            found = reads.page(self.store, address, request.query)
            return web.json_response(self._form(request, address).many(found))
        if verb == "create":
            return await self._create(request, address)
        if verb == "deletecollection":
            return await self._delete_collection(request, address)
        return await self._on_object(request, address, verb)

    def _form(self, request: web.Request, address: paths.Address) -> answers.Answers:
        form = answers.form(request.headers.get("Accept", ""))
        return answers.Answers(address, form, request.query.get("includeObject", ""), self.clock.now())

    def _elsewhere(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        if parts and parts[0] in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        if parts[:2] == ["openapi", "v3"]:
            document = openapi.answer(self.registry, parts[2:])
            return _not_found_page() if document is None else web.json_response(document)
        accept = request.headers.get("Accept", "")
        if parts == ["openapi", "v2"] and openapi_v2.ASKED in accept:
            return web.Response(body=openapi_v2.encoded(self.registry), headers={"Content-Type": openapi_v2.MEDIA_TYPE})
        if parts == ["openapi", "v2"]:
            return web.json_response(openapi_v2.document(self.registry))
        aggregated = "as=APIGroupDiscoveryList" in accept and "v=v2" in accept.replace("v=v2beta1", "")
        body = discovery.answer(self.registry, parts, aggregated=aggregated, host=request.host)
        if body is None:
            return _not_found_page()
        is_aggregated = body.get("kind") == "APIGroupDiscoveryList"
        headers = {"Content-Type": discovery.AGGREGATED if is_aggregated else "application/json"}
        return web.Response(body=json.dumps(body).encode(), headers=headers)

    async def _watch(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        reads.predicate(address, request.query)  # a bad selector is refused before the stream begins
        reads.read_revision(request.query.get("resourceVersion", ""))
        reads.whole_number(request.query.get("timeoutSeconds") or "0")
        form = self._form(request, address)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        first = True
        with contextlib.suppress(ConnectionResetError):  # the client has seen enough
            async with contextlib.aclosing(self.hub.events(address, request.path_qs, request.query)) as events:
                async for event in events:
                    await self.hub.flowing.wait()
                    await response.write(json.dumps(form.event(event, first=first)).encode() + b"\n")
                    first = False
            await response.write_eof()
        return response

    def _writer(self, request: web.Request) -> writes.Writer:
        return self.writer.rehearsing() if request.query.get("dryRun") == "All" else self.writer

    async def _create(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        body = await self._object(request, address)
        namespace = address.namespace or ("" if not address.resource.namespaced else "default")
        warnings = bodies.field_warnings(address, body, request.query)
        created = self._writer(request).create(address.resource, namespace, body)
        self._own(request, address, None, created)
        shown = self._form(request, address).one(created)
        return web.json_response(shown, status=201, headers=warnings)

    def _own(self, request: web.Request, address: paths.Address, old: Object | None, new: Object) -> None:
        """Remember who wrote which fields, unless it was a rehearsal."""
        if old is new or request.query.get("dryRun") or not ownership.are_kept(address.resource, address.subresource):
            return
        before = old and admission.present(address.resource, old, address.version)
        after = admission.present(address.resource, new, address.version)
        self.owners.wrote(_manager(request, address, ownership.UPDATE), before, after)

    async def _on_object(self, request: web.Request, address: paths.Address, verb: str) -> web.StreamResponse:
        if verb == "patch" and request.content_type == patches.APPLY:
            return await self._server_side_apply(request, address)
        obj = self.store.get(address.resource, address.namespace or "", address.name)
        if verb == "delete":
            return await self._delete(request, address, obj)
        if address.subresource == "log":
            return await self._log(request, obj)
        if verb == "get":
            return (
                self._shown(address, obj)
                if address.subresource
                else web.json_response(self._form(request, address).one(obj))
            )
        body = await self._object(request, address) if verb == "update" else await self._patch(request)
        old = self.store.get(address.resource, address.namespace or "", address.name)
        new = self._changed(request, address, old, body)
        self._own(request, address, old, new)
        return self._shown(address, new)

    async def _log(self, request: web.Request, pod: Object) -> web.StreamResponse:
        name, folder = podlogs.container(pod, request.query), self.folder(pod)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if folder is not None:
            pieces = podlogs.written(folder / f"{name}.log", request.query, self.clock, lambda: self._exists(pod))
            with contextlib.suppress(ConnectionResetError):
                async for piece in pieces:
                    await response.write(piece)
        await response.write_eof()
        return response

    def _exists(self, pod: Object) -> bool:
        found = self.store.find(PODS, *key_of(pod))
        return found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]

    async def _patch(self, request: web.Request) -> Any:
        return bodies.from_json(await request.read(), "the patch")

    def _changed(self, request: web.Request, address: paths.Address, old: Object, body: Any) -> Object:
        """PUT or PATCH done; raises ApiError."""
        writer, resource = self._writer(request), address.resource
        if request.method == "PATCH":
            return writer.patch(resource, old, address.version, request.content_type, body, address.subresource)
        if address.subresource == "scale":
            return writer.rescale(resource, old, body)
        bodies.field_warnings(address, body, request.query)
        return writer.update(resource, old, body, address.subresource)

    def _shown(self, address: paths.Address, obj: Object, status: int = 200) -> web.Response:
        if address.subresource == "scale":
            return web.json_response(scale.read(address.resource, obj), status=status)
        return web.json_response(admission.present(address.resource, obj, address.version), status=status)

    async def _server_side_apply(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        """Merge, and take away what the same manager applied before; created when it is not there."""
        patch = bodies.applied(await request.read(), address)
        writer, manager = self._writer(request), _manager(request, address, ownership.APPLY)
        obj = self.store.find(address.resource, address.namespace or "", address.name)
        live = obj and admission.present(address.resource, obj, address.version)
        if obj is None or live is None:
            updated = writer.create(address.resource, address.namespace or "", patch)
        else:
            if request.query.get("force") != "true":
                self.owners.check(manager, live, patch)
            gone = self.owners.abandoned(manager, live, patch)
            updated = writer.apply(address.resource, obj, ownership.without(live, gone), patch, address.subresource)
        if not request.query.get("dryRun") and ownership.are_kept(address.resource, address.subresource):
            after = admission.present(address.resource, updated, address.version)
            self.owners.applied(manager, live, after, patch)
        return self._shown(address, updated, 201 if obj is None else 200)

    async def _delete(self, request: web.Request, address: paths.Address, obj: Object) -> web.StreamResponse:
        options = bodies.delete_options(request.query, await request.read())
        writer = self.writer.rehearsing() if options.dry_run else self.writer
        left = writer.delete(address.resource, obj, options)
        if left is not None or address.resource in (PODS, NAMESPACES):
            return self._shown(address, left or obj)
        details = {**errors.named(address.resource, address.name), "uid": obj["metadata"]["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return web.json_response(status)

    async def _delete_collection(self, request: web.Request, address: paths.Address) -> web.StreamResponse:
        options = bodies.delete_options(request.query, await request.read())
        found = reads.page(self.store, address, request.query)
        writer = self.writer.rehearsing() if options.dry_run else self.writer
        for obj in found.items:
            writer.delete(address.resource, obj, options)
        return web.json_response(reads.render(address, found))

    async def _object(self, request: web.Request, address: paths.Address) -> Object:
        return bodies.read(request.content_type, await request.read(), address)


def _manager(request: web.Request, address: paths.Address, operation: str) -> ownership.Manager:
    """Who asks: fieldManager, else the program that the User-Agent names."""
    name = request.query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0]
    return ownership.Manager(name, operation, address.resource.group_version(address.version), address.subresource)


def _not_found_page() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


async def listen(server: Server, port: int) -> tuple[web.AppRunner, str]:
    """Serve on 127.0.0.1; the runner to clean up, and the URL. Raises OSError when the port is taken."""
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    host, bound = runner.addresses[0][:2]
    return runner, f"http://{host}:{bound}"


async def close(server: Server, runner: web.AppRunner) -> None:
    """End the watches, then the listener."""
    server.faults.clear()
    server.hub.drop()
    await asyncio.shield(runner.cleanup())
