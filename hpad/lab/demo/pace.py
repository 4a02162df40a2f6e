"""How long the demo takes its time, from the seconds that it may last."""

from dataclasses import dataclass

USUAL = 100.0
LEAST = 40.0


@dataclass(frozen=True)
class Pace:
    """`rest` at each quiet end of a half, `hold` at the peak of the first one, `task` for one message of the second;
    `patience` is how long to wait for anything before it counts as failed. All in seconds."""

    rest: float
    hold: float
    task: float
    patience: float = 60.0

    @classmethod
    def of(cls, seconds: float) -> "Pace":
        """The pace at which both halves together take about `seconds`; the least is what the HPAs' windows need."""
        share = max(LEAST, seconds) / USUAL
        return cls(rest=3 * share, hold=20 * share, task=4 * share)

    @property
    def spans(self) -> tuple[float, float]:
        """How long each half should take, with the windows that its HPA's behavior sets."""
        return 22 + 2 * self.rest + self.hold, 12 + 2 * self.rest + 5 * self.task
