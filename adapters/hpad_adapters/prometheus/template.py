"""Query templates, the subset of Go's text/template that configurations of prometheus-adapter use, and PromQL text.

The forms are `<<.Name>>`, `<<.Map.key>>`, `<<index .Map "key">>` and `<<index .List 0>>`. Every value, which may come
from an HPA, is escaped for its place: inside quotes, inside the quotes of a regular expression, or outside both, where
only the name of a series or a number is allowed. Source: Prometheus, "Querying basics" (string literals, matchers).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hpad.adapter import AdapterError, Requirement, meant, shown

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_NOT_IN_A_LABEL_NAME = re.compile(r"[^a-zA-Z0-9_]")
_REGEX_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ALWAYS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\x00"}
_ESCAPES = {quote: str.maketrans(_ALWAYS | {quote: f"\\{quote}"}) for quote in "\"'"}

EQUAL, NOT_EQUAL, REGEX, NOT_REGEX = "=", "!=", "=~", "!~"


def name(text: str) -> str:
    """Returns the text, if it is the name of a series or a number; raises AdapterError for anything else."""
    if not _NAME.fullmatch(text) and not _NUMBER.fullmatch(text):
        raise AdapterError(f"{shown(text)} cannot stand in PromQL as the name of a series", "spec")
    return text


def label_name(key: str) -> str:
    """Returns the label of a series for a label key of Kubernetes: `app_kubernetes_io_name`.

    That is the mapping of Prometheus' own service discovery and of kube-state-metrics.
    """
    sanitized = _NOT_IN_A_LABEL_NAME.sub("_", key)
    return f"_{sanitized}" if sanitized[:1].isdigit() else sanitized


def alternatives(values: Iterable[str]) -> str:
    """Returns a regular expression (RE2) that matches each of these texts and no other."""
    # Not re.escape, which would also escape each hyphen: with hundreds of pod names the query becomes much longer.
    return "|".join(_REGEX_SPECIAL.sub(r"\\\g<0>", value) for value in values)


def escaped(text: str, quote: str) -> str:
    """Escapes the text for quotes of this kind; raises AdapterError if backquotes cannot hold it."""
    if quote == "`":
        if "`" in text:
            raise AdapterError(f"{shown(text)} cannot stand between backquotes in PromQL", "spec")
        return text
    return text.translate(_ESCAPES[quote])


def matcher(label: str, sign: str, value: str) -> str:
    """Returns `label="value"` with this sign and the value escaped."""
    safe = escaped(value, '"')
    return f'{label_name(label)}{sign}"{safe}"'


def one_of(label: str, values: Sequence[str], sign: str = EQUAL) -> str:
    """Returns a matcher for (or, with `!=`, against) a label with one of these values."""
    if len(values) == 1:
        return matcher(label, sign, values[0])
    return matcher(label, REGEX if sign == EQUAL else NOT_REGEX, alternatives(values))


def from_requirement(term: Requirement, prefix: str = "") -> str:
    """Translates one term of a label selector; raises AdapterError for operators that PromQL lacks."""
    key = prefix + term.key
    match term.operator.value:
        case "=" | "==" | "in":
            return one_of(key, term.values)
        # Prometheus treats an absent label as empty, so these match it, as in Kubernetes.
        case "!=" | "notin":
            return one_of(key, term.values, NOT_EQUAL)
        case "exists":
            return matcher(key, NOT_EQUAL, "")
        case "!":
            return matcher(key, EQUAL, "")
    raise AdapterError(f'selector term "{term}" has no counterpart in PromQL', "spec")


_ACTION = re.compile(r"<<(?P<left>-\s)?(?P<body>(?:(?!<<).)*?)(?P<right>\s-)?>>", re.DOTALL)
_FIELD = re.compile(r"\.(\w+)(?:\.(\w+))?")
_INDEX = re.compile(r"index\s+\.(\w+)\s+(?:\"([^\"]*)\"|`([^`]*)`|(\d+))")
_REGEX_SIGNS = ("=~", "!~")
_BEFORE_MATCHERS = re.compile(r"[{,]\s*\Z")
_BEFORE_LABELS = re.compile(r"[(,]\s*\Z")
_BEFORE = {"LabelMatchers": _BEFORE_MATCHERS, "PodMatchers": _BEFORE_MATCHERS, "GroupBy": _BEFORE_LABELS}
"""What stands before the place of a variable that may hold nothing: the comma behind it goes then."""
_COMMA_BEFORE = re.compile(r"\A\s*,")

READY_MADE = frozenset({"LabelMatchers", "PodMatchers", "GroupBy", "GroupBySlice"})
"""Variables whose values are PromQL; every other value is text."""

Value = str | Sequence[str] | Mapping[str, Sequence[str]]


class TemplateError(ValueError):
    """The template is invalid; the message names the error and the right form."""


class UnknownVariableError(TemplateError):
    """The template names an unknown variable; the rest may be right."""


class Action(msgspec.Struct, frozen=True):
    """A place in a template where the value of a variable is inserted.

    `key` is the key or position within the variable, None for all of it. `quote` is the quote around the place ("" for
    none), `regex` whether the quotes hold a regular expression.
    """

    variable: str
    key: str | int | None
    quote: str = ""
    regex: bool = False


class Template(msgspec.Struct, frozen=True):
    """A compiled template: alternating literals and actions."""

    text: str
    parts: tuple[str | Action, ...]

    @property
    def variables(self) -> frozenset[str]:
        """The names of all variables that occur."""
        return frozenset(part.variable for part in self.parts if isinstance(part, Action))

    def keys(self, variable: str) -> frozenset[str]:
        """Returns the keys of a map variable that occur."""
        actions = (part for part in self.parts if isinstance(part, Action) and part.variable == variable)
        return frozenset(str(action.key) for action in actions)

    def render(self, values: Mapping[str, Value]) -> str:
        """Returns the query; raises AdapterError for a value that is not allowed at its place."""
        pieces: list[str] = []
        swallow_comma = False
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(_COMMA_BEFORE.sub("", part) if swallow_comma else part)
                swallow_comma = False
                continue
            text = _inserted(part, values)
            # `{<<.LabelMatchers>>,job="x"}` without a matcher would be `{,job="x"}`, and `by (<<.GroupBy>>, le)`
            # without a label `by (, le)`, which are no PromQL.
            before = _BEFORE.get(part.variable)
            swallow_comma = not text and before is not None and bool(before.search("".join(pieces)))
            pieces.append(text)
        return "".join(pieces)


def compiled(text: str, variables: frozenset[str]) -> Template:
    """Compiles a template; raises TemplateError for unknown variables and for forms outside the subset."""
    parts: list[str | Action] = []
    pieces = list(_pieces(text))
    quotes = _quotes("".join(piece.replace(_HOLE, "x") if isinstance(piece, str) else _HOLE for piece in pieces))
    for piece in pieces:
        if isinstance(piece, str):
            if "<<" in piece:
                raise TemplateError("a << is not closed")
            parts.append(piece)
            continue
        body, (quote, regex) = piece["body"].strip(), next(quotes)
        action = _action(body, variables)
        parts.append(msgspec.structs.replace(action, quote=quote, regex=regex))
        if quote and action.variable in READY_MADE:
            raise TemplateError(f"<<{body}>> stands inside quotes")
        if action.variable == "HPALabels" and action.key is None:
            raise TemplateError('<<.HPALabels>> names no label: <<index .HPALabels "team">> is the value of one')
    next(quotes, None)  # raises the error of a quote behind the last action
    return Template(text, tuple(parts))


_PIECE = re.compile(r"#[^\n]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|[\"'`()\[\]{}]|\0", re.DOTALL)
"""Comments, strings, quotes that are not closed, brackets, and actions, for which `_HOLE` stands."""
_HOLE = "\0"
_CLOSES = {")": "(", "]": "[", "}": "{"}


def _quotes(promql: str) -> Iterator[tuple[str, bool]]:
    """Yields for each action, which _HOLE stands for, the quote around it, and whether that holds a regular expression.

    Raises TemplateError for a quote that is not closed.
    """
    for match in _PIECE.finditer(promql):
        piece = match[0]
        if piece in "\"'`":
            raise TemplateError(f"a quote {piece} is not closed")
        quote = piece[0] if piece[0] in "\"'`" else ""
        regex = bool(quote) and promql[: match.start()].rstrip().endswith(_REGEX_SIGNS)
        yield from [(quote, regex)] * piece.count(_HOLE)


def promql_error(text: str) -> str | None:
    """Returns why no values make the template valid PromQL: empty, or an unmatched bracket; None if they can."""
    if not text.strip():
        return "is empty: PromQL is needed"
    opened: list[str] = []
    for piece in _PIECE.findall(_ACTION.sub(_HOLE, text)):
        if piece in "([{":
            opened.append(piece)
        # Strings and comments are pieces too: brackets within them are text.
        elif piece in _CLOSES and (not opened or opened.pop() != _CLOSES[piece]):
            return f"the brackets do not match: a {piece} closes no {_CLOSES[piece]}"
    return f"the brackets do not match: a {opened[-1]} is never closed" if opened else None


def flaws(text: str, variables: frozenset[str]) -> Iterator[str]:
    """Yields the errors of a query with these variables: of the template, and of the PromQL around them."""
    try:
        compiled(text, variables)
    except UnknownVariableError as error:
        yield str(error)
    except TemplateError as error:
        yield str(error)
        return
    if wrong := promql_error(text):
        yield wrong


def _pieces(text: str) -> Iterator[str | re.Match[str]]:
    """Yields alternating literals and actions; `<<-` and `->>` remove the white space beside them."""
    position, trim = 0, False
    for match in _ACTION.finditer(text):
        literal = text[position : match.start()]
        literal = literal.lstrip() if trim else literal
        yield literal.rstrip() if match["left"] else literal
        yield match
        position, trim = match.end(), bool(match["right"])
    yield text[position:].lstrip() if trim else text[position:]


def _action(body: str, variables: frozenset[str]) -> Action:
    if field := _FIELD.fullmatch(body):
        action = Action(field[1], field[2])
    elif index := _INDEX.fullmatch(body):
        number = index[4]
        action = Action(index[1], int(number) if number else index[2] if index[2] is not None else index[3])
    else:
        raise TemplateError(f'<<{body}>> is not of the form <<.Name>> or <<index .Name "key">>')
    if action.variable not in variables:
        hint = meant(action.variable, variables)
        there = ", ".join(sorted(variables))
        raise UnknownVariableError(f"there is no variable .{action.variable}{hint}; there are {there}")
    return action


def _inserted(action: Action, values: Mapping[str, Value]) -> str:
    value = values[action.variable]
    if action.key is not None:
        value = _within(value, action.key)
    if action.variable in READY_MADE:
        return value if isinstance(value, str) else f"[{' '.join(value)}]"
    texts = [value] if isinstance(value, str) else list(value)
    if action.regex:
        return escaped(alternatives(texts), action.quote)
    text = "|".join(texts)
    if action.quote:
        return escaped(text, action.quote)
    return name(text) if text else ""


def _within(value: Value, key: str | int) -> Value:
    """Returns an entry of a map ("" for an absent one, as in Go) or of a list."""
    if isinstance(value, Mapping):
        return value.get(str(key), "")
    try:
        return value[int(key)]
    except (IndexError, ValueError):
        return ""
