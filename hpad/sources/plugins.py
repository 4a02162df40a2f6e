"""Adapters by name: packages publish them under the entry-point group `hpad.adapters`.

Nothing is imported that no source uses. Whatever is wrong with an adapter or its settings is an AdapterError, which
becomes the answer to the queries of that source and to no others.

The capabilities that adapter instances are given.
"""

import asyncio
import difflib
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import structlog
import yarl

from hpad import settings
from hpad.adapter import SOURCE_TYPES, Adapter, AdapterError, ApiReader, Context, Log
from hpad.api.text import reason
from hpad.clock import Clock
from hpad.sources import raised, settings_errors

GROUP = "hpad.adapters"

IMPORT_SECONDS = 10.0
"""How long the import of an adapter may take."""


def names() -> tuple[str, ...]:
    """The adapters that are installed, sorted; reads package metadata, imports none of them."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=GROUP)}))


def adapter_class(name: str) -> type[Adapter]:
    """Import the adapter of that name; raises AdapterError saying what is wrong. It blocks: call it in a thread."""
    points = {point.value: point for point in metadata.entry_points(group=GROUP, name=name)}
    if not points:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise AdapterError(f'there is no adapter "{name}"; installed: {", ".join(names()) or "none"}{hint}', "spec")
    if len(points) > 1:
        raise AdapterError(f'adapter "{name}" is published more than once: {", ".join(sorted(points))}', "spec")
    value, point = points.popitem()
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: it may fail in any way
        raise AdapterError(
            f'adapter "{name}" ({value}) cannot be imported: {str(error) or reason(error)}', "bug"
        ) from None
    _check_class(name, value, loaded)
    adapter: type[Adapter] = loaded
    return adapter


async def load(name: str, timeout: float = IMPORT_SECONDS) -> type[Adapter]:
    """As `adapter_class`, in a thread of its own that may hang for ever: nobody waits for it, not even the end."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[type[Adapter] | AdapterError] = loop.create_future()

    def settle(result: type[Adapter] | AdapterError) -> None:
        if not loaded.done():
            loaded.set_result(result)

    def work() -> None:
        try:
            result: type[Adapter] | AdapterError = adapter_class(name)
        except AdapterError as error:
            result = error
        try:
            loop.call_soon_threadsafe(settle, result)
        except RuntimeError:
            return  # the loop has closed meanwhile: nobody waits any more

    threading.Thread(target=work, name=f"import {name}", daemon=True).start()
    await asyncio.wait({loaded}, timeout=timeout)
    if not loaded.done():
        raise AdapterError(f'adapter "{name}" was still being imported after {timeout:g}s', "bug")
    found = loaded.result()
    if isinstance(found, AdapterError):
        raise found
    return found


def _check_class(name: str, value: str, loaded: Any) -> None:
    what = f'adapter "{name}" ({value})'
    if not isinstance(loaded, type) or not callable(getattr(loaded, "answer", None)):
        raise AdapterError(f"{what} is not a class with a method answer()", "bug")
    serves = getattr(loaded, "serves", None)
    if not isinstance(serves, frozenset) or not serves or not serves <= set(SOURCE_TYPES):
        raise AdapterError(f"{what}: serves must be a frozenset of some of {', '.join(SOURCE_TYPES)}", "bug")
    schema = getattr(loaded, "Settings", None)
    if not isinstance(schema, type) or not issubclass(schema, msgspec.Struct):
        raise AdapterError(f"{what}: Settings must be a msgspec.Struct", "bug")


def decode(source: settings.SourceSettings, schema: type[msgspec.Struct]) -> msgspec.Struct:
    """The source's settings in its adapter's own schema; raises AdapterError naming source, fields and values."""
    try:
        return msgspec.convert(source.settings, schema)
    except (msgspec.ValidationError, ValueError):
        said = "; ".join(map(str, settings_errors.found(source.settings, schema)))
        raise AdapterError(f'source "{source.name}" (adapter "{source.adapter}"): {said}', "spec") from None


def wrong(source: settings.SourceSettings) -> list[settings_errors.Flaw]:
    """All that is wrong with a source's settings, as far as it can be told without asking it. It blocks: adapters are
    imported, and may read the files that the settings name."""
    try:
        adapter = adapter_class(source.adapter)
    except AdapterError as error:
        return [settings_errors.Flaw(("adapter",), error.message)]
    found = settings_errors.found(source.settings, adapter.Settings)
    return [*found, *_looked_for(source, adapter, found)]


def _looked_for(
    source: settings.SourceSettings, adapter: type[Adapter], found: Sequence[settings_errors.Flaw]
) -> list[settings_errors.Flaw]:
    """What the adapter itself finds in the settings that are good so far."""
    look: Any = getattr(adapter, "flaws", None)
    if look is None:
        return []
    try:
        read = (
            settings_errors.good(source.settings, adapter.Settings, found)
            if found
            else decode(source, adapter.Settings)
        )
        return [settings_errors.Flaw(tuple(path), text) for path, text in look(read)]
    except Exception:  # noqa: BLE001 - code of others
        # Of settings that lack something it may well fail.
        return [] if found else [settings_errors.Flaw((), "its adapter could not check them, a bug of the adapter")]


def instance(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
    """Build the source's adapter; raises AdapterError."""
    decoded = decode(source, adapter.Settings)
    try:
        return adapter(decoded, context)
    except AdapterError as error:
        raise AdapterError(f'source "{source.name}": {error.message}', error.blame) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others; the text of such an error may hold a secret
        context.log.error("the adapter could not be set up", source=source.name, **raised.fields(error))
        raised.trace(context.log, source.name, error)
        failed = "could not be set up: it raised an exception, a bug of the adapter"
        raise AdapterError(f'source "{source.name}": adapter "{source.adapter}" {failed}', "bug") from None


def offered(name: str, adapter: Adapter | type[Adapter]) -> tuple[str, ...] | dict[str, tuple[str, ...]]:
    """Patterns of the metrics that a class, or an instance of it, answers without being told.

    By type where the adapter has it so. Raises AdapterError for anything else.
    """
    try:
        given = getattr(adapter, "metrics", ("*",))
        if isinstance(given, Mapping):
            return {str(kind): _patterns(patterns) for kind, patterns in given.items()}
        return _patterns(given)
    except Exception:  # noqa: BLE001 - code of others
        raise AdapterError(f'source "{name}": `metrics` of its adapter is no tuple of patterns', "bug") from None


def _patterns(given: Any) -> tuple[str, ...]:
    if not isinstance(given, tuple | list | set | frozenset) or not all(isinstance(each, str) for each in given):
        raise TypeError
    return tuple(given)


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
