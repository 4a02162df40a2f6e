"""The capabilities that adapter instances are given."""

from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp
import structlog
import yarl

from hpad.adapter import AdapterError, ApiReader, Context, Log
from hpad.clock import Clock

# Longer than a sync period, so that a connection outlives the pause between two questions.
_KEEP_ALIVE_SECONDS = 75.0
_CONNECTIONS = 16
_CONNECT_SECONDS = 5.0


class Contexts:
    """Makes a Context per source; call it inside the event loop. `api` None: hpad runs without an API server."""

    def __init__(self, clock: Clock, *, api: ApiReader | None = None, log: Log | None = None) -> None:
        self.clock = clock
        self._api = api
        self._log = log

    def __call__(self, source: str, adapter: str) -> Context:
        log: Log = (
            self._log if self._log is not None else structlog.get_logger("hpad.source", source=source, adapter=adapter)
        )
        return Context(name=source, http=_session(), clock=self.clock, log=log, api=self._api)


def _session() -> aiohttp.ClientSession:
    """No cookies, no proxy or .netrc from the environment (each costs a thread hop a request), no compression."""
    headers: Mapping[str, str] = {"Accept": "application/json", "Accept-Encoding": "identity"}
    guard = aiohttp.TraceConfig()
    guard.on_request_redirect.append(_stay_at_home)
    return aiohttp.ClientSession(
        trace_configs=[guard],
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEEP_ALIVE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        headers=headers,
        trust_env=False,
    )


async def _stay_at_home(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestRedirectParams
) -> None:
    """Follow no redirect to another origin: credentials and answers are those of the host that was configured."""
    told = params.response.headers.get("Location") or params.response.headers.get("URI") or ""
    try:
        there = params.url.join(yarl.URL(told))
        same = there.origin() == params.url.origin()
        where = there.host or "nowhere"
    except ValueError:
        same, where = False, "nowhere"
    if not same:
        asked = f"{params.url.scheme}://{params.url.host}:{params.url.port}"
        raise AdapterError(f"{asked} redirects to another host ({where}), which is not followed", lasting=True)
