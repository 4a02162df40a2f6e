"""What a source must not say: the secrets of its configuration, should an adapter let one slip into an error."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpad.api.text import harmless
from hpad.gather import confidential

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
    if name in confidential.CHOSEN_NAMES and isinstance(value, Mapping):
        for entry in value.values():
            yield from _secrets(entry, hidden=hidden)
    elif name == "params" and isinstance(value, list | tuple):  # names of parameters
        yield from _secrets(value, hidden=hidden)
    else:
        hidden = hidden or confidential.named_so(name)
        yield from _secrets(value, hidden=hidden and not confidential.elsewhere(name))
