"""Spare replicas: a count on top of what the metrics want (`hpad.io/spare`)."""

import re
from typing import Final, NamedTuple

import msgspec

from hpad.api.quantity import MAX_INT32
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

    def on(self, wanted: int) -> int:
        """Returns the count with the spare ones on top of what the metrics want; 0 stays 0: nothing waits for idle."""
        if wanted <= 0:
            return wanted
        return min(MAX_INT32, wanted + self.replicas - -wanted * self.percent // 100)

    def beneath(self, present: int) -> int:
        """Returns the count without the spare ones: the largest whose `on` is within `present`, but at least 1 of 1."""
        counted = present * 100 // (100 + self.percent) if self.percent else present - self.replicas
        return max(min(present, 1), counted)


class WithSpare(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    rename={"wanted": "before", "replicas": "after"},
):
    """What spare replicas did: the counts before and after them.

    `amount` is as written. `counted` is the present count without its spare replicas, which the metrics decided for.
    """

    amount: str
    counted: int
    wanted: int
    replicas: int

    @property
    def clause(self) -> str:
        """The part of the sentence; "" where none are added."""
        added = self.replicas - self.wanted
        return f"{added} spare on top" if added else ""


def parse(text: str) -> SpareReplicas:
    """Parses `2` or `10%`. Raises ValueError."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or int(found[1]) > _MOST:
        raise ValueError(f"{shown(text)} is neither a number of replicas such as 1 nor a percentage such as 10%")
    amount = int(found[1])
    return SpareReplicas(percent=amount) if found[2] else SpareReplicas(replicas=amount)
