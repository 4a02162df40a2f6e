"""Keeps secrets out of texts: a server that refuses a password may repeat it, and so may the text of an error.

A secret is also found in the forms in which requests and answers carry it: percent-encoded, as JSON, as HTML, in
base64, with control characters escaped, and with escapes that only other programs write. The beginning of a secret is
found where a text was cut.
"""

import base64
import contextlib
import html
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from hpad.api.text import harmless, harmless_lines, visible

HIDDEN: Final = "***"
MOST: Final = 256
"""The secrets that are remembered, those used last: one that was replaced stays for as many replacements."""
MOST_CHARACTERS: Final = 1 << 20
"""Of these secrets. Each is kept in some sixteen forms."""
_SHORTEST: Final = 4
_LONGEST: Final = 1 << 16
_MOST_WORDS: Final = 16
"""Of a secret, that are hidden alone as well."""
_BEGINNING: Final = 12
"""So many characters count as a part of a secret anywhere, fewer only at the end of a text and before an ellipsis."""
_NO_SECRETS: Final = frozenset({"true", "false", "null", "none", "basic", "bearer", "digest", "token"})
"""Values of parameters and headers that are no secrets, and that an error text needs to be readable."""
_JSON_ESCAPES: Final = re.compile(r'(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))+')
_USER_INFO: Final = re.compile(r"//[^/@\s'\"]*@")
_SECRET: Final = re.compile(
    r"pass|pwd|^pw$|secret|token|credential|authorization|^auth$|(basic|http|proxy).?auth|cookie|api.?key|access.?key"
    r"|.key$|private|header|signature|dsn|connection.?string|^params$",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"(file|env|url|uri)$", re.IGNORECASE)


def hide_user_info(text: str) -> str:
    """Returns the text without the user names and passwords of its URLs."""
    return _USER_INFO.sub(f"//{HIDDEN}@", text)


def public(url: str) -> str:
    """Returns a URL for messages, which names the server: without user info, query and fragment."""
    return _USER_INFO.sub("//", re.split("[?#]", url, maxsplit=1)[0])


def refers_to_secret(name: str) -> bool:
    """Returns whether the name refers to a secret, or to a place where one is stored."""
    return _SECRET.search(name) is not None


def is_place(name: str) -> bool:
    """Returns whether the field names a place: a file, an environment variable, a URL."""
    return _PLACE.search(name) is not None


def holds_secret(name: str) -> bool:
    """Returns whether the value of the field is a secret itself."""
    return refers_to_secret(name) and not is_place(name)


def _without_json(text: str) -> str:
    return _JSON_ESCAPES.sub(lambda found: str(json.loads(f'"{found[0]}"')), text)


_DECODERS: Final = (unquote, html.unescape, _without_json)


class Secrets:
    """Replaces secrets in texts: those that are `known` from the start, and the last `MOST` that were added."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: frozenset[str] = frozenset()
        self._added: dict[str, frozenset[str]] = {}
        self._all: tuple[str, ...] = ()
        self.know(known)

    def add(self, secret: str) -> None:
        """Hides a secret from now on. Takes no time for one that was added before. May be called in any thread.

        Longer ones than _LONGEST are not hidden.
        """
        if len(secret) > _LONGEST:
            return
        forms = self._added.pop(secret, None)
        is_new = forms is None
        self._added[secret] = forms if forms is not None else frozenset(_forms(secret))
        if is_new:
            present = list(self._added)
            left = len(present), sum(map(len, present))
            for oldest in present:
                if left[0] <= MOST and left[1] <= MOST_CHARACTERS:
                    break
                self._added.pop(oldest, None)
                left = left[0] - 1, left[1] - len(oldest)
            self._all = _sorted(self._known.union(*list(self._added.values())))

    def know(self, secrets: Iterable[str]) -> None:
        """Hides further secrets for good."""
        self._known |= {form for secret in secrets for form in _forms(secret)}
        self._all = _sorted(self._known.union(*list(self._added.values())))

    def hidden(self, text: str) -> str:
        """Returns the text without the secrets.

        Its escapes are decoded if only that shows a secret: `\\/` and `\\u0026` in JSON, `%2f`, or two levels of them.
        """
        plain = text = self._replaced(text)
        for decode in _DECODERS * 2:
            decoded = decode(plain)
            if decoded != plain:
                plain = self._replaced(decoded)
                text = text if plain == decoded else harmless_lines(plain)
        return text

    def _replaced(self, text: str) -> str:
        for form in self._all:  # the longest first: one may contain another
            text = text.replace(form, HIDDEN)
        for form in self._all:
            text = _without_beginnings(text, form)
        return text


def _sorted(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(forms, key=len, reverse=True))


def _forms(secret: str) -> Iterator[str]:
    """Yields the forms of a secret and of its words: of "Bearer abc" an error may hold the second word alone."""
    for text in {secret, *secret.split(None, _MOST_WORDS), *_of_basic(secret)} if len(secret) <= _LONGEST else ():
        if len(text) >= _SHORTEST and text.lower() not in _NO_SECRETS:
            yield text
            yield from (quote(text, safe="", errors="replace"), quote_plus(text, errors="replace"), html.escape(text))
            yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
            yield from (harmless(text), visible(text))
            yield from (form for form in _in_base64(text.encode("utf-8", "replace")) if len(form) > _SHORTEST)


def _of_basic(header: str) -> Iterator[str]:
    """Yields the password in the header of Basic authentication, which a server decodes."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            yield base64.b64decode(encoded, validate=True).decode().partition(":")[2]


def _in_base64(secret: bytes) -> Iterator[str]:
    """Yields the characters that stand for the secret in base64, behind any other bytes, such as a user name."""
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(secret)) // 6
        text = base64.b64encode(bytes(before) + secret).decode()[first:last]
        yield from (text, text.replace("+", "-").replace("/", "_"))


def _without_beginnings(text: str, form: str) -> str:
    """Returns the text without the places where the form of a secret was cut."""
    parts: list[str] = []
    begin = 0
    while (found := text.find(form[:_SHORTEST], begin)) >= 0:
        pairs = zip(text[found : found + len(form)], form, strict=False)
        length = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        end = found + length
        is_cut = length >= _BEGINNING or end == len(text) or text[end] == "…"
        parts += (text[begin:found], HIDDEN) if is_cut else (text[begin : found + 1],)
        begin = end if is_cut else found + 1
    return "".join((*parts, text[begin:])) if parts else text


def of_url(url: str) -> Iterator[tuple[str, str]]:
    """Yields name and value of each parameter of a URL, and its password as "password", as written and decoded."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return
    pairs = [each.partition("=")[::2] for each in f"{parts.query}&{parts.fragment}".split("&")]
    for name, value in [*pairs, ("password", password or "")]:
        yield from ((unquote(name), value), (unquote(name), unquote(value)))
