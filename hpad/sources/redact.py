"""What a source must not say: the secrets of its configuration, should an adapter let one slip into an error.

Which fields of a source's settings hold secrets, by their names: the one list for all that is shown of settings.

Texts of errors lose the values of such fields (`gather.redact`), complaints about them show no value (`gather.flaws`),
and `hpad config show` hides them (`cli.disclosed`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.api.text import harmless

CHOSEN_NAMES: Final = frozenset({"metrics"})
"""Fields whose entries have names of the user's choice, which tell nothing: a metric may be called password_resets."""
_SECRET: Final = re.compile(
    r"pass|pwd|^pw$|secret|token|credential|authorization|^auth$|(basic|http|proxy).?auth|cookie|api.?key|access.?key"
    r"|.key$|private|header|signature|dsn|connection.?string|^params$",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"(file|env|url|uri)$", re.IGNORECASE)


def named_so(name: str) -> bool:
    """Whether the name tells of a secret, here or elsewhere."""
    return _SECRET.search(name) is not None


def elsewhere(name: str) -> bool:
    """Whether the field says where something lies: a file, a variable, an address."""
    return _ELSEWHERE.search(name) is not None


def holds_secret(name: str) -> bool:
    """Whether the value of the field is a secret itself."""
    return named_so(name) and not elsewhere(name)


_USER_INFO = re.compile(r"//[^/@\s'\"]*@")
_SHORTEST = 4
_LONGEST_TEXT = 1000
_HIDDEN = "***"
_NO_SECRETS = frozenset({"true", "false", "null", "none"})
"""Values of parameters and headers that a text without them would be hard to read."""


class Redactor:
    """Made from a source's settings; replaces secrets in texts, escapes control characters (`model.harmless`), and cuts
    the texts to a bearable length."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        found = {secret for secret in _secrets(settings, hidden=False) if len(secret) >= _SHORTEST}
        self._secrets = sorted((each for each in found if each.lower() not in _NO_SECRETS), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = harmless(_USER_INFO.sub(f"//{_HIDDEN}@", text)[: 2 * _LONGEST_TEXT])
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _secrets(value: Any, *, hidden: bool) -> Iterator[str]:
    """The texts below a field with a telling name; a field that only says where a secret lies is none."""
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
        hidden = hidden or named_so(name)
        yield from _secrets(value, hidden=hidden and not elsewhere(name))
