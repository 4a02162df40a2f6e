"""Keeps the secrets of a source's settings out of errors, log lines and `hpad config show`.

Fields that hold secrets are recognized by their names. Error texts lose the values of such fields (`Redactor`), and
settings errors show no value of them. The text of a foreign exception is never logged: a URL in it may hold a password.
"""

import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.adapter import Log
from hpad.api.text import harmless

CHOSEN_NAMES: Final = frozenset({"metrics"})
"""Fields whose entries have names of the user's choice: a metric may be called password_resets."""
_SECRET: Final = re.compile(
    r"pass|pwd|^pw$|secret|token|credential|authorization|^auth$|(basic|http|proxy).?auth|cookie|api.?key|access.?key"
    r"|.key$|private|header|signature|dsn|connection.?string|^params$",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"(file|env|url|uri)$", re.IGNORECASE)


def refers_to_secret(name: str) -> bool:
    """Returns whether the name refers to a secret, or to a place where one is stored."""
    return _SECRET.search(name) is not None


def is_place(name: str) -> bool:
    """Returns whether the field names a place: a file, an environment variable, a URL."""
    return _PLACE.search(name) is not None


def holds_secret(name: str) -> bool:
    """Returns whether the value of the field is a secret itself."""
    return refers_to_secret(name) and not is_place(name)


_USER_INFO = re.compile(r"//[^/@\s'\"]*@")
_SHORTEST = 4
_LONGEST_TEXT = 1000
_HIDDEN = "***"
_NO_SECRETS = frozenset({"true", "false", "null", "none"})
"""Values of parameters and headers that are no secrets, and that an error text needs to be readable."""


def hide_user_info(text: str) -> str:
    """Returns the text without the user names and passwords of its URLs."""
    return _USER_INFO.sub(f"//{_HIDDEN}@", text)


class Redactor:
    """Replaces the secrets of a source's settings in texts, escapes control characters, and limits the length."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        found = {secret for secret in _secrets(settings, hidden=False) if len(secret) >= _SHORTEST}
        self._secrets = sorted((each for each in found if each.lower() not in _NO_SECRETS), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:  # the longest first: one may contain another
            text = text.replace(secret, _HIDDEN)
        text = harmless(hide_user_info(text)[: 2 * _LONGEST_TEXT])
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _secrets(value: Any, *, hidden: bool) -> Iterator[str]:
    """Yields the texts below a field named like a secret; a field that only names a place holds none."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _below(str(name), entry, hidden=hidden)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _secrets(entry, hidden=hidden)
    elif hidden and isinstance(value, str):
        yield value
        yield from value.split()  # "Bearer abc": an error may hold the second word alone


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
