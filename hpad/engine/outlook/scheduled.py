"""The next bounds of an HPA with a schedule (`hpad.io/schedule`)."""

from hpad.engine import trace
from hpad.engine.outlook.types import SCHEDULE, Outlook
from hpad.engine.outlook.words import clock


def scheduled(made: trace.Trace, count: int | None) -> tuple[Outlook, ...]:
    """Returns the next change of minimum and maximum; `count` is the present one, None where no count is written.

    A count outside the bounds is set to the nearer one without metrics.
    """
    bounds = made.replicas.next_bounds
    if bounds is None:
        return ()
    at, sets = clock(bounds.at, made.time), f"the schedule sets min {bounds.min}, max {bounds.max}"
    after = None if count is None else min(max(count, bounds.min), bounds.max)
    if after == count:
        return (Outlook(kind=SCHEDULE, text=f"from {at} on {sets}", at=bounds.at),)
    return (Outlook(kind=SCHEDULE, text=f"{count} -> {after} from {at} on: {sets}", at=bounds.at, replicas=after),)
