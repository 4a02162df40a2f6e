"""Finds, imports and builds adapters, which packages publish under the entry-point group `hpad.adapters`.

Only adapters that a source uses are imported. Every fault of an adapter or its settings is an AdapterError, which
answers the queries of that source alone.
"""

import asyncio
import concurrent.futures
import difflib
import threading
from collections.abc import Mapping
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import structlog

from hpad import settings
from hpad.adapter import SOURCE_TYPES, Adapter, AdapterError, ApiReader, Context, Log
from hpad.api import settings_errors
from hpad.api.problem import Problem
from hpad.api.secrets import public
from hpad.api.text import reason
from hpad.clock import Clock
from hpad.sources import redact

GROUP = "hpad.adapters"

IMPORT_SECONDS = 10.0
"""Time limit for the import of an adapter."""
PREPARE_SECONDS = 10.0
"""Time limit for an adapter that reads what it keeps."""


def names() -> tuple[str, ...]:
    """Returns the installed adapters, sorted. Reads package metadata and imports no adapter."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=GROUP)}))


def adapter_class(name: str) -> type[Adapter]:
    """Imports the adapter of that name; raises AdapterError. Blocks: call it in a thread."""
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
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
        raise AdapterError(
            f'adapter "{name}" ({value}) cannot be imported: {str(error) or reason(error)}', "bug"
        ) from None
    check_class(f'adapter "{name}" ({value})', loaded)
    adapter: type[Adapter] = loaded
    return adapter


async def load(name: str, timeout: float = IMPORT_SECONDS) -> type[Adapter]:
    """Runs `adapter_class` in a daemon thread: an import that hangs delays neither the sources nor the exit."""
    loaded: concurrent.futures.Future[type[Adapter]] = concurrent.futures.Future()
    loaded.set_running_or_notify_cancel()  # the thread sets the result in any case, also after the time limit

    def work() -> None:
        try:
            loaded.set_result(adapter_class(name))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            loaded.set_exception(error)

    threading.Thread(target=work, name=f"import {name}", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(loaded), timeout)
    except TimeoutError:
        raise AdapterError(f'adapter "{name}" was still being imported after {timeout:g}s', "bug") from None


def check_class(what: str, loaded: Any) -> None:
    """Raises AdapterError, about `what`, if `loaded` lacks what the contract demands of an adapter class."""
    if not isinstance(loaded, type) or not callable(getattr(loaded, "answer", None)):
        raise AdapterError(f"{what} is not a class with a method answer()", "bug")
    serves = getattr(loaded, "serves", None)
    if not isinstance(serves, frozenset) or not serves or not serves <= set(SOURCE_TYPES):
        raise AdapterError(f"{what}: serves must be a frozenset of some of {', '.join(SOURCE_TYPES)}", "bug")
    if not isinstance(getattr(loaded, "ignores_containers", False), bool):
        raise AdapterError(f"{what}: ignores_containers must be True or False", "bug")
    for name in ("Settings", "QuerySchema"):
        schema = getattr(loaded, name, None)
        is_absent = schema is None and name != "Settings"
        if not is_absent and not (isinstance(schema, type) and issubclass(schema, msgspec.Struct)):
            raise AdapterError(f"{what}: {name} must be a msgspec.Struct", "bug")


def decode(source: settings.SourceSettings, schema: type[msgspec.Struct]) -> msgspec.Struct:
    """Returns the source's settings in its adapter's schema; raises AdapterError naming source, fields and values."""
    try:
        return msgspec.convert(source.settings, schema)
    except (msgspec.ValidationError, ValueError):
        found = "; ".join(problem.text for problem in settings_errors.check(source.settings, schema))
        raise AdapterError(f'source "{source.name}" (adapter "{source.adapter}"): {found}', "spec") from None


def check_settings(source: settings.SourceSettings) -> list[Problem]:
    """Returns all errors of a source's settings that show without asking the source.

    Blocks: adapters are imported, and may read the files that the settings name.
    """
    try:
        adapter = adapter_class(source.adapter)
    except AdapterError as error:
        return [settings_errors.problem(("adapter",), error.message)]
    errors = settings_errors.check(source.settings, adapter.Settings)
    return errors or _errors_of_adapter(source, adapter) or _opened_in_vain(source, adapter)


def lacking(source: settings.SourceSettings) -> str:
    """Returns what this installation lacks for the source, such as the package of an extra; "" if nothing is known.

    Blocks: adapters are imported.
    """
    try:
        adapter = adapter_class(source.adapter)
        lacks: Any = getattr(adapter, "lacks", None)
        return "" if lacks is None else str(lacks(decode(source, adapter.Settings)))
    except Exception:  # noqa: BLE001 - foreign code may raise anything; errors of the settings are those of check_settings
        return ""


def query_schema(source: settings.SourceSettings, adapter: type[Adapter]) -> type[msgspec.Struct] | str:
    """Returns the schema of queries that Autoscalers bring along, or why the source takes none.

    The settings must be valid.
    """
    schema: Any = getattr(adapter, "QuerySchema", None)
    closed: Any = getattr(adapter, "closed", None)
    if schema is None:
        return f'the adapter "{source.adapter}" answers only metrics of the configuration'
    try:
        why = "" if closed is None else str(closed(decode(source, adapter.Settings)))
    except Exception:  # noqa: BLE001 - foreign code may raise anything
        why = "its adapter could not check that, a bug of the adapter"
    return why or schema


def _opened_in_vain(source: settings.SourceSettings, adapter: type[Adapter]) -> list[Problem]:
    """Returns the error of a source that the settings open to queries, and that takes none."""
    if not source.queries.namespaces or isinstance(why := query_schema(source, adapter), type):
        return []
    return [Problem("queries", f"queries: it takes none: {why}")]


def _errors_of_adapter(source: settings.SourceSettings, adapter: type[Adapter]) -> list[Problem]:
    """Returns what the adapter's own check, `flaws`, finds in settings that its schema accepts."""
    check: Any = getattr(adapter, "flaws", None)
    if check is None:
        return []
    try:
        found = check(decode(source, adapter.Settings))
        return [settings_errors.problem(tuple(path), text) for path, text in found]
    except Exception:  # noqa: BLE001 - foreign code may raise anything
        return [Problem("", "its adapter could not check them, a bug of the adapter")]


