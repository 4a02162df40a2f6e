"""The value of an annotation: parts with commas between, each `METRIC=VALUE`, or `VALUE` for all other metrics.

METRIC is an address (`hpad.engine.addresses`). Commas and equals signs within braces belong to a selector.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeVar

from hpad.api.text import begin, shown
from hpad.engine import addresses
from hpad.engine.addresses import Address, Identity

T = TypeVar("T")

_SEPARATOR: Final = re.compile(r"\{[^}]*\}?|,")
_MOST_ERRORS: Final = 10
_MOST_SHOWN: Final = 10


def assigned(text: str, parse_value: Callable[[str], T], metrics: tuple[Identity, ...]) -> tuple[T | None, ...]:
    """Returns the value of each metric by its most specific address in the text, None where the text has none for it.

    Raises ValueError with the errors of the parts, at most ten: addresses that are malformed, match no metric or occur
    twice, and values that `parse_value` refuses with a ValueError. Of several parts each error names its own.
    """
    forms = addresses.forms(metrics)
    known = set(chain.from_iterable(forms))
    errors: list[str] = []
    texts: dict[Address | None, str] = {}
    values: dict[Address | None, T] = {}
    for part in _parts(text):
        try:
            address, value = _split(part)
            if address in texts:
                raise ValueError(f"{cut(texts[address])} is for the same metrics")
            if address is not None and address not in known:
                raise ValueError(
                    f"there is no metric {cut(str(address))} here; {existing(addresses.canonical(metrics))}"
                )
            values[address], texts[address] = parse_value(value), part
        except ValueError as error:
            errors.append(str(error) if part == text.strip() else f"{cut(part)}: {error}")
            if len(errors) == _MOST_ERRORS:
                break
    if errors:
        raise ValueError("; ".join(errors))
    return tuple(next((values[form] for form in (*each, None) if form in values), None) for each in forms)


def _parts(text: str) -> Iterator[str]:
    start = 0
    for match in _SEPARATOR.finditer(text):
        if match[0] == ",":
            yield text[start : match.start()].strip()
            start = match.end()
    yield text[start:].strip()


def _split(part: str) -> tuple[Address | None, str]:
    """Returns the address, None for a value for all other metrics, and the value. Raises ValueError."""
    if not part:
        raise ValueError("a value is missing, or there is a comma too many")
    selector, brace, rest = part.rpartition("}")
    # At the last equals sign: the name of a metric may have some as well.
    name, equals, value = rest.rpartition("=")
    if equals:
        return addresses.parse(f"{selector}{brace}{name}".strip()), value.strip()
    if brace:
        raise ValueError("there is no value: METRIC=VALUE is needed")
    return None, part


def existing(names: Sequence[str]) -> str:
    """Returns the addresses of the metrics that there are, for an error."""
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return f"there are {', '.join(islice(names, _MOST_SHOWN)) or 'none'}{more}"


def cut(text: str) -> str:
    """Returns a text of an annotation for an error, at most 100 characters of it."""
    return shown(begin(text))
