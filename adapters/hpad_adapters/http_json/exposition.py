"""Samples in the text format of Prometheus, chosen by name and labels.

Source: Prometheus, "Exposition formats" and "Querying basics: time series selectors".
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from hpad.adapter import shown
from hpad_adapters.http_json.paths import NoNumberError, milli

_SELECTOR: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_MATCHER: Final = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|\Z)', re.ASCII)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}

Test = Callable[[str], bool]


class ExposedSeries(msgspec.Struct, frozen=True):
    """A selector of series: a name, and tests of labels; a label that a series lacks counts as an empty text."""

    name: str
    tests: tuple[tuple[str, Test], ...] = ()

    def matches(self, labels: dict[str, str]) -> bool:
        """Returns whether each test holds."""
        return all(test(labels.get(label, "")) for label, test in self.tests)


def selector(text: str) -> ExposedSeries:
    """Parses a selector such as `jobs{queue="mail",state!="done"}`; raises ValueError."""
    match = _SELECTOR.fullmatch(text)
    if match is None:
        raise ValueError(f"path: {shown(text)} is not of the form 'jobs{{queue=\"mail\"}}'")
    return ExposedSeries(match[1], tuple(_tests(match[2] or "", text)))


def values(body: bytes, series: ExposedSeries, limit: int) -> list[int]:
    """Returns thousandths of the samples that match; raises NoNumberError, also for more than `limit` lines."""
    # Of a long document only the lines with this name are parsed.
    begins = tuple(f"{series.name}{behind}".encode() for behind in "{ \t")
    lines = [line for line in (each.lstrip() for each in body.split(b"\n")) if line.startswith(begins)]
    if len(lines) > limit:
        raise NoNumberError(f"there are more than max_elements ({limit}) samples of that name")
    try:
        found = [milli(value) for value in _parsed(lines, series)]
    except (ValueError, OverflowError):
        raise NoNumberError("a line with that name is not a sample with a finite number") from None
    if not found:
        raise NoNumberError("no series matches")
    return found


def _parsed(lines: Sequence[bytes], series: ExposedSeries) -> Iterator[float]:
    """Yields the values of the lines that match; raises ValueError."""
    for family in text_string_to_metric_families((b"\n".join(lines) + b"\n").decode()):
        for sample in family.samples:
            if sample.name == series.name and series.matches(sample.labels):
                yield sample.value


def _tests(text: str, whole: str) -> Iterator[tuple[str, Test]]:
    position = 0
    while text[position:].strip():
        match = _MATCHER.match(text, position)
        if match is None:
            raise ValueError(f"path: {shown(whole)}: {shown(text[position:])} is not of the form 'queue=\"mail\"'")
        label, operator, value = match.groups()
        yield label, _test(operator, re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), value))
        position = match.end()


def _test(operator: str, value: str) -> Test:
    if operator in ("=", "!="):
        return lambda text: (text == value) is (operator == "=")
    try:
        pattern = re.compile(value)
    except re.error as error:
        raise ValueError(f"path: {shown(value)} is not a regular expression: {error}") from None
    return lambda text: (pattern.fullmatch(text) is not None) is (operator == "=~")
