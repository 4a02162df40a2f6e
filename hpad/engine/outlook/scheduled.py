"""The next bounds of an HPA with a schedule (`hpad.io/schedule`)."""

from hpad.engine.outlook.types import SCHEDULE, Outlook
from hpad.engine.trace.make import next_bounds
from hpad.engine.view import View
from hpad.engine.words import clock


def scheduled(view: View, count: int | None) -> tuple[Outlook, ...]:
    """Returns the next change of minimum and maximum; `count` is the present one, None where no count is written.

    A count outside the bounds is set to the nearer one without metrics.
    """
    bounds = next_bounds(view)
    if bounds is None:
        return ()
    begins = bounds.at
    at, sets = clock(begins, view.now), f"the schedule sets min {bounds.min}, max {bounds.max}"
    after = None if count is None else min(max(count, bounds.min), bounds.max)
    if after == count:
        return (Outlook(kind=SCHEDULE, text=f"from {at} on {sets}", at=begins, rest=f" {sets}"),)
    text, rest = f"{count} -> {after} from {at} on: {sets}", f": {sets}"
    return (Outlook(kind=SCHEDULE, text=text, at=begins, rest=rest, replicas=after),)
