"""Keeps the secrets of a source out of errors, log lines and `hpad config show`.

Fields that hold secrets are recognized by their names. Errors and log lines of an adapter lose the values of such
fields, and what the adapter has read from files, variables and identity providers (`Redactor`). Settings errors show no
value of such fields. The text of a foreign exception is never logged: a URL in it may hold a password.
"""

import contextlib
import functools
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hpad import adapter as adapters
from hpad.adapter import Context, Log
from hpad.api.secrets import Secrets, hide_user_info, holds_secret, is_place, of_url, refers_to_secret
from hpad.api.text import harmless

CHOSEN_NAMES: Final = frozenset({"metrics"})
"""Fields whose entries have names of the user's choice: a metric may be called password_resets."""
_LONGEST_TEXT = 1000


class Redactor:
    """Replaces the secrets of a source in texts, escapes control characters, and limits the length.

    It knows those of the settings, and those that the adapter has read while this redactor was `active`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._secrets = Secrets(_secrets(settings, hidden=False))

    def __call__(self, text: str) -> str:
        text = self._secrets.hidden(text[: 2 * _LONGEST_TEXT])
        text = harmless(hide_user_info(text))
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"

    def mark(self, settings: Mapping[str, Any], schema: type[msgspec.Struct]) -> None:
        """Hides the values of the fields that an adapter's schema marks as secrets, whatever their names are."""
        marked = {name: settings[name] for name in write_only(schema) if name in settings}
        self._secrets.know(_secrets(marked, hidden=True))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Hides what the code inside reads (`hpad.adapter.hide`), also in its tasks and threads."""
        token = adapters.HIDING.set(self._secrets.add)
        try:
            yield
        finally:
            adapters.HIDING.reset(token)

    def guarded(self, context: Context) -> Context:
        """Returns a context whose log lines lose the secrets as well."""
        return replace(context, log=_GuardedLog(context.log, self))


class _GuardedLog:
    """A log whose fields lose the secrets of a source: a server's warning may repeat one."""

    def __init__(self, log: Log, redactor: Redactor) -> None:
        self._log = log
        self._redactor = redactor

    def debug(self, event: str, **fields: Any) -> Any:
        return self._log.debug(self._redactor(event), **self._guarded(fields))

    def info(self, event: str, **fields: Any) -> Any:
        return self._log.info(self._redactor(event), **self._guarded(fields))

    def warning(self, event: str, **fields: Any) -> Any:
        return self._log.warning(self._redactor(event), **self._guarded(fields))

    def error(self, event: str, **fields: Any) -> Any:
        return self._log.error(self._redactor(event), **self._guarded(fields))

    def _guarded(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor(value)
        if isinstance(value, Mapping):
            return {name: self._guarded(entry) for name, entry in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._guarded(entry) for entry in value]
        return value


@functools.lru_cache(maxsize=128)
def write_only(schema: type[msgspec.Struct]) -> frozenset[str]:
    """Returns the fields that are marked by msgspec.Meta(extra_json_schema={"writeOnly": True})."""
    info = msgspec.inspect.type_info(schema)
    assert isinstance(info, msgspec.inspect.StructType)
    schemas = {field.encode_name: getattr(field.type, "extra_json_schema", None) or {} for field in info.fields}
    return frozenset(name for name, each in schemas.items() if each.get("writeOnly"))


def _secrets(value: Any, *, hidden: bool) -> Iterator[str]:
    """Yields the texts below a field named like a secret; a field that only names a place holds none."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _below(str(name), entry, hidden=hidden)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _secrets(entry, hidden=hidden)
    elif isinstance(value, str):
        if hidden:
            yield value
        if "://" in value:
            yield from (text for parameter, text in of_url(value) if holds_secret(parameter))


def _below(name: str, value: Any, *, hidden: bool) -> Iterator[str]:
    if name in CHOSEN_NAMES and isinstance(value, Mapping):
        for entry in value.values():
            yield from _secrets(entry, hidden=hidden)
    elif name == "params" and isinstance(value, list | tuple):  # names of parameters
        yield from _secrets(value, hidden=hidden)
    else:
        hidden = hidden or refers_to_secret(name)
        yield from _secrets(value, hidden=hidden and not is_place(name))


def exception_fields(error: BaseException) -> dict[str, str]:
    """Returns the type of an adapter's exception and the line that raised it, as fields of a log line."""
    return {"exception": type(error).__name__, "at": (_places(error) or [""])[-1]}


def log_traceback(log: Log, source: str, error: BaseException) -> None:
    """Logs, at debug, the lines that an adapter's exception passed."""
    log.debug("traceback of the adapter's exception", source=source, through=_places(error))


def _places(error: BaseException) -> list[str]:
    """Returns file and line of each frame, outermost first, without source text, which would be read from disk."""
    return [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)]
