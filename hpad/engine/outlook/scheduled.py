"""The next bounds of an HPA with a schedule (`hpad.io/schedule`)."""

import msgspec

from hpad.engine import schedule, trace
from hpad.engine.outlook.types import SCHEDULE, Outlook
from hpad.engine.view import View
from hpad.engine.words import clock


def foreseen(made: trace.Trace) -> trace.Trace:
    """Returns the trace with the bounds that the schedule sets next.

    They are for people, and take up to a fifth of a second to find: no turn looks for them, and no event loop.
    """
    windows = made.replicas.windows
    if windows is None or made.replicas.next_bounds is not None:
        return made
    try:
        found = schedule.following(schedule.parse(windows.text), made.time, windows.min, windows.max)
    except ValueError:  # a time zone that this machine does not have
        return made
    if found is None:
        return made
    bounds = trace.NextBoundsTrace(at=found[0], min=found[1].low, max=found[1].high)
    return msgspec.structs.replace(made, replicas=msgspec.structs.replace(made.replicas, next_bounds=bounds))


def scheduled(view: View, count: int | None) -> tuple[Outlook, ...]:
    """Returns the next change of minimum and maximum; `count` is the present one, None where no count is written.

    A count outside the bounds is set to the nearer one without metrics.
    """
    windows, spec = view.controls.schedule, view.spec
    low = max(1, spec.min_replicas) if view.scale_to_zero_disabled else spec.min_replicas
    found = None if windows is None else schedule.following(windows, view.now, low, spec.max_replicas)
    if found is None:
        return ()
    begins, bounds = found
    at, sets = clock(begins, view.now), f"the schedule sets min {bounds.low}, max {bounds.high}"
    after = None if count is None else min(max(count, bounds.low), bounds.high)
    if after == count:
        return (Outlook(kind=SCHEDULE, text=f"from {at} on {sets}", at=begins, rest=f" {sets}"),)
    text, rest = f"{count} -> {after} from {at} on: {sets}", f": {sets}"
    return (Outlook(kind=SCHEDULE, text=text, at=begins, rest=rest, replicas=after),)