def instance(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
    """Builds the source's adapter; raises AdapterError."""
    decoded = decode(source, adapter.Settings)
    try:
        return adapter(decoded, context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
        raise _not_set_up(source, context, error) from None


def kept_files(name: str, adapter: Adapter) -> tuple[str, ...]:
    """Returns the files whose content the adapter keeps; raises AdapterError if its attribute `files` is wrong."""
    return tuple(_listed(name, adapter, "files", "paths", ()))


async def prepare(source: settings.SourceSettings, adapter: Adapter, context: Context) -> None:
    """Lets the adapter read what it keeps, such as `files`; raises AdapterError."""
    own: Any = getattr(adapter, "prepare", None)
    if own is None:
        return
    try:
        async with asyncio.timeout(PREPARE_SECONDS):
            await own()
    except TimeoutError:
        text = f'source "{source.name}": adapter "{source.adapter}" was not prepared within {PREPARE_SECONDS:g}s'
        raise AdapterError(text) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
        raise _not_set_up(source, context, error) from None


def _not_set_up(source: settings.SourceSettings, context: Context, error: BaseException) -> AdapterError:
    """Returns the error of a source whose adapter raised `error`, the text of which may hold a secret."""
    if isinstance(error, AdapterError):
        return AdapterError(f'source "{source.name}": {error.message}', error.blame)
    context.log.error("the adapter could not be set up", source=source.name, **redact.exception_fields(error))
    redact.log_traceback(context.log, source.name, error)
    failed = "could not be set up: it raised an exception, a bug of the adapter"
    return AdapterError(f'source "{source.name}": adapter "{source.adapter}" {failed}', "bug")


def offered(name: str, adapter: Adapter | type[Adapter]) -> tuple[str, ...] | dict[str, tuple[str, ...]]:
    """Returns patterns of the metrics that an adapter (class or instance) answers without a rule, or patterns by type.

    Raises AdapterError if its attribute `metrics` holds anything else.
    """
    found: tuple[str, ...] | dict[str, tuple[str, ...]] = _listed(name, adapter, "metrics", "patterns", ("*",))
    return found


def parameters(name: str, adapter: Adapter) -> frozenset[str] | None:
    """Returns the labels that an adapter reads from selectors, None if it does not list them.

    Raises AdapterError if its attribute `parameters` holds anything else.
    """
    listed = _listed(name, adapter, "parameters", "labels", None)
    return None if listed is None else frozenset(listed)


def _listed(name: str, adapter: Adapter | type[Adapter], attribute: str, of: str, default: Any) -> Any:
    """Returns texts, or texts by kind, of an attribute; raises AdapterError for a source whose adapter has others."""
    try:
        found = getattr(adapter, attribute, default)
        if isinstance(found, Mapping):
            return {str(kind): _patterns(each) for kind, each in found.items()}
        return None if found is default is None else _patterns(found)
    except Exception:  # noqa: BLE001 - foreign code may raise anything
        raise AdapterError(f'source "{name}": `{attribute}` of its adapter is not a tuple of {of}', "bug") from None


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list | set | frozenset) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return tuple(value)


# Longer than a sync period, so that a connection stays open from one period to the next.
_KEEP_ALIVE_SECONDS = 75.0
_CONNECTIONS = 16
_CONNECT_SECONDS = 5.0


class Contexts:
    """Makes a Context per source, inside the event loop. `api` is None where hpad runs without an API server."""

    def __init__(self, clock: Clock, *, api: ApiReader | None = None) -> None:
        self.clock = clock
        self._api = api

    def __call__(self, source: str, adapter: str) -> Context:
        log: Log = structlog.get_logger("hpad.source", source=source, adapter=adapter)
        return Context(name=source, http=_session(), clock=self.clock, log=log, api=self._api)


def _session() -> aiohttp.ClientSession:
    """Makes a session without cookies and compression, and without the environment's proxy and .netrc.

    To read the environment costs a switch to a thread per request.
    """
    headers: Mapping[str, str] = {"Accept": "application/json", "Accept-Encoding": "identity"}
    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(
        trace_configs=[tracing],
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEEP_ALIVE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        headers=headers,
        trust_env=False,
    )


async def _refuse_redirect(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestRedirectParams
) -> None:
    """Refuses a redirect, as `hpad.adapter_http` does: credentials belong to the configured address alone."""
    # aiohttp follows both headers (client.py: ClientSession._request).
    location = params.response.headers.get("Location") or params.response.headers.get("URI") or ""
    where = f"{public(str(params.url))} answers with a redirect to {public(location)}"
    raise AdapterError(f"{where}, which is not followed: write that address", lasting=True)
