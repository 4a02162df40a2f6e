"""Who else writes what an HPA writes, and counts that are decided but not written."""

from typing import Final

import msgspec

HPA: Final = "hpa"
SCALE: Final = "scale"
STATUS: Final = "status"
UNNAMED: Final = "another client"


class Competitor(msgspec.Struct, frozen=True):
    """Another writer of an HPA's target or status.

    `what` is HPA (an HPA that is not hpad's scales the same target), SCALE (a client has set the target's replicas
    after hpad did) or STATUS (a client writes the status of the HPA). `name` is the HPA's namespace/name, or the
    client as `metadata.managedFields` names it (UNNAMED where it cannot be told).
    """

    what: str
    name: str

    def __str__(self) -> str:
        if self.what == HPA:
            return f"the HPA {self.name} of the API server scales the same target"
        if self.what == SCALE:
            return f"{self.name} sets the replicas of the target, too"
        return f"{self.name} writes the status of this HPA, too"


REASONS: Final = {HPA: "OtherHPA", SCALE: "ScaleWritten", STATUS: "StatusWritten"}
"""The reasons of the condition CompetingWriters, the gravest first."""


class Withheld(msgspec.Struct, frozen=True):
    """Why a decided count was not sent at all. `reason` is that of the condition AbleToScale, `message` says more.

    `able`: only hpad itself was told not to write, as in a dry run; the target could have been scaled.
    """

    reason: str
    message: str
    able: bool = True


DRY_RUN: Final = Withheld("DryRun", "this is a dry run")


def yielded(to: Competitor) -> Withheld:
    """A count that is left to the HPA of the API server that scales the same target."""
    return Withheld("CompetingHPA", f"{to}, and is left to it", able=False)
