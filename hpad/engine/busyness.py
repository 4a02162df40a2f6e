"""Where the unfinished work of each pod is read: the value of the annotation `hpad.io/busy-metric`."""

import re
from typing import Final, NamedTuple

from hpad.api.quantity import QuantityError, parse_milli
from hpad.api.text import shown
from hpad.engine import addresses
from hpad.engine.addresses import Address

ANNOTATION: Final = "hpad.io/busy-metric"
LONGEST: Final = 1200
"""Characters of the annotation: an address, and a number."""
_ABOVE: Final = re.compile(r"(.*\S)\s+above\s+(\S+)", re.DOTALL)


class BusyMetric(NamedTuple):
    """The metric of the unfinished work: an address, and the value in milli-units above which a pod is busy.

    The address stands for an External metric of the HPA, whose source is asked for a value per pod, or else for a Pods
    metric of that name and selector.
    """

    address: Address
    above: int = 0


def parse(text: str) -> BusyMetric:
    """Parses `NAME`, `NAME{SELECTOR}` or `#INDEX`, with ` above NUMBER` after it or not. Raises ValueError."""
    found = _ABOVE.fullmatch(text.strip())
    if found is None:
        return BusyMetric(_address(text.strip(), text))
    try:
        above = parse_milli(found[2])
    except QuantityError:
        raise ValueError(f"{shown(found[2])} is not a number such as 0.5") from None
    if above < 0:
        raise ValueError(f"{shown(found[2])} is below 0")
    return BusyMetric(_address(found[1], text), above)


def _address(written: str, text: str) -> Address:
    """Parses the address. A name with a space is an error: it would stand for a Pods metric that does not exist."""
    address = addresses.parse(written)
    if len(address.name.split()) > 1:
        raise ValueError(f"{shown(text)} is not of the form NAME or NAME above NUMBER")
    return address
