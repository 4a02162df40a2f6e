"""The JSON API without a version: /api/hpas, /api/hpas/{namespace}/{name} and /api/sources.

Its answers have the header of RFC 9745 and a link to the successor (RFC 8288). It goes away in the next minor release.
A row is its view of one HPA, as JSON-like builtins; rows are sorted by namespace and name.
"""

import asyncio
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from hpad.api.hpa import HorizontalPodAutoscaler, to_builtins
from hpad.api.metadata import Key
from hpad.api.text import harmless_json
from hpad.serve.operations import PREFIX
from hpad.serve.summary import HpaSource
from hpad.store.store import Store
from hpad.telemetry.series import SourceReport

_SINCE: Final = "@1795392000"
"""2026-11-23 in seconds since 1970."""


class Deprecated:
    """The handlers of the paths. `dry_run` and `reports` are as for the Api."""

    def __init__(
        self,
        source: HpaSource,
        store: Store,
        dry_run: Callable[[], bool],
        reports: Callable[[], Sequence[SourceReport]],
    ) -> None:
        self._source = source
        self._store = store
        self._dry_run = dry_run
        self._reports = reports

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes."""
        return [
            web.get("/api/hpas", self._hpas),
            web.get("/api/hpas/{namespace}/{name}", self._hpa),
            web.get("/api/sources", self._sources),
        ]

    async def _hpas(self, request: web.Request) -> web.Response:
        await self._source.shown()
        return _json(await rows(self._source, self._store, dry_run=self._dry_run()), successor="hpas")

    async def _hpa(self, request: web.Request) -> web.Response:
        key = Key(request.match_info["namespace"], request.match_info["name"])
        await self._source.shown((key,))
        hpa = self._source.get(key)
        if hpa is None:
            raise web.HTTPNotFound(text=f"no HPA {key}\n")
        found = row(hpa, self._store, dry_run=self._dry_run())
        return _json(found, successor=f"hpas/{urllib.parse.quote(str(key))}")

    async def _sources(self, request: web.Request) -> web.Response:
        return _json(self._reports(), successor="sources")


def _json(value: object, *, successor: str) -> web.Response:
    """Encodes an answer, safe to print on a terminal."""
    headers = {"Deprecation": _SINCE, "Link": f'<{PREFIX}{successor}>; rel="successor-version"'}
    body = harmless_json(msgspec.json.encode(value))
    return web.Response(body=body, content_type="application/json", headers=headers)


async def rows(source: HpaSource, store: Store, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Returns one row per HPA. A thread builds them, so that thousands do not block the event loop."""
    found = sorted(source.values(), key=lambda hpa: hpa.metadata.key)
    return await asyncio.to_thread(lambda: [row(hpa, store, dry_run=dry_run) for hpa in found])


def row(hpa: HorizontalPodAutoscaler, store: Store, *, dry_run: bool = False) -> dict[str, Any]:
    """Returns the row of one HPA. `lastDecision` is None before the first decision.

    In a dry run the status and the decision are those that hpad would have written.
    """
    key, spec = hpa.metadata.key, hpa.spec
    memory = store.get(key)
    status = memory.status or hpa.status
    last = memory.last
    return {
        "namespace": key.namespace,
        "name": key.name,
        "dryRun": dry_run,
        "target": {"kind": spec.scale_target_ref.kind, "name": spec.scale_target_ref.name},
        "minReplicas": spec.min_replicas if spec.min_replicas is not None else 1,
        "maxReplicas": spec.max_replicas,
        "metrics": to_builtins(spec.metrics or ()),
        "currentReplicas": status.current_replicas,
        "desiredReplicas": status.desired_replicas,
        "currentMetrics": to_builtins(status.current_metrics or ()),
        "conditions": to_builtins(status.conditions),
        "lastScaleTime": to_builtins(status.last_scale_time),
        "lastDecision": None
        if last is None
        else {"time": to_builtins(last.at), "sentence": last.sentence, "error": last.error},
    }
