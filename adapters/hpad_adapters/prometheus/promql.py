"""Text that is safe inside PromQL: names, string literals, and label selectors of Kubernetes as label matchers.

Source: Prometheus, "Querying basics" (string literals, matchers). Whatever an HPA's author wrote passes through here.
"""

import re
from collections.abc import Iterable, Sequence

from hpad.adapter import AdapterError, Requirement, shown

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_NOT_IN_A_LABEL_NAME = re.compile(r"[^a-zA-Z0-9_]")
_REGEX_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ALWAYS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\x00"}
_ESCAPES = {quote: str.maketrans(_ALWAYS | {quote: f"\\{quote}"}) for quote in "\"'"}

_PIECE = re.compile(r"#[^\n]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|[()\[\]{}]", re.DOTALL)
_CLOSES = {")": "(", "]": "[", "}": "{"}

EQUAL, NOT_EQUAL, REGEX, NOT_REGEX = "=", "!=", "=~", "!~"


def unbalanced(expression: str) -> str | None:
    """Which bracket of an expression has no counterpart, None where each has; those in strings and comments are
    text."""
    opened: list[str] = []
    for piece in _PIECE.findall(expression):
        if piece in "([{":
            opened.append(piece)
        elif piece in _CLOSES and (not opened or opened.pop() != _CLOSES[piece]):
            return f"the brackets do not match: a {piece} closes no {_CLOSES[piece]}"
    return f"the brackets do not match: a {opened[-1]} is never closed" if opened else None


def name(text: str) -> str:
    """The name of a series or a number, as it stands outside quotes; raises AdapterError for anything else."""
    if not _NAME.fullmatch(text) and not _NUMBER.fullmatch(text):
        raise AdapterError(f"{shown(text)} cannot stand in PromQL as the name of a series", "spec")
    return text


def label_name(key: str) -> str:
    """The label of a series for a key as Kubernetes has them: `app.kubernetes.io/name` is `app_kubernetes_io_name`.

    That is the mapping of Prometheus' own service discovery and of kube-state-metrics.
    """
    sanitized = _NOT_IN_A_LABEL_NAME.sub("_", key)
    return f"_{sanitized}" if sanitized[:1].isdigit() else sanitized


def quoted_regex(text: str) -> str:
    """A regular expression (RE2) that matches this text alone."""
    return _REGEX_SPECIAL.sub(lambda special: "\\" + special.group(), text)


def alternatives(values: Iterable[str]) -> str:
    """A regular expression that matches each of these texts and no other."""
    return "|".join(map(quoted_regex, values))


def escaped(text: str, quote: str) -> str:
    """What stands between two quotes of that kind for this text; raises AdapterError where nothing can."""
    if quote == "`":
        if "`" in text:
            raise AdapterError(f"{shown(text)} cannot stand between backquotes in PromQL", "spec")
        return text
    return text.translate(_ESCAPES[quote])


def matcher(label: str, sign: str, value: str) -> str:
    """`label="value"`, with the value (a regular expression if the sign says so) escaped."""
    safe = escaped(value, '"')
    return f'{label_name(label)}{sign}"{safe}"'


def one_of(label: str, values: Sequence[str], sign: str = EQUAL) -> str:
    """A matcher for (or, with `!=`, against) a label that holds one of these values."""
    if len(values) == 1:
        return matcher(label, sign, values[0])
    return matcher(label, REGEX if sign == EQUAL else NOT_REGEX, alternatives(values))


def from_requirement(term: Requirement, prefix: str = "") -> str:
    """One term of a label selector as a matcher; raises AdapterError for what PromQL has no matcher for.

    A label that is not there is an empty one to Prometheus, so that `!=` and `notin` match it, as in Kubernetes.
    """
    key = prefix + term.key
    match term.operator.value:
        case "=" | "==" | "in":
            return one_of(key, term.values)
        case "!=" | "notin":
            return one_of(key, term.values, NOT_EQUAL)
        case "exists":
            return matcher(key, NOT_EQUAL, "")
        case "!":
            return matcher(key, EQUAL, "")
    raise AdapterError(f'selector term "{term}" has no counterpart in PromQL', "spec")
