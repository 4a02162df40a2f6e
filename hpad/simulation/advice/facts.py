"""Facts from the past of one HPA, without a model."""

import itertools

from hpad.engine.view import Tunables
from hpad.simulation.advice.assessment import Curve, Facts
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import REPLICAS


def curve(past: HpaPast) -> Curve:
    """Returns the recorded replica count: its changes, and its last time."""
    known = [
        (time, round(count))
        for time, count in zip(past.load.times, past.load.columns[REPLICAS], strict=True)
        if count is not None
    ]
    changes = [after for before, after in itertools.pairwise(known) if before[1] != after[1]]
    return [*known[:1], *changes, *known[-1:]]


def facts_of(past: HpaPast, tunables: Tunables) -> Facts:
    """Returns the facts."""
    times, counts = past.load.times, past.load.columns[REPLICAS]
    spans = [
        (later - time, count, low, high)
        for (time, later), count, low, high in zip(
            itertools.pairwise(times), counts, past.minimum, past.maximum, strict=False
        )
        if count is not None
    ]
    known = [round(count) for _, count, _, _ in spans]
    return Facts(
        seconds=sum(length for length, _, _, _ in spans),
        replica_seconds=sum(length * count for length, count, _, _ in spans),
        lowest=min(known, default=0),
        highest=max(known, default=0),
        at_maximum=sum(
            length for length, count, low, high in spans if high is not None and count >= high and low != high
        ),
        longest_at_maximum=0.0,
        at_minimum=sum(length for length, count, low, _ in spans if low is not None and count <= low),
        above_goal=None,
        rescales=max(0, len(curve(past)) - 2),
        flaps=0,
        sawtooth=None,
        failing={},
        idle=None,
        peak=None,
    )
