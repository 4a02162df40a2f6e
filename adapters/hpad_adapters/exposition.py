"""The text format of Prometheus: samples line by line, strictly.

Source: Prometheus, "Exposition formats: text-based format". Brokers answer tens of thousands of lines, for which the
parser of prometheus_client takes several times as long.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

# Nothing is matched a second time in another way: a line may have millions of spaces, braces or escapes.
_LINE: Final = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+(?>\{(.*)\})?+[ \t]*+(?<=[} \t])(\S++)(?:[ \t]++-?\d++)?[ \t\r]*+"
)
_LABEL: Final = re.compile(
    r'[ \t]*+([a-zA-Z_]\w*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\[\\"n][^"\\]*+)*+)"[ \t]*+(,|\Z)', re.ASCII
)
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n"}
_LONGEST_SHOWN: Final = 80


class ExposedSample(msgspec.Struct, frozen=True, gc=False):
    """One line: the labels of a series by name, and its value, which may be infinite or not a number.

    Samples of one document share their labels where these are equal.
    """

    labels: dict[str, str]
    value: float


def samples(
    lines: Iterable[str], wanted: Callable[[str], bool], odd: Callable[[str, ValueError], None] | None = None
) -> Iterator[tuple[str, ExposedSample]]:
    """Yields the names and samples of the lines whose name is wanted; empty lines and comments are passed over.

    For a line that is not of the format, `odd` is called with it and the error, which has its beginning; it may raise
    the error. Without `odd`, raises it.
    """
    known: dict[str | None, dict[str, str]] = {None: {}, "": {}}
    for line in lines:
        if not line or line[0] == "#" or line.isspace():
            continue
        try:
            match = _LINE.fullmatch(line.lstrip(" \t"))
            if match is None:
                raise _odd(line)
            name, labels, value = match.groups()
            if not wanted(name):
                continue
            if (shared := known.get(labels)) is None:
                shared = known[labels] = _labels(labels, line)
            sample = ExposedSample(shared, _number(value, line))
        except ValueError as error:
            if odd is None:
                raise
            odd(line, error)
            continue
        yield name, sample


def _labels(text: str, line: str) -> dict[str, str]:
    found, position, end = dict[str, str](), 0, len(text)
    while position < end:
        match = _LABEL.match(text, position)
        if match is None or match[1] in found:
            if not text[position:].strip(" \t"):  # after a comma at the end
                break
            raise _odd(line)
        name, value, _ = match.groups()
        found[name] = value if "\\" not in value else _ESCAPE.sub(_unescaped, value)
        position = match.end()
    return found


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[1])


def _number(text: str, line: str) -> float:
    try:
        # Python takes 1_000 for a number, the format does not.
        return float(text) if "_" not in text else float("")
    except ValueError:
        raise _odd(line) from None


def _odd(line: str) -> ValueError:
    return ValueError(f'the line "{line[:_LONGEST_SHOWN]}" is not a sample')
