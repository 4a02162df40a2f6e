"""The result of measuring, and the error where there is none."""

import msgspec


class Unmeasurable(Exception):
    """A sample that says nothing about the goal; the text is part of the condition and the event."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How much is used, against a goal.

    `value` is the reading in milli-units (the average of a pod, or the whole for a Value goal; None where there is
    none), `percent` the reading of a Utilization goal. `ratio` is used / wanted, over `pods` pods. Where unready or
    missing pods had to be counted in with a cautious guess, `cautious` is the ratio with them, over `pods` pods.

    `per_replica` readings are a total shared by the replicas the target reports; `total` is that sum in milli-units.
    `pods` is None where no pod was found and none was needed.
    """

    ratio: float
    value: int | None
    pods: int | None
    percent: int | None = None
    cautious: float | None = None
    total: int | None = None
    unready: int = 0
    missing: int = 0
    ignored: int = 0

    def __str__(self) -> str:
        left_out = (("unready", self.unready), ("missing", self.missing), ("ignored", self.ignored))
        pods = "".join(f", {count} {what}" for what, count in left_out if count)
        cautious = "" if self.cautious is None else f", {self.cautious:.3f} with the pods that tell nothing"
        return f"ratio {self.ratio:.3f}{cautious}, over {self.pods} pods{pods}"
