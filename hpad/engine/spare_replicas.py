"""Spare replicas: a count on top of what the metrics want (`hpad.io/spare`)."""

import re
from typing import Final, NamedTuple

from hpad.api.text import shown

_WRITTEN: Final = re.compile(r"([0-9]{1,4})(%?)")
_MOST: Final = 1000
"""Of replicas, and of percent."""


class SpareReplicas(NamedTuple):
    """Either a number of replicas, or a part in percent of the count that the metrics want, rounded up."""

    replicas: int = 0
    percent: int = 0

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent else str(self.replicas)


def parse(text: str) -> SpareReplicas:
    """Parses `2` or `10%`. Raises ValueError."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or int(found[1]) > _MOST:
        raise ValueError(f"{shown(text)} is neither a number of replicas such as 1 nor a percentage such as 10%")
    amount = int(found[1])
    return SpareReplicas(percent=amount) if found[2] else SpareReplicas(replicas=amount)
