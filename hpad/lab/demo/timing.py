"""The durations of the parts of the demo, scaled to its total duration."""

from dataclasses import dataclass

DEFAULT = 100.0
MINIMUM = 40.0
"""Seconds of both halves that the stabilization windows of their HPAs need."""


@dataclass(frozen=True)
class Timing:
    """Durations in seconds.

    - `pause`: before the load and at the end of each half.
    - `peak`: the load at the peak of the first half.
    - `task`: the work on one message in the second half.
    - `timeout`: limit of each expected change; the half fails after it.
    """

    pause: float
    peak: float
    task: float
    timeout: float = 60.0

    @classmethod
    def of(cls, seconds: float) -> "Timing":
        """Returns durations with which both halves together take about `seconds`, at least MINIMUM."""
        factor = max(MINIMUM, seconds) / DEFAULT
        return cls(pause=3 * factor, peak=20 * factor, task=4 * factor)

    @property
    def spans(self) -> tuple[float, float]:
        """The expected duration of each half, with the stabilization windows of its HPA."""
        return 22 + 2 * self.pause + self.peak, 8 + 2 * self.pause + 11 * self.task
